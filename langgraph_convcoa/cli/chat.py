"""`convcoa ask`, `chat` and `demo`: one question, a conversation at the terminal or from a pipe, and an example."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from langgraph_convcoa.cli.console import consoles, print_json, report, save_turn, show_rounds, show_sources, show_why, warn
from langgraph_convcoa.cli.documents import documents_path
from langgraph_convcoa.cli.options import AsJson, ConversationOptions, grouped, option, proper_text
from langgraph_convcoa.cli.session import Session, open_session, run_turn
from langgraph_convcoa.errors import ConvCoAError, InputError
from langgraph_convcoa.storage import default_store, open_store
from langgraph_convcoa.storage.thread_export import file_name, write_thread_file
from langgraph_convcoa.text.clean import one_line, printable

_ROUNDS_SHOWN = 3
_HELP = {
    "/history [N]": "the rounds so far, or the last N",
    "/sources [N]": "what the last answer cites, or that of round N",
    "/why [N]": "how the last answer came about, or that of round N: its chain with scores and evidence",
    "/export [FILE]": "write the conversation to a file: .json to import it again, .md to read",
    "/resume": "resume the turn that was interrupted",
    "/help": "this",
    "/exit": "leave; so do exit, quit and Ctrl-D",
    "Ctrl-C": "stop a turn and keep the conversation",
}


@grouped(ConversationOptions)
def ask(
    options: ConversationOptions,
    question: Annotated[str, typer.Argument(help="The question.")],
    as_json: AsJson = False,
    picture: Annotated[Path | None, option("FILE.svg", "Draw how the turn went.")] = None,
) -> None:
    """Answer one question.

    With --thread, the question joins a stored conversation. After an interruption, ask it again to resume the turn.

    [bold]Examples[/bold]
      convcoa ask "Who introduced sparsemax?" --docs demo
      convcoa ask "When was it?" --docs papers/ --store chats.sqlite --thread thesis
      convcoa ask "Who wrote it?" --index papers.index
      convcoa ask "Which region sold most in 2019?" --data sales.csv --model openai:gpt-4.1-mini
      convcoa ask "Who wrote it, and when?" --docs papers/ --model openai:gpt-4.1-mini --picture turn.svg
      convcoa ask "What is new in Python?" --web --search https://searx.example.org --model openai:gpt-4.1-mini --json
    """
    from langgraph_convcoa.nodes.plan import read_conversation

    text = proper_text(question)
    # A bad question or picture raises an error now, before documents are encoded for minutes.
    read_conversation(text, [])
    if picture is not None and picture.suffix.lower() != ".svg":
        raise InputError(f"the picture of a turn is SVG: give a name that ends in .svg, not {picture.name!r}")
    if picture is not None and not picture.parent.is_dir():
        raise InputError(f"the picture cannot be written: there is no folder {picture.parent}")
    with open_session(options, "ask QUESTION") as session:
        output = session.ask(text) if as_json else run_turn(session, text, goes_on=session.store.label != "memory")
    if as_json:
        print_json(output)
    if picture is not None:
        save_turn(text, output, picture)


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


@grouped(ConversationOptions)
def chat(options: ConversationOptions, as_json: AsJson = False) -> None:
    r"""Hold a conversation; from a pipe, every line is a question.

    Ctrl-C stops a turn and keeps the conversation, Ctrl-D leaves, /help shows the commands. With --json, each turn is one
    line of JSON. At a terminal, the conversation is kept in the user's own store, from a pipe only with --thread or --store.

    [bold]Examples[/bold]
      convcoa chat --docs demo
      convcoa chat --docs papers/ --thread thesis
      convcoa chat --docs papers/ --store chats.sqlite --thread thesis
      convcoa chat --docs notes/ --data postgresql://reader@localhost/sales --web --model openai:gpt-4.1-mini
      printf 'Who introduced it?\nWhen?\n' | convcoa chat --docs demo
    """
    if options.thread is None and options.store is None and sys.stdin.isatty():
        options = _kept(options)
    with open_session(options, "chat") as session:
        if not Chat(session, options, as_json).run():
            raise typer.Exit(2)


def _kept(options: ConversationOptions) -> ConversationOptions:
    """The options with a new thread in the user's store, or unchanged if the store cannot be used."""
    try:
        open_store(default_store()).check()
    except ConvCoAError as error:
        warn(f"{error}; this conversation is not kept")
        return options
    return replace(options, thread=datetime.now().astimezone().strftime("%Y-%m-%d %H.%M.%S"))


