"""`convcoa demo`: a conversation that is shown."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated

from langgraph_convcoa.cli.chat import Chat
from langgraph_convcoa.cli.console import consoles, run_turn
from langgraph_convcoa.cli.documents import documents_path
from langgraph_convcoa.cli.options import (
    DEFAULT_MAX_MB,
    BaseUrl,
    ConversationOptions,
    Docs,
    MaxMb,
    NoCache,
    PassageCount,
    option,
    proper_text,
)
from langgraph_convcoa.cli.session import open_session
from langgraph_convcoa.text.terminal import printable


def demo(
    docs: Docs = "demo",
    question: Annotated[
        list[str] | None, option("Q", "A question of the conversation; may be repeated.", "--question", "-q")
    ] = None,
    model: Annotated[str | None, option("NAME", "Chat model; without one, offline.")] = None,
    base_url: BaseUrl = None,
    k: PassageCount = None,
    max_mb: MaxMb = DEFAULT_MAX_MB,
    no_cache: NoCache = False,
) -> None:
    """Show a conversation of three turns over a few documents about this field, or hold one over your own.

    [bold]Examples[/bold]
      convcoa demo
      convcoa demo --docs papers/ -q "Who wrote it?" -q "When?"
    """
    out, err = consoles()
    options = ConversationOptions(docs, model=model, base_url=base_url, k=k, max_mb=max_mb, no_cache=no_cache)
    session = open_session(options, "demo")
    questions = list(question or ())
    err.print(f"Documents: {documents_path(docs or 'demo')}")
    if not questions and docs != "demo":
        # Nobody here knows what to ask of the user's own documents.
        if sys.stdin.isatty():
            with session:
                Chat(session, options).run()
        else:
            command = printable(shlex.join(["convcoa", "chat", *options.words()]))
            err.print(f"They are read and encoded. Ask about them with: {command}")
        return
    if not questions:
        from langgraph_convcoa.datasets.demo import demo_questions

        questions = demo_questions()
    with session:
        for text in questions:
            out.out(f"\n> {text}\n", style="bold")
            run_turn(session, proper_text(text))
