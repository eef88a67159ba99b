"""`convcoa demo`: a conversation that is shown."""

from __future__ import annotations

import sys
from collections.abc import Sequence
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
    """Show a conversation of three turns over a few documents about this field, or over your own.

    [bold]Examples[/bold]
      convcoa demo
      convcoa demo --docs papers/ -q "Who wrote it?" -q "When?"
    """
    out, err = consoles()
    options = ConversationOptions(docs, model=model, base_url=base_url, k=k, max_mb=max_mb, no_cache=no_cache)
    session = open_session(options, "demo")
    questions = list(question or ())
    if not questions and docs != "demo" and sys.stdin.isatty():
        with session:
            Chat(session).run()
        return
    if not questions:
        from langgraph_convcoa.datasets.demo import demo_questions

        questions = demo_questions() if docs == "demo" else questions_about(session.titles)
    err.print(f"Documents: {documents_path(docs or 'demo')}")
    with session:
        for text in questions:
            out.out(f"\n> {text}\n", style="bold")
            run_turn(session, proper_text(text))


def questions_about(titles: Sequence[str]) -> list[str]:
    """A question about the first document that has a title, and one that needs the first to be understood."""
    title = next((title for title in titles if title), "")
    return [f"What is said about {title}?" if title else "What is this about?", "What else is known about it?"]
