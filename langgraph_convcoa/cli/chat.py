"""A conversation at the terminal or from a pipe, turn by turn."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from langgraph_convcoa.cli.errors import report, warn
from langgraph_convcoa.errors import ConvCoAError

if TYPE_CHECKING:
    from rich.console import Console

    from langgraph_convcoa.cli.session import Session
    from langgraph_convcoa.cli.session_opening import SessionSettings
    from langgraph_convcoa.memory.knowledge_set import Round

_ROUNDS_SHOWN = 3
_CHAT_HELP = "/help: what else can be done   /exit or Ctrl-D: leave   Ctrl-C: stop a turn"


def kept(settings: SessionSettings) -> SessionSettings:
    """The settings of a chat: at a terminal it is kept, under a name of its own where none is given."""
    if settings.thread is not None or settings.store is not None or not sys.stdin.isatty():
        return settings
    from dataclasses import replace
    from datetime import datetime

    from langgraph_convcoa.storage.stores import default_store, open_store

    try:
        open_store(default_store()).check()
    except ConvCoAError as error:
        warn(f"{error}; this conversation is not kept")
        return settings
    return replace(settings, thread=datetime.now().astimezone().strftime("%Y-%m-%d %H.%M.%S"))


def converse(session: Session, as_json: bool) -> bool:
    """Ask what standard input says, line by line; whether every turn was answered, or a person was there to see."""
    from langgraph_convcoa.cli.chat_commands import ChatCommands
    from langgraph_convcoa.cli.console import consoles, print_json

    out, err = consoles()
    interactive = sys.stdin.isatty()
    commands = ChatCommands(session, err)
    complete = True

    def answered(question: str | None) -> bool:
        """Run a turn, or without a question go on with the interrupted one; False where it failed."""
        try:
            if as_json:
                commands.last = session.resume() if question is None else session.ask(question)
                print_json(commands.last, indent=None)
            else:
                commands.last = run_turn(session, question, out, err)
                if not interactive:
                    out.out("")
        except ConvCoAError as error:
            report(error)
            return False
        except KeyboardInterrupt:
            if not interactive:
                raise
            err.print("stopped; the conversation is as it was before this question", style="dim")
            err.print("(/resume goes on where it stopped)", style="dim", highlight=False)
        return True

    questions = _lines(interactive, err, session.rounds())
    if interactive:
        _welcome(session, err)
        if (unfinished := session.unfinished()) and _goes_on(unfinished, err):
            answered(None)
        err.print(_CHAT_HELP, style="dim", highlight=False)
    for line in questions:
        question = proper_text(line).strip()
        if not question:
            continue
        if question.startswith("/"):
            if question in ("/exit", "/quit"):
                break
            if question == "/resume":
                complete = answered(None) and complete
            else:
                commands.run(question)
            continue
        complete = answered(question) and complete
    if interactive and session.store.label != "memory" and session.rounds():
        err.print(f"Go on later with: {_again(session)}", style="dim", highlight=False, markup=False)
    return complete or interactive


def run_turn(session: Session, question: str | None, out: Console, err: Console) -> dict[str, Any]:
    """Run one turn in sight of a person; without a question, the interrupted one."""
    from langgraph_convcoa.cli.console import TurnView, one_line

    if question is not None and (unfinished := session.unfinished()):
        said = "going on with the turn that was interrupted"
        if unfinished != question.strip():
            said = f'the interrupted turn "{one_line(unfinished, 80)}" is discarded'
        err.print(said, style="dim", highlight=False, markup=False)
    with TurnView(out, err) as view:
        output = session.resume(view) if question is None else session.ask(question, view)
        view.finish(output)
    return output


def _welcome(session: Session, err: Console) -> None:
    """Where the conversation stands."""
    from langgraph_convcoa.cli.console import one_line, show_rounds

    rounds = session.rounds()
    name = one_line(session.thread, 80)
    if session.store.label != "memory":
        begins = "Going on with" if rounds else "A new conversation:"
        err.print(f"{begins} {name}, kept in {session.store.label}", style="dim", highlight=False, markup=False)
    if len(rounds) > _ROUNDS_SHOWN:
        err.print(f"... {len(rounds) - _ROUNDS_SHOWN} rounds before these; /history shows them", style="dim", highlight=False)
    show_rounds(err, rounds[-_ROUNDS_SHOWN:])


def _goes_on(unfinished: str, err: Console) -> bool:
    from langgraph_convcoa.cli.console import one_line

    err.print(f'The last question was not answered to the end: "{one_line(unfinished, 200)}"', highlight=False, markup=False)
    try:
        return input("Go on with it? [Y/n] ").strip().lower() in ("", "y", "yes")
    except (EOFError, KeyboardInterrupt):
        err.print()
        return False


def _lines(interactive: bool, err: Console, rounds: Sequence[Round]) -> Iterator[str]:
    if not interactive:
        yield from sys.stdin
        return
    import contextlib

    with contextlib.suppress(ImportError):
        import readline  # gives input() line editing and a history

        # Of this thread, and never in a file: a deleted thread would live on there.
        for entry in rounds:
            readline.add_history(" ".join(entry["original_question"].split()))
    while True:
        try:
            yield input("\n> ")
        except EOFError:
            err.print()
            return
        except KeyboardInterrupt:
            err.print("\n(Ctrl-D leaves)", style="dim", highlight=False)


def _again(session: Session) -> str:
    """The command that goes on with the conversation; with the store, where that is a file other than the user's own."""
    import contextlib
    import shlex

    from langgraph_convcoa.cli.console import printable
    from langgraph_convcoa.storage.stores import default_store

    words = ["convcoa", "chat", "--thread", session.thread]
    with contextlib.suppress(ConvCoAError):
        if session.store.label == str(default_store()):
            return printable(shlex.join(words))
    words += ["--store", session.store.label]
    return printable(shlex.join(words))


def proper_text(argument: str) -> str:
    """An argument as proper Unicode; bytes that are none come as lone surrogates."""
    return argument.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
