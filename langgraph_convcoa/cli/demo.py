"""`convcoa demo`: shows a conversation."""

from __future__ import annotations

from langgraph_convcoa.cli.console import consoles
from langgraph_convcoa.cli.documents import documents_path
from langgraph_convcoa.cli.options import ConversationOptions
from langgraph_convcoa.cli.session import open_session, run_turn


def demo() -> None:
    """Show a conversation of three turns over a few documents about this field, without a model.

    [bold]Examples[/bold]
      convcoa demo
      convcoa chat --docs demo
    """
    from langgraph_convcoa.datasets.demo import demo_questions

    out, err = consoles()
    session = open_session(ConversationOptions(docs="demo"), "demo")
    err.print(f"Documents: {documents_path('demo')}")
    with session:
        for question in demo_questions():
            out.out(f"\n> {question}\n", style="bold")
            run_turn(session, question)
