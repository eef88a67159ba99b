"""`convcoa index` and `search`: put documents into an index on disk or an engine, and find passages."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from langgraph_convcoa.cli.console import citation_line, consoles, print_json, warn
from langgraph_convcoa.cli.documents import default_encoder, documents_path, is_engine, is_web, place_of, web_documents
from langgraph_convcoa.cli.options import AsJson, Graph, MaxMb, NoCache, argument, grouped, named_index, option, proper_text
from langgraph_convcoa.errors import InputError, one_of, redact, require
from langgraph_convcoa.text.clean import one_line

if TYPE_CHECKING:
    from langchain_core.documents import Document

    from langgraph_convcoa.retrieval.documents.load import Told
    from langgraph_convcoa.retrieval.encoders.base import Encoder
    from langgraph_convcoa.retrieval.index.index import Index
    from langgraph_convcoa.retrieval.index.watch import WatchedFiles

# A copy of the index's types: importing them would delay --help.
DTYPES: tuple[Literal["float32", "int8"], ...] = ("float32", "int8")


@dataclass(frozen=True)
class FolderOptions:
    """The options of an index in a folder."""

    out: Annotated[Path | None, option("DIR", "Folder of the index.")] = None
    dtype: Annotated[str | None, option("|".join(DTYPES), "float32 (new indexes) or int8, a quarter as big.")] = None
    graph: Annotated[bool | None, option(None, "Keep an evidence graph, as new indexes do.", "--graph/--no-graph")] = None
    prune: Annotated[bool, option(None, "Delete documents of the index that PATH no longer has.", "--prune")] = False
    watch: Annotated[bool, option(None, "Update the index until Ctrl-C when files of PATH change.", "--watch")] = False


@dataclass(frozen=True)
class EngineOptions:
    """The options of an index in an engine."""

    to: Annotated[str | None, option("URL", "An engine instead: postgresql://user@host/database?collection=NAME.")] = None
    ray: Annotated[str | None, option("ADDRESS", 'Load with Ray: "local", or the address of a cluster.')] = None
    workers: Annotated[int | None, option("N", "Workers of Ray. Default: one per GPU or processor.", min=1)] = None
    cache: Annotated[Path | None, option("FILE", "Cache of encoded passages, reused by the next run.")] = None


@grouped(FolderOptions, EngineOptions)
def index(
    folder: FolderOptions,
    engine: EngineOptions,
    paths: Annotated[list[str], argument("PATH...", "Files and folders, addresses of web pages or of a sitemap.")],
    passages: Annotated[bool, option(None, "Each row of PATH (.jsonl, .tsv) is a passage.", "--passages")] = False,
    max_pages: Annotated[int | None, option("N", "The most pages to read of a sitemap; 500 when left out.", min=1)] = None,
    as_json: AsJson = False,
    max_mb: Annotated[float, option("N", "The most text to read of a PATH, in megabytes.", min=0.001)] = 1000.0,
) -> None:
    """Read documents into an index, which later searches open at once.

    To continue after a stop, run it again. Changed documents are replaced; --prune deletes those that PATH no longer has.
    With several PATHs, the id of a document begins with its PATH. Several commands may load into an engine (--to) at a time.

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
    address = named_index(folder.out, engine.to)
    if (folder.out is None) == (address is None):
        raise InputError("an index needs one place: --out DIR for a folder, or --to URL for an engine")
    places = ("an index in a folder (--out DIR)", "an engine (--to URL)")
    (own, other), wrong = (places[::-1], folder) if folder.out is None else (places, engine)
    names = ("dtype", "graph", "prune", "watch") if folder.out is None else ("ray", "workers", "cache")
    if given := [name for name in names if getattr(wrong, name) != getattr(type(wrong), name)]:
        raise InputError(f"--{given[0]} is of {other}, not of {own}")
    read_documents = partial(read_all, tuple(paths), passages, int(max_mb * 1e6), max_pages)
    if address is not None:
        _index_into_engine(read_documents, address, engine, as_json)
        return
    # A wrong path raises here, before the index is made.
    files = _watched(paths, passages, int(max_mb * 1e6)) if folder.watch else None
    _index_into_folder(read_documents(), folder, files, as_json)


