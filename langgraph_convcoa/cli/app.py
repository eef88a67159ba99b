"""The `convcoa` command. What it prints goes through `console`, what it runs through `session`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from langgraph_convcoa.cli.bench import app as bench_app
from langgraph_convcoa.cli.chat import converse, kept, proper_text, run_turn
from langgraph_convcoa.cli.errors import USER_ERROR, ErrorLineGroup, warn
from langgraph_convcoa.cli.evaluate import app as evaluate_app
from langgraph_convcoa.cli.index import documents_of, index
from langgraph_convcoa.cli.options import (
    DEFAULT_MAX_MB,
    AsJson,
    BaseUrl,
    Data,
    Docs,
    IndexFolder,
    MaxMb,
    Model,
    NoCache,
    PassageCount,
    Search,
    Store,
    Thread,
    Threshold,
    Web,
    search_of,
)
from langgraph_convcoa.cli.search import search
from langgraph_convcoa.cli.session import Session
from langgraph_convcoa.cli.session_documents import documents_path
from langgraph_convcoa.cli.session_opening import SessionSettings, open_session
from langgraph_convcoa.cli.threads import app as threads_app
from langgraph_convcoa.cli.train import train
from langgraph_convcoa.errors import InputError

app = typer.Typer(
    name="convcoa",
    cls=ErrorLineGroup,
    help="Ask your documents questions, in conversation; every answer verified and cited.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.add_typer(evaluate_app, name="evaluate")
app.add_typer(bench_app, name="bench")
app.add_typer(threads_app, name="threads")


def main() -> None:
    """Entry point of the command."""
    import os
    import warnings

    # Threads of torch that wait by spinning slow each other down manyfold on a busy machine; read when torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    if sys.stdin is None:
        # Closed by who called; nobody asks anything then.
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115 - for as long as the program runs
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
    app()


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"convcoa {version('langgraph-convcoa')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    pass


@app.command()
def ask(
    question: Annotated[str, typer.Argument(help="The question.", show_default=False)],
    docs: Docs = None,
    index: IndexFolder = None,
    data: Data = None,
    web: Web = False,
    search: Search = None,
    model: Model = None,
    base_url: BaseUrl = None,
    thread: Thread = None,
    store: Store = None,
    k: PassageCount = None,
    threshold: Threshold = None,
    as_json: AsJson = False,
    max_mb: MaxMb = DEFAULT_MAX_MB,
    no_cache: NoCache = False,
) -> None:
    """Answer one question.

    With --thread it is part of a conversation that is kept; asked again after an interruption, it goes on where it was.

    [bold]Examples[/bold]

      convcoa ask "Who introduced sparsemax?" --docs demo

      convcoa ask "When was it?" --docs papers/ --store chats.sqlite --thread thesis

      convcoa ask "Who wrote it?" --index papers.index

      convcoa ask "Which region sold most in 2019?" --data sales.csv --model openai:gpt-4.1-mini

      convcoa ask "What is new in Python?" --web --search https://searx.example.org --model openai:gpt-4.1-mini --json
    """
    from langgraph_convcoa.memory.asked import read_conversation

    # Told before minutes of encoding, not after.
    read_conversation(proper_text(question), [])
    settings = SessionSettings(
        documents_of(docs, index),
        model,
        base_url,
        thread,
        store,
        k,
        threshold,
        max_mb,
        cache=not no_cache,
        data=tuple(data or ()),
        search=search_of(web, search),
    )
    from langgraph_convcoa.cli.console import consoles, print_json

    with _session(settings, "ask QUESTION") as session:
        if as_json:
            print_json(session.ask(proper_text(question)))
        else:
            out, err = consoles()
            run_turn(session, proper_text(question), out, err)


@app.command()
def chat(
    docs: Docs = None,
    index: IndexFolder = None,
    data: Data = None,
    web: Web = False,
    search: Search = None,
    model: Model = None,
    base_url: BaseUrl = None,
    thread: Thread = None,
    store: Store = None,
    k: PassageCount = None,
    threshold: Threshold = None,
    as_json: AsJson = False,
    max_mb: MaxMb = DEFAULT_MAX_MB,
    no_cache: NoCache = False,
) -> None:
    r"""Hold a conversation; from a pipe, every line is a question.

    Ctrl-C stops a turn and keeps the conversation, Ctrl-D leaves, /help shows the commands. With --json each turn is one
    line of JSON. A conversation at a terminal is kept in the user's own store, one from a pipe with --thread or --store.

    [bold]Examples[/bold]

      convcoa chat --docs demo

      convcoa chat --docs papers/ --thread thesis

      convcoa chat --docs papers/ --store chats.sqlite --thread thesis

      convcoa chat --docs notes/ --data postgresql://reader@localhost/sales --web --model openai:gpt-4.1-mini

      printf 'Who introduced it?\nWhen?\n' | convcoa chat --docs demo
    """
    settings = SessionSettings(
        documents_of(docs, index),
        model,
        base_url,
        thread,
        store,
        k,
        threshold,
        max_mb,
        cache=not no_cache,
        data=tuple(data or ()),
        search=search_of(web, search),
    )
    with _session(kept(settings), "chat") as session:
        if not converse(session, as_json):
            raise typer.Exit(USER_ERROR)


@app.command()
def demo(
    docs: Docs = "demo",
    question: Annotated[
        list[str] | None,
        typer.Option(
            "--question", "-q", metavar="Q", help="A question of the conversation; may be repeated.", show_default=False
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Chat model; without one, offline.", show_default=False)
    ] = None,
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
    from langgraph_convcoa.cli.console import consoles

    out, err = consoles()
    settings = SessionSettings(docs or "", model, base_url, k=k, max_mb=max_mb, cache=not no_cache)
    session = _session(settings, "demo")
    questions = list(question or ())
    if not questions and docs != "demo" and sys.stdin.isatty():
        with session:
            converse(session, False)
        return
    if not questions:
        from langgraph_convcoa.datasets.demo import demo_questions

        questions = demo_questions() if docs == "demo" else questions_about(session.titles)
    err.print(f"Documents: {documents_path(docs or 'demo')}", highlight=False, soft_wrap=True)
    with session:
        for text in questions:
            out.out(f"\n> {text}\n", highlight=False, style="bold")
            run_turn(session, proper_text(text), out, err)


def questions_about(titles: Sequence[str]) -> list[str]:
    """A question about the first document that has a title, and one that needs the first to be understood.

    Example:
        >>> questions_about(["", "Bees"])
        ['What is said about Bees?', 'What else is known about it?']
    """
    title = next((title for title in titles if title), "")
    return [f"What is said about {title}?" if title else "What is this about?", "What else is known about it?"]


def _session(settings: SessionSettings, command: str) -> Session:
    if not (settings.docs or settings.data or settings.search):
        raise InputError(
            f"nothing to look things up in: write convcoa {command} --docs PATH (--docs demo for the demonstration's), "
            "--data TABLES, or --web"
        )
    return open_session(settings, progress=True, warn=warn)


# The help lists the commands in the order in which they are added.
app.command()(search)
app.command()(index)
app.command()(train)
