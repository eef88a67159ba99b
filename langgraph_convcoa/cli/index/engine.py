"""`convcoa index --to`: documents into an engine, by this process or by workers of Ray."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from langgraph_convcoa.cli.console import consoles, print_json, warn
from langgraph_convcoa.cli.documents import is_engine, place_of
from langgraph_convcoa.cli.options import EngineCollection, Tenant, option
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.errors.redaction import redact

if TYPE_CHECKING:
    from langchain_core.documents import Document

    from langgraph_convcoa.retrieval.documents.load import Told

    Read = Callable[[Told], Iterator[Document]]


@dataclass(frozen=True)
class EngineOptions:
    """The options of an index in an engine."""

    to: Annotated[
        str | None,
        option(
            "URL", "An engine to load into instead, such as postgresql://user@host/database?collection=NAME; or CONVCOA_INDEX."
        ),
    ] = None
    collection: EngineCollection = None
    tenant: Tenant = None
    ray: Annotated[
        str | None,
        option("ADDRESS", 'Load into the engine with workers of this machine, "local", or of its Ray cluster (extra `ray`).'),
    ] = None
    workers: Annotated[int | None, option("N", "Of Ray; one a GPU, or one a processor, when left out.", min=1)] = None
    cache: Annotated[Path | None, option("FILE", "Keep what was encoded for an engine in this file too, for another run.")] = (
        None
    )


def index_into_engine(read: Read, address: str, options: EngineOptions, as_json: bool) -> None:
    """Load what `read` gives into an engine, and say what was done."""
    collection, tenant, ray, workers, cache = options.collection, options.tenant, options.ray, options.workers, options.cache
    if not is_engine(address):
        from langgraph_convcoa.retrieval.engine.choose import SCHEMES

        known = " or ".join(SCHEMES)
        raise InputError(f"--to takes the address of an engine, which begins with {known}, not {redact(address)}")
    if workers is not None and ray is None:
        raise InputError("--workers are of Ray: give --ray local, or the address of a cluster")
    from langgraph_convcoa.retrieval.encoders.cache import PatternCache
    from langgraph_convcoa.retrieval.engine.choose import open_engine
    from langgraph_convcoa.retrieval.engine.load import load_into
    from langgraph_convcoa.retrieval.engine.ray_load import check_ray, ray_load
    from langgraph_convcoa.retrieval.memory_corpus import MemoryCorpus
    from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

    if ray is not None:
        check_ray()
    opened = partial(open_engine, address, collection=collection, tenant=tenant)
    # As a retriever's over the engine.
    engine, encoder = opened(), HopfieldRetriever(corpus=MemoryCorpus()).encoder

    def skipped(name: str, reason: str) -> None:
        warn(f"skipped: {name} {reason}")

    # Errors of a path are raised before anything is made and before Ray starts.
    documents = read(skipped)
    documents = chain([next(documents)], documents)
    engine.open(encoder.dimension, encoder.name, create=True)
    if ray is None:
        store = None if cache is None else PatternCache(cache)
        loaded = load_into(engine, documents, encoder, cache=store, progress=True)
    else:
        loaded = ray_load(opened, documents, encoder, address=ray, workers=workers, cache=cache, progress=True)
    place, count = place_of(address, collection, tenant), engine.count()
    engine.close()
    if as_json:
        counts = {"added": loaded.added, "updated": loaded.updated, "unchanged": loaded.unchanged}
        print_json({"index": place, **counts, "written": loaded.passages, "passages": count})
        return
    console, _ = consoles()
    console.out(
        f"{place}: {loaded.added} documents added, {loaded.updated} updated, {loaded.unchanged} unchanged; "
        f"{loaded.passages} passages written, {count} there"
    )