def _index_into_folder(
    documents: Iterator[Document], options: FolderOptions, files: WatchedFiles | None, as_json: bool
) -> None:
    assert options.out is not None
    stored = None if options.dtype is None else one_of("--dtype", options.dtype, DTYPES)
    if files is None:
        # An error of the first document is raised before the index is made.
        documents = chain([next(documents)], documents)
    from langgraph_convcoa.retrieval.changes import Committed
    from langgraph_convcoa.retrieval.corpus import read
    from langgraph_convcoa.retrieval.documents.split import document_id
    from langgraph_convcoa.retrieval.graph.settings import graph_settings
    from langgraph_convcoa.retrieval.index.database import is_index
    from langgraph_convcoa.retrieval.index.index import open_or_create, put_graph

    encoder, ids = default_encoder(), set[str]()
    opened = open_or_create(options.out, encoder, stored, {} if is_index(options.out) else {"graph": True})
    if options.graph is not None:
        put_graph(opened, graph_settings(options.graph))

    def noted() -> Iterator[Document]:
        for document in documents:
            ids.add(str(document.id))
            yield document

    if files is not None:
        added, updated, _ = files.sync(opened, encoder, progress=True)
        ids = files.ids
        unchanged = len(ids) - added - updated
    else:
        done = Committed.total(opened.ingest(noted(), encoder, replace=True, progress=True))
        added, updated, unchanged = done.added, done.updated, done.unchanged
    gone = {document_id(passage.document) for passage in read(opened.snapshot())} - ids if options.prune else set()
    counts = {"added": added, "updated": updated, "unchanged": unchanged, "deleted": len(opened.delete(gone))}
    _save(opened)
    patterns, kept, linked = opened.snapshot().pattern_count, opened.head.dtype, bool(opened.head.settings.get("graph"))
    size = sum(file.stat().st_size for file in options.out.iterdir() if file.is_file())
    if as_json:
        about = {"passages": len(opened), "patterns": patterns, "dtype": kept, "graph": linked, "bytes": size}
        print_json({"index": str(options.out), **counts, **about})
    else:
        deleted = f", {counts['deleted']} deleted" if options.prune else ""
        graph = "with an evidence graph, " if linked else ""
        consoles()[0].out(
            f"{options.out}: {added} documents added, {updated} updated, {unchanged} unchanged{deleted}; "
            f"{len(opened)} passages, {patterns} patterns as {kept}, {graph}{size / 1e6:.1f} MB"
        )
    if files is not None:
        _follow(files, opened, encoder, as_json)


def _index_into_engine(
    read: Callable[[Told], Generator[Document]], address: str, options: EngineOptions, as_json: bool
) -> None:
    ray, workers, cache = options.ray, options.workers, options.cache
    if not is_engine(address):
        from langgraph_convcoa.retrieval.engine.choose import SCHEMES

        known = " or ".join(SCHEMES)
        raise InputError(f"--to takes the address of an engine, which begins with {known}, not {redact(address)}")
    if workers is not None and ray is None:
        raise InputError("--workers are of Ray: give --ray local, or the address of a cluster")
    from langgraph_convcoa.retrieval.encoders.cache import PatternCache
    from langgraph_convcoa.retrieval.engine.choose import open_engine
    from langgraph_convcoa.retrieval.engine.load import load_into, ray_load

    if ray is not None:
        require("loading with Ray", "ray", "ray")
    opened = partial(open_engine, address)
    engine, encoder = opened(), default_encoder()

    # Errors of a path are raised before anything is made and before Ray starts.
    documents = read(_warn_skipped)
    found = chain([next(documents)], documents)
    engine.open(encoder.dimension, encoder.name, create=True)
    if ray is None:
        store = None if cache is None else PatternCache(cache)
        loaded = load_into(engine, found, encoder, cache=store, progress=True)
    else:
        loaded = ray_load(opened, found, encoder, address=ray, workers=workers, cache=cache, progress=True)
    place, count = place_of(address), engine.count()
    engine.close()
    if as_json:
        counts = {"added": loaded.added, "updated": loaded.updated, "unchanged": loaded.unchanged}
        print_json({"index": place, **counts, "written": loaded.passages, "passages": count})
        return
    consoles()[0].out(
        f"{place}: {loaded.added} documents added, {loaded.updated} updated, {loaded.unchanged} unchanged; "
        f"{loaded.passages} passages written, {count} there"
    )


def _warn_skipped(name: str, reason: str) -> None:
    warn(f"skipped: {name} {reason}")


