"""A conversation at the terminal or from a pipe, turn by turn."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from langgraph_convcoa.cli_errors import report
from langgraph_convcoa.errors import ConvCoAError

if TYPE_CHECKING:
    from rich.console import Console

    from langgraph_convcoa.session import Session

_CHAT_HELP = "/sources: what the last answer cites   /why: how it came about   /exit or Ctrl-D: leave   Ctrl-C: stop a turn"


def converse(session: Session, as_json: bool) -> bool:
    """Ask what standard input says, line by line; whether every turn was answered, or a person was there to see."""
    from langgraph_convcoa.console import consoles, print_json

    out, err = consoles()
    interactive = sys.stdin.isatty()
    if interactive:
        err.print(_CHAT_HELP, style="dim", highlight=False)
    complete, last = True, dict[str, Any]()
    for line in _lines(interactive, err):
        question = proper_text(line).strip()
        if not question:
            continue
        if question.startswith("/"):
            if question in ("/exit", "/quit"):
                break
            _chat_command(question, last, err)
            continue
        try:
            if as_json:
                last = session.ask(question)
                print_json(last, indent=None)
            else:
                last = run_turn(session, question, out, err)
                if not interactive:
                    out.out("")
        except ConvCoAError as error:
            report(error)
            complete = False
        except KeyboardInterrupt:
            if not interactive:
                raise
            err.print("stopped; the conversation is as it was before this question", style="dim")
    return complete or interactive


def _chat_command(command: str, last: dict[str, Any], err: Console) -> None:
    from langgraph_convcoa.console import show_sources, show_why

    shows: dict[str, Callable[[Console, dict[str, Any]], None]] = {"/sources": show_sources, "/why": show_why}
    if command not in shows:
        err.print(_CHAT_HELP, highlight=False)
    elif not last:
        err.print("There is no answer yet.")
    else:
        shows[command](err, last)


def _lines(interactive: bool, err: Console) -> Iterator[str]:
    if not interactive:
        yield from sys.stdin
        return
    import contextlib

    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - gives input() line editing and a history
    while True:
        try:
            yield input("\n> ")
        except EOFError:
            err.print()
            return
        except KeyboardInterrupt:
            err.print("\n(Ctrl-D leaves)", style="dim", highlight=False)


def run_turn(session: Session, question: str, out: Console, err: Console) -> dict[str, Any]:
    """Run one turn in sight of a person."""
    from langgraph_convcoa.console import TurnView

    with TurnView(out, err) as view:
        output = session.ask(question, view)
        view.finish(output)
    return output


def proper_text(argument: str) -> str:
    """An argument as proper Unicode; bytes that are none come as lone surrogates."""
    return argument.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