class Chat:
    """A conversation whose questions and /commands come from standard input; only answers go to standard output."""

    def __init__(self, session: Session, options: ConversationOptions, as_json: bool = False) -> None:
        self._session, self._options, self._json = session, options, as_json
        self._out, self._err = consoles()
        self._interactive = sys.stdin.isatty()
        self._last = session.last()
        self._commands: dict[str, Callable[[str], None]] = {
            "/history": self._history,
            "/sources": lambda number: self._of_round(show_sources, "/sources", number),
            "/why": lambda number: self._of_round(show_why, "/why", number),
            "/export": self._export,
            "/help": lambda _: self._help(),
        }

    def run(self) -> bool:
        """Take standard input line by line. Returns False if a turn failed and nobody is at the terminal."""
        complete = True
        if self._interactive:
            self._welcome()
        for line in self._lines() if self._interactive else sys.stdin:
            text = proper_text(line).strip()
            if text in ("/exit", "/quit") or (self._interactive and text.lower() in ("exit", "quit")):
                break
            if text.startswith("/") and text != "/resume":
                self.command(text)
            elif text:
                if not self._interactive and not self._json:
                    self._note(f"> {one_line(text, 400)}")
                complete = self._turn(None if text == "/resume" else text) and complete
        if self._interactive and self._session.store.label != "memory" and self._session.rounds():
            self._note(f"Continue later with: {continuing(self._session, self._options)}")
        return complete or self._interactive

    def command(self, line: str) -> None:
        """Carry out a line that begins with a slash. An error is printed as one line."""
        name, _, argument = line.partition(" ")
        try:
            if name in self._commands:
                self._commands[name](argument.strip())
            else:
                self._err.print("There is no such command.")
                self._help()
        except ConvCoAError as error:
            report(error)

    def _turn(self, question: str | None) -> bool:
        """Run a turn. Without a question, resume the interrupted turn. Returns False if the turn failed."""
        try:
            if self._json:
                self._last = self._session.ask(question)
                print_json(self._last, indent=None)
            else:
                self._last = run_turn(self._session, question)
                if not self._interactive:
                    self._out.out("")
        except ConvCoAError as error:
            report(error)
            return False
        except KeyboardInterrupt:
            if not self._interactive:
                raise
            self._note("stopped; the conversation is as it was before this question")
            self._note("(/resume resumes the turn where it stopped)")
        return True

    def _welcome(self) -> None:
        """Show the name and the last rounds of the thread, and offer to resume an interrupted turn."""
        rounds, store = self._session.rounds(), self._session.store.label
        if store != "memory":
            begins = "Continuing" if rounds else "A new conversation:"
            self._note(f"{begins} {one_line(self._session.thread, 80)}, kept in {store}")
        if len(rounds) > _ROUNDS_SHOWN:
            self._note(f"... {len(rounds) - _ROUNDS_SHOWN} rounds before these; /history shows them")
        show_rounds(self._err, rounds[-_ROUNDS_SHOWN:])
        if unfinished := self._session.unfinished():
            self._err.print(f'The last question was not answered to the end: "{one_line(unfinished)}"')
            try:
                if input("Resume it? [Y/n] ").strip().lower() in ("", "y", "yes"):
                    self._turn(None)
            except (EOFError, KeyboardInterrupt):
                self._err.print()
        self._note("/help: what else can be done   /exit or Ctrl-D: leave   Ctrl-C: stop a turn")

    def _lines(self) -> Iterator[str]:
        with contextlib.suppress(ImportError):
            import readline  # gives input() line editing and a history

            # The history holds only questions of this thread. It is not saved: its file would outlive a deleted thread.
            for entry in self._session.rounds():
                readline.add_history(" ".join(entry["original_question"].split()))
        while True:
            try:
                yield input("\n> ")
            except EOFError:
                self._err.print()
                return
            except KeyboardInterrupt:
                self._err.print("\n(Ctrl-D leaves)", style="dim")

    def _history(self, argument: str) -> None:
        wanted = _number(argument, "/history takes the number of rounds to show, such as /history 5")
        rounds = self._session.rounds()
        if not rounds:
            self._err.print("There is no answer yet.")
        show_rounds(self._err, rounds[-wanted:])

    def _of_round(self, show: Callable[..., None], command: str, argument: str) -> None:
        number = _number(argument, f"{command} takes the number of a round, such as {command} 2")
        if number or self._last:
            show(self._err, self._round(number) if number else self._last)
        else:
            self._err.print("There is no answer yet.")

    def _round(self, number: int) -> Mapping[str, Any]:
        rounds = {entry["round"]: entry for entry in self._session.rounds()}
        if number not in rounds:
            last = f"the last is {max(rounds)}; /history shows them" if rounds else "nothing was answered yet"
            raise InputError(f"there is no round {number}: {last}")
        if (kept := rounds[number].get("convcoa")) is None:
            raise InputError(f"of round {number} only the question and the answer are kept")
        return kept

    def _export(self, argument: str) -> None:
        if not self._session.rounds():
            raise InputError("there is nothing to export yet: ask something first")
        path = Path(argument).expanduser() if argument else Path(file_name(self._session.thread))
        write_thread_file(self._session.export(), path)
        self._err.print(f"written to {path}")

    def _help(self) -> None:
        for name, what in _HELP.items():
            self._err.print(f"{name:15} {what}")

    def _note(self, text: str) -> None:
        self._err.print(text, style="dim")


def _number(argument: str, otherwise: str) -> int:
    """The number after a /command, or 0 if nothing follows. Raises InputError for anything except a number from 1."""
    if argument and not (argument.isdecimal() and int(argument)):
        raise InputError(otherwise)
    return int(argument or 0)


def continuing(session: Session, options: ConversationOptions) -> str:
    """The command that continues the conversation, with --store unless the store is the user's own."""
    words = ["convcoa", "chat", *options.words(), "--thread", session.thread]
    own = None
    with contextlib.suppress(ConvCoAError):
        own = str(default_store())
    if session.store.label != own:
        words += ["--store", session.store.label]
    return printable(shlex.join(words))
