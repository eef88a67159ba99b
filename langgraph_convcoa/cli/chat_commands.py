"""What a chat understands besides questions: its /commands."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langgraph_convcoa.cli.errors import report
from langgraph_convcoa.errors import ConvCoAError, InputError

if TYPE_CHECKING:
    from rich.console import Console

    from langgraph_convcoa.cli.session import Session

_HELP = (
    ("/history [N]", "the rounds so far, or the last N"),
    ("/sources", "what the last answer cites"),
    ("/why", "how the last answer came about: its chain with scores and evidence"),
    ("/export [FILE]", "write the conversation to a file: .json to import it again, .md to read"),
    ("/resume", "go on with the turn that was interrupted"),
    ("/help", "this"),
    ("/exit", "leave; so does Ctrl-D"),
    ("Ctrl-C", "stop a turn and keep the conversation"),
)


class ChatCommands:
    """The commands of one chat.

    Args:
        session: The conversation.
        err: Where what they show goes; standard output is the answers'.
    """

    def __init__(self, session: Session, err: Console) -> None:
        self._session = session
        self._err = err
        self.last: dict[str, Any] = session.last()
        """The output of the last turn."""

    def run(self, line: str) -> None:
        """Do what a line that begins with a slash says; errors are one line."""
        name, _, argument = line.partition(" ")
        known: dict[str, Callable[[str], None]] = {
            "/history": self._history,
            "/sources": self._sources,
            "/why": self._why,
            "/export": self._export,
            "/help": self._help,
        }
        try:
            known.get(name, self._unknown)(argument.strip())
        except ConvCoAError as error:
            report(error)

    def _history(self, argument: str) -> None:
        from langgraph_convcoa.cli.console import show_rounds

        rounds = self._session.rounds()
        if argument and not (argument.isdecimal() and int(argument)):
            raise InputError("/history takes the number of rounds to show, such as /history 5")
        if not rounds:
            self._err.print("There is no answer yet.")
        show_rounds(self._err, rounds[-int(argument) :] if argument else rounds)

    def _sources(self, argument: str) -> None:
        from langgraph_convcoa.cli.console import show_sources

        self._of_last(show_sources)

    def _why(self, argument: str) -> None:
        from langgraph_convcoa.cli.console import show_why

        self._of_last(show_why)

    def _of_last(self, show: Callable[[Console, dict[str, Any]], None]) -> None:
        if self.last:
            show(self._err, self.last)
        else:
            self._err.print("There is no answer yet.")

    def _export(self, argument: str) -> None:
        if not self._session.rounds():
            raise InputError("there is nothing to export yet: ask something first")
        path = Path(argument).expanduser() if argument else Path(file_name(self._session.thread))
        write_thread(self._session.export(), path)
        self._err.print(f"written to {path}", highlight=False, markup=False)

    def _help(self, argument: str) -> None:
        for name, what in _HELP:
            self._err.print(f"{name:15} {what}", highlight=False, markup=False)

    def _unknown(self, argument: str) -> None:
        self._err.print("There is no such command.")
        self._help("")


def file_name(thread: str) -> str:
    """A name for a thread's file; nothing in a thread's name leads to another folder.

    Example:
        >>> file_name("../../etc/passwd")
        'etc-passwd.json'
    """
    plain = re.sub(r"[^\w.-]+", "-", thread).strip(".-")
    return f"{plain or 'thread'}.json"


def write_thread(data: dict[str, Any], path: Path) -> None:
    """Write an exported thread: as Markdown where the file's name ends in .md, else as JSON.

    Raises:
        InputError: The file is there already, or cannot be written.
    """
    import json

    from langgraph_convcoa.storage.export import thread_as_markdown

    text = thread_as_markdown(data) if path.suffix == ".md" else json.dumps(data, ensure_ascii=False, indent=2) + "\n"
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"{path} is there already: give another file") from None
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}): give another file") from error
