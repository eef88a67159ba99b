"""`convcoa threads`: the conversations of a store."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from langgraph_convcoa.cli.console import consoles, print_json, show_rounds
from langgraph_convcoa.cli.options import AsJson, option
from langgraph_convcoa.errors import InputError, StoreError
from langgraph_convcoa.storage import default_store, open_store
from langgraph_convcoa.storage.thread_export import file_as_values, read_thread_file, write_thread_file
from langgraph_convcoa.storage.threads import Threads
from langgraph_convcoa.text.clean import one_line

app = typer.Typer(help="List, show, export, import and delete conversations.", no_args_is_help=True, rich_markup_mode="rich")

_Store = Annotated[str | None, option("FILE|URL", "A store; without it, your own.", "--store", envvar="CONVCOA_STORE")]
_Name = Annotated[str, typer.Argument(metavar="THREAD", help="Its name, as `convcoa threads list` shows it.")]


@app.command("list")
def list_threads(store: _Store = None, as_json: AsJson = False) -> None:
    """List the conversations, the latest first.

    [bold]Examples[/bold]
      convcoa threads list
      convcoa threads list --store chats.sqlite --json
    """
    found = []
    # The user's own store is made with the first conversation.
    if store is not None or default_store().exists():
        with _opened(store) as threads:
            found = threads.summaries()
    if as_json:
        print_json([asdict(summary) for summary in found])
        return
    out, err = consoles()
    if not found:
        err.print("There are no conversations yet: convcoa chat --docs PATH begins one.")
    width = min(40, max((len(one_line(summary.thread, 40)) for summary in found), default=0))
    for summary in found:
        rounds = f"{summary.rounds} round{'' if summary.rounds == 1 else 's'}"
        line = f"{one_line(summary.thread, 40):{width}}  {rounds:>10}  {summary.time[:16]:16}  "
        out.out(line + one_line(summary.last_question, 80))
        if summary.unfinished:
            out.out(f"{'':{width}}  interrupted in: {one_line(summary.unfinished, 80)}")


@app.command()
def show(
    thread: _Name,
    store: _Store = None,
    last: Annotated[int | None, option("N", "Only the last N rounds.", "--last", "-n", min=1)] = None,
    as_json: AsJson = False,
) -> None:
    """Show the rounds of a conversation.

    [bold]Examples[/bold]
      convcoa threads show thesis
      convcoa threads show thesis -n 2 --store chats.sqlite --json
    """
    with _opened(store) as threads:
        rounds = threads.show(thread)[-(last or 0) :]
    if as_json:
        print_json(rounds)
    else:
        show_rounds(consoles()[0], rounds, limit=None)


@app.command()
def export(
    thread: _Name,
    removed: Annotated[str | None, typer.Argument(hidden=True, metavar="")] = None,
    out: Annotated[Path | None, option("FILE", "Output file: Markdown for .md, else JSON; or standard output.")] = None,
    store: _Store = None,
) -> None:
    """Export a conversation, as JSON that can be imported again, or as Markdown.

    [bold]Examples[/bold]
      convcoa threads export thesis --out thesis.json
      convcoa threads export thesis --out thesis.md --store chats.sqlite
    """
    if removed is not None:
        raise InputError(f"the file is an option now: --out {removed}")
    with _opened(store) as threads:
        data = threads.export(thread)
    if out is None:
        print_json(data)
    else:
        write_thread_file(data, out)
        consoles()[1].print(f"written to {out}")


@app.command("import")
def import_thread(
    file: Annotated[Path, typer.Argument(help="What `export` wrote, or a contextual knowledge set.")],
    thread: Annotated[str | None, option("T", "Another name than the one it had.")] = None,
    store: _Store = None,
) -> None:
    """Import an exported conversation, to continue it where it ended.

    [bold]Examples[/bold]
      convcoa threads import thesis.json
      convcoa threads import thesis.json --thread copy --store chats.sqlite
    """
    data = read_thread_file(file)
    # The file is checked before a store is made for the conversation.
    file_as_values(data)
    with _opened(store, made=True) as threads:
        name = threads.add(data, thread)
    consoles()[1].print(f"imported as {one_line(name, 80)}")


@app.command()
def delete(
    thread: _Name, store: _Store = None, yes: Annotated[bool, option(None, "Do not ask.", "--yes", "-y")] = False
) -> None:
    """Delete a conversation, and all that the store's files hold of it.

    [bold]Examples[/bold]
      convcoa threads delete thesis
      convcoa threads delete thesis --yes --store chats.sqlite
    """
    with _opened(store) as threads:
        if not yes:
            # A missing thread is reported before the user is asked to confirm. A damaged thread can be deleted too.
            with suppress(StoreError):
                threads.show(thread)
            if not sys.stdin.isatty():
                raise InputError("nobody is there to ask: delete it with --yes")
            typer.confirm(f"Delete {one_line(thread, 80)} for good?", abort=True, err=True)
        threads.delete(thread)
    consoles()[1].print(f"deleted {one_line(thread, 80)}")


def _opened(store: str | None, made: bool = False) -> Threads:
    """Open the named store, or the user's own. Raises StoreError for a missing file unless it may be `made`."""
    where = open_store(default_store() if store is None else store)
    path = getattr(where, "path", None)
    if isinstance(path, Path) and not made and not path.exists():
        raise StoreError(f"there is no store {path}: give another with --store")
    return Threads(where)