def _save(opened: Index) -> None:
    """Build everything now, so that the next process opens the index without work."""
    if 2 * opened.snapshot().pattern_count < opened.head.rows:
        opened.compact()
    opened.save_lexical()
    if opened.head.settings.get("graph"):
        opened.save_graph()


def _watched(paths: Sequence[str], passages: bool, max_bytes: int) -> WatchedFiles:
    """The files of the paths, to watch them. Raises an error for a wrong path, before anything is made."""
    from langgraph_convcoa.retrieval.documents.load import DocumentFiles
    from langgraph_convcoa.retrieval.index.watch import WatchedFiles

    if passages or any(map(is_web, paths)):
        raise InputError("--watch follows files and folders: neither web addresses nor --passages")
    places = [(documents_path(path), "" if len(paths) == 1 else _prefix(path)) for path in paths]
    for place, _ in places:
        if not place.is_dir():
            DocumentFiles(place).names()
    return WatchedFiles(places, max_bytes=max_bytes, told=_warn_skipped)


def _follow(files: WatchedFiles, opened: Index, encoder: Encoder, as_json: bool) -> None:
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


def _prefix(path: str) -> str:
    """The prefix of document ids from one path, for a command with several paths."""
    prefix = (Path(path) if documents_path(path).is_dir() else Path(path).parent).as_posix()
    return "" if prefix == "." else prefix


def read_all(
    paths: Sequence[str], passages: bool, max_bytes: int, max_pages: int | None, told: Told | None = None
) -> Generator[Document]:
    """Yield the documents of all paths. With `passages`, each row of the files is a passage."""
    if passages:
        from langgraph_convcoa.datasets.read import stream_passages

        yield from chain.from_iterable(map(stream_passages, map(Path, paths)))
        return
    from langgraph_convcoa.retrieval.documents.load import iter_documents

    for path in paths:
        if is_web(path):
            yield from web_documents(path, max_bytes=max_bytes, most=max_pages)
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


def search(
    path: Annotated[str, argument("[PATH]", 'Documents, an index, an engine, or "demo".', show_default=False)],
    query: Annotated[str | None, argument("QUERY", "What to look for.", show_default=False)] = None,
    k: Annotated[int, option("N", "How many passages.", "-k", "--k", min=1, max=100)] = 5,
    history: Annotated[Path | None, option("FILE.json", "Earlier turns: pairs of question and answer, or messages.")] = None,
    graph: Graph = None,
    as_json: AsJson = False,
    max_mb: MaxMb = 50.0,
    no_cache: NoCache = False,
) -> None:
    """Find the passages that fit a question best, without answering it.

    Without PATH, the index that CONVCOA_INDEX names is searched.

    [bold]Examples[/bold]
      convcoa search demo "capacity of a Hopfield network" -k 3
      convcoa search papers.index "who wrote it?"
      convcoa search papers.index "when was the author of the first paper born?" --graph
      CONVCOA_INDEX=postgresql://me@db/docs?collection=papers convcoa search "who wrote it?"
      convcoa search papers/ "when was it published?" --history turns.json --json
    """
    from langgraph_convcoa.cli.documents import documents_of, open_retriever, read_history

    if query is None:
        query, named = path, named_index(None, None)
        if named is None:
            raise InputError(f'nothing to search: write convcoa search PATH "{query[:100]}", or set CONVCOA_INDEX')
        path = documents_of(None, named)
    if not query.strip():
        raise InputError("the query is empty: write what to look for")
    turns = read_history(history) if history else []
    retriever = open_retriever(path, k=k, graph=graph, max_mb=max_mb, cache=not no_cache, progress=True)
    found = retriever.invoke(proper_text(query), history=turns)
    if as_json:
        described = ("title", "score", "certified", "quote")
        print_json(
            [
                {"id": document.id, "source": document.metadata.get("source")}
                | {name: document.metadata.get(name, "") for name in described}
                | {name: steps for name, steps in document.metadata.items() if name == "graph_path"}
                | {"text": document.page_content}
                for document in found
            ]
        )
        return
    out, err = consoles()
    if not found:
        err.print("Nothing was found.")
    for number, document in enumerate(found, start=1):
        line = citation_line(number, {"id": document.id, **document.metadata})
        out.out(f"{document.metadata['score']:.3f} {line}")
        steps = document.metadata.get("graph_path")
        if isinstance(steps, list) and len(steps) > 2:
            out.out(f"      {one_line(' -> '.join(map(str, steps)), 400)}")
