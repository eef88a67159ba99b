"""Loading into an engine with Ray: this process reads the documents, and workers on any machine load the batches."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from langgraph_convcoa.errors import ConvCoAError, InputError, RetrievalError
from langgraph_convcoa.errors.redaction import redact
from langgraph_convcoa.retrieval.changes import Committed, batches_of
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.engine.base import Engine, check_document
from langgraph_convcoa.retrieval.engine.load import load_into, loading_elsewhere
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.retrieval.threads import cores


def ray_load(
    open_engine: Callable[[], Engine],
    documents: Iterable[Document],
    encoder: Encoder,
    *,
    address: str = "local",
    workers: int | None = None,
    cache: Path | None = None,
    progress: Progress = False,
) -> Committed:
    """`load_into` with workers of Ray. A worker has a processor, and a GPU if the cluster has enough GPUs.

    A worker that dies is started again and only its batch is encoded again. A batch that fails ends the run, which can be
    run again. The opener, the encoder and the batches are pickled.

    Args:
        open_engine: Opens the engine in each process. The environment variables of its driver are sent along.
        documents: Read by this process as they are needed.
        encoder: The encoder of the collection.
        address: "local" for a Ray of this machine, or a cluster that this machine belongs to: "auto", "head:6379".
        workers: Number of workers; None for one on each GPU, or on each processor if there is no GPU.
        cache: The file of a `PatternCache`, if all workers are on this machine.
        progress: True for a bar, or a callback; they count documents.

    Raises:
        InputError: Ray is missing or cannot be reached, has too few processors, or a document cannot be stored.
        RetrievalError: As for `load_into`, or a worker died repeatedly.
    """
    check_ray()
    engine = open_engine()
    engine.open(encoder.dimension, encoder.name, create=True)
    loader = Opener(open_engine, engine.variables), encoder, cache
    loaded = Committed()
    # Ray warns about its own internals, and changes the warning filters.
    with warnings.catch_warnings(record=True), loading_elsewhere(engine), track(progress, None, "Loading") as advance:
        warnings.simplefilter("ignore")
        for done in _results(documents, loader, address, workers):
            loaded = Committed.total([loaded, done])
            advance(done.given)
    return loaded


def check_ray() -> None:
    """Raise InputError if Ray is not installed; it is not imported."""
    if find_spec("ray") is None:
        raise InputError('loading with Ray needs the extra ray: pip install "langgraph-convcoa[ray]"')


class BatchLoader:
    """A worker, which loads one batch of documents after another."""

    def __init__(self, open_engine: Callable[[], Engine], encoder: Encoder, cache: Path | None) -> None:
        self._open, self._encoder, self._cache = open_engine, encoder, cache

    # Not in the constructor, whose errors Ray reports without their type.
    @cached_property
    def _opened(self) -> tuple[Engine, PatternCache | None]:
        return self._open(), None if self._cache is None else PatternCache(self._cache)

    def load(self, documents: list[Document]) -> Committed:
        engine, cache = self._opened
        return load_into(engine, documents, self._encoder, cache=cache, settle=False)


class Opener:
    """Opens the engine in another process, with the variables of this process; Ray shows and logs only the repr."""

    def __init__(self, open_engine: Callable[[], Engine], variables: Iterable[str]) -> None:
        self._open = open_engine
        self._variables = {name: os.environ[name] for name in variables if name in os.environ}

    def __repr__(self) -> str:
        return "the engine"

    def __call__(self) -> Engine:
        os.environ.update({name: value for name, value in self._variables.items() if name not in os.environ})
        return self._open()


def _results(documents: Iterable[Document], loader: tuple[Any, ...], address: str, workers: int | None) -> Iterator[Committed]:
    """The result of each batch. Errors of this library are raised unchanged, others as RetrievalError."""
    import ray
    from ray.util import ActorPool

    mine = not ray.is_initialized()
    if mine:
        local = {"num_cpus": workers or cores(), "include_dashboard": False} if address == "local" else {}
        try:
            ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False, **local)
        except Exception as error:  # noqa: BLE001 - Ray raises many types
            reason = redact(str(error).strip().partition("\n")[0][:300])
            raise InputError(f"Ray cannot be reached at {address!r} ({reason}): give its address, or local") from None
    try:
        there = ray.available_resources()
        gpus, cpus = int(there.get("GPU", 0)), int(there.get("CPU", 0))
        number = workers or min(gpus or cpus, cpus)
        if not 0 < number <= cpus:
            # Ray would wait for processors forever.
            needed = f"{workers or 1} workers need one each"
            raise InputError(f"Ray has {cpus} free processors, and {needed}: free some, or give fewer --workers")
        # A batch that kills each worker is not tried forever.
        options = {"num_cpus": 1, "num_gpus": int(number <= gpus), "max_restarts": -1, "max_task_retries": 2}
        pool = ActorPool([ray.remote(BatchLoader).options(**options).remote(*loader) for _ in range(number)])
        for batch in batches_of(documents):
            for document in batch:
                check_document(document)
            # The next batch is read while all workers are busy.
            if not pool.has_free():
                yield pool.get_next_unordered()
            pool.submit(lambda worker, batch: worker.load.remote(batch), batch)
        while pool.has_next():
            yield pool.get_next_unordered()
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, ConvCoAError):
            raise cause from None
        reason = redact((str(error).strip().splitlines() or [""])[-1][:300])
        raise RetrievalError(f"Ray ended the run ({type(error).__name__}: {reason}); run it again to resume it") from error
    finally:
        if mine:
            ray.shutdown()
