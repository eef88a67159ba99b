"""The command: what is read, and the folder that it goes into."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from langgraph_convcoa.cli.console import consoles, print_json, warn
from langgraph_convcoa.cli.documents import documents_path, is_web, web_documents
from langgraph_convcoa.cli.index.engine import EngineOptions, index_into_engine
from langgraph_convcoa.cli.options import INDEX_VARIABLE, AsJson, grouped, option, removed_option
from langgraph_convcoa.errors import InputError, one_of

if TYPE_CHECKING:
    from langchain_core.documents import Document

    from langgraph_convcoa.retrieval.documents.load import Told
    from langgraph_convcoa.retrieval.encoders.base import Encoder
    from langgraph_convcoa.retrieval.index.index import Index
    from langgraph_convcoa.retrieval.index.watch import WatchedFiles

# Written here, since importing them would delay --help.
DTYPES: tuple[Literal["float32", "int8"], ...] = ("float32", "int8")


@dataclass(frozen=True)
class FolderOptions:
    """The options of an index in a folder."""

    out: Annotated[Path | None, option("DIR", "Folder of the index.")] = None
    dtype: Annotated[
        str | None,
        option(
            "|".join(DTYPES),
            "How the patterns are stored: float32 unless the index has another type already; int8 takes a quarter.",
        ),
    ] = None
    graph: Annotated[
        bool | None,
        option(
            None,
            "Keep an evidence graph too, as a new index does: for questions that need several passages.",
            "--graph/--no-graph",
        ),
    ] = None
    prune: Annotated[
        bool, option(None, "Delete the documents of the index that were not read of PATH this time.", "--prune")
    ] = False
    watch: Annotated[
        bool, option(None, "Go on until Ctrl-C, and take over what is added, changed and deleted in PATH.", "--watch")
    ] = False
    approximate: Annotated[
        bool,
        removed_option(
            "leave it out, the search is exact; for millions of passages load them into an engine (--to URL)", "--approximate"
        ),
    ] = False
    exact: Annotated[bool, removed_option("leave it out, every search is exact", "--exact")] = False
    windows: Annotated[
        str | None, removed_option("leave it out; passages and their windows are encoded apart", "--windows")
    ] = None


@grouped(FolderOptions, EngineOptions)
def index(
    folder: FolderOptions,
    engine: EngineOptions,
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH...", help="Files and folders of documents, addresses of web pages or of a sitemap."),
    ],
    passages: Annotated[
        bool,
        option(
            None,
            "Every PATH is a collection of passages, one a row of .jsonl or .tsv files, such as a data set's: read as a "
            "stream, however many there are.",
            "--passages",
        ),
    ] = False,
    max_pages: Annotated[int | None, option("N", "The most pages to read of a sitemap; 500 when left out.", min=1)] = None,
    as_json: AsJson = False,
    max_mb: Annotated[float, option("N", "The most text to read of a PATH, in megabytes.", min=0.001)] = 1000.0,
) -> None:
    """Read documents into an index, which can be searched at once, again and again.

    Run it again after a stop and it continues where it was; documents that have changed are replaced, and those that are gone
    from PATH stay, but for --prune. With several PATHs the ids of the documents begin with the PATH. So it is with an engine
    (--to), into which several commands may load at a time.

    [bold]Examples[/bold]
      convcoa index papers/ --out papers.index
      convcoa index papers/ notes.md --out all.index --dtype int8
      convcoa index papers/ --out papers.index --no-graph
      convcoa index notes/ --out notes.index --prune --watch
      convcoa index https://example.org/sitemap.xml --out site.index
      convcoa index wiki.tsv --passages --out wiki.index --dtype int8
      convcoa index wiki.tsv --passages --to "postgresql://me@db/docs?collection=wiki"
      convcoa index wiki.tsv --passages --to "postgresql://me@db/docs?collection=wiki" --ray local --workers 4
      convcoa search papers.index "who introduced it?"
    """
    address = engine.to or (None if folder.out is not None else os.environ.get(INDEX_VARIABLE))
    if (folder.out is None) == (address is None):
        raise InputError("an index needs one place: --out DIR for a folder, or --to URL for an engine")
    places = ("an index in a folder (--out DIR)", "an engine (--to URL)")
    (own, other), wrong = (places[::-1], folder) if folder.out is None else (places, engine)
    names = ("dtype", "graph", "prune", "watch") if folder.out is None else ("collection", "tenant", "ray", "workers", "cache")
    if given := [name for name in names if getattr(wrong, name) != getattr(type(wrong), name)]:
        raise InputError(f"--{given[0]} is of {other}, not of {own}")
    text = partial(read_all, tuple(paths), passages, int(max_mb * 1e6), max_pages)
    if address is not None:
        index_into_engine(text, address, engine, as_json)
        return
    # Before the index is made, so that a wrong path makes none.
    files = _watched(paths, passages, int(max_mb * 1e6)) if folder.watch else None
    _index_into_folder(text, folder, files, as_json)


def _index_into_folder(
    read_documents: Callable[[], Iterator[Document]], options: FolderOptions, files: WatchedFiles | None, as_json: bool
) -> None:
    assert options.out is not None
    stored = None if options.dtype is None else one_of("--dtype", options.dtype, DTYPES)
    documents, seen, sources = read_documents(), set[str](), set[str]()
    if files is None:
        documents = chain([next(documents)], documents)
    from langgraph_convcoa.retrieval.changes import Committed
    from langgraph_convcoa.retrieval.corpus import read
    from langgraph_convcoa.retrieval.documents.split import document_id
    from langgraph_convcoa.retrieval.graph.settings import graph_settings
    from langgraph_convcoa.retrieval.index.database import is_index
    from langgraph_convcoa.retrieval.index.index import open_or_create, put_graph
    from langgraph_convcoa.retrieval.memory_corpus import MemoryCorpus
    from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

    encoder = HopfieldRetriever(corpus=MemoryCorpus()).encoder
    opened = open_or_create(options.out, encoder, stored, {} if is_index(options.out) else {"graph": True})
    if options.graph is not None:
        put_graph(opened, graph_settings(options.graph))
    added = updated = unchanged = deleted = 0
    if files is not None:
        added, updated, _ = files.sync(opened, encoder, progress=True)
        seen = files.ids
        unchanged = len(seen) - added - updated
    else:
        done = Committed.total(opened.ingest(_noted(documents, seen, sources), encoder, replace=True, progress=True))
        added, updated, unchanged = done.added, done.updated, done.unchanged
    if options.prune:
        deleted = len(opened.delete({document_id(passage.document) for passage in read(opened.snapshot())} - seen))
    _save(opened)
    counts = {"added": added, "updated": updated, "unchanged": unchanged, "deleted": deleted}
    linked = graph_settings(opened.head.settings.get("graph")) is not None
    _report(options, opened, counts, len(sources), linked=linked, as_json=as_json)
    if files is not None:
        _follow(files, opened, encoder, as_json)


def _report(
    options: FolderOptions, opened: Index, counts: dict[str, int], sources: int, *, linked: bool, as_json: bool
) -> None:
    assert options.out is not None
    patterns, kept = opened.snapshot().pattern_count, opened.head.dtype
    size = sum(file.stat().st_size for file in options.out.iterdir() if file.is_file())
    if as_json:
        about = {"passages": len(opened), "patterns": patterns, "dtype": kept, "graph": linked, "bytes": size}
        print_json({"index": str(options.out), **counts, **about})
        return
    gone = f", {counts['deleted']} deleted" if options.prune else ""
    # A page of a PDF or some rows of a table are a document.
    given = counts["added"] + counts["updated"] + counts["unchanged"]
    origin = f" (parts of {sources} file{'' if sources == 1 else 's'})" if 0 < sources < given else ""
    graph = "with an evidence graph, " if linked else ""
    consoles()[0].out(
        f"{options.out}: {counts['added']} documents added, {counts['updated']} updated, {counts['unchanged']} unchanged"
        f"{origin}{gone}; {len(opened)} passages, {patterns} patterns as {kept}, {graph}{size / 1e6:.1f} MB"
    )


def _save(opened: Index) -> None:
    """Leave nothing to do for the next process that opens the index."""
    if 2 * opened.snapshot().pattern_count < opened.head.rows:
        opened.compact()
    opened.save_lexical()
    if opened.head.settings.get("graph"):
        opened.save_graph()


def _watched(paths: Sequence[str], passages: bool, max_bytes: int) -> WatchedFiles:
    """The files of the paths. Raises an error for a wrong path, before anything is made."""
    from langgraph_convcoa.retrieval.documents.load import DocumentFiles
    from langgraph_convcoa.retrieval.index.watch import WatchedFiles

    if passages or any(map(is_web, paths)):
        raise InputError("--watch follows files and folders: neither web addresses nor --passages")
    places = [(documents_path(path), "" if len(paths) == 1 else _prefix(path)) for path in paths]
    for place, _ in places:
        if not place.is_dir():
            DocumentFiles(place).names()
    return WatchedFiles(places, max_bytes=max_bytes, told=lambda name, reason: warn(f"skipped: {name} {reason}"))


def _follow(files: WatchedFiles, opened: Index, encoder: Encoder, as_json: bool) -> None:
    """Take over changes until Ctrl-C."""
    console, err = consoles()
    err.print("Watching for changes. Ctrl-C ends it.")
    with files, suppress(KeyboardInterrupt):
        for changed in files.watch(opened, encoder):
            if as_json:
                print_json({**changed._asdict(), "passages": len(opened)})
            else:
                console.out(
                    f"{time.strftime('%H:%M:%S')} {changed.added} documents added, {changed.updated} updated, "
                    f"{changed.deleted} deleted; {len(opened)} passages"
                )
    _save(opened)


def _noted(documents: Iterable[Document], ids: set[str], sources: set[str]) -> Iterator[Document]:
    for document in documents:
        ids.add(str(document.id))
        if source := document.metadata.get("source"):
            sources.add(str(source))
        yield document


def _prefix(path: str) -> str:
    """The prefix of the ids of a path's documents if there are several paths."""
    prefix = (Path(path) if documents_path(path).is_dir() else Path(path).parent).as_posix()
    return "" if prefix == "." else prefix


def read_all(
    paths: Sequence[str], passages: bool, max_bytes: int, max_pages: int | None, told: Told | None = None
) -> Generator[Document]:
    """The documents of all paths, or the passages of collections, one after another."""
    if passages:
        from langgraph_convcoa.datasets.passages import stream_passages

        yield from chain.from_iterable(map(stream_passages, map(Path, paths)))
        return
    from langgraph_convcoa.retrieval.documents.load import iter_documents

    for path in paths:
        if is_web(path):
            yield from web_documents(path, max_bytes=max_bytes, progress=_say_pages(path), most=max_pages)
            continue
        place = documents_path(path)
        found = iter_documents(place, max_bytes=max_bytes, told=told)
        if len(paths) == 1:
            yield from found
            return
        prefix = _prefix(path)
        for document in found:
            if prefix:
                document.id = f"{prefix}/{document.id}"
                document.metadata["source"] = f"{prefix}/{document.metadata['source']}"
            yield document


def _say_pages(address: str) -> Callable[[int, int], None]:
    """A progress function that prints the number of pages once: the bar of the indexing does not know it."""
    _, err = consoles()

    def say(done: int, total: int) -> None:
        if done == 1 < total:
            err.print(f"{address}: {total} pages")

    return say
