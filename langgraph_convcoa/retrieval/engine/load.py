"""Loading documents into an engine: they are split, encoded and stored batch by batch, so that a stopped run can resume.

With Ray, this process reads the documents, and workers on any machine load the batches.
"""

from __future__ import annotations

import logging
import os
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from langgraph_convcoa.errors import ConvCoAError, InputError, RetrievalError, first_line, redact, require
from langgraph_convcoa.retrieval.changes import Committed, batches_of, select
from langgraph_convcoa.retrieval.editing import checked_documents
from langgraph_convcoa.retrieval.encoders.base import Encoder, cores
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.engine.base import Engine, StoredPassage, checked_document, stored_passages
from langgraph_convcoa.retrieval.progress import Progress, track

# Most encoded batches that wait to be written.
_AHEAD = 4
_LOADED = (
    "All documents are loaded and stay so. Only the indexes that make searches fast are not finished: load the same again to "
    "finish them, and nothing is encoded or written a second time."
)
_LOGGER = logging.getLogger(__name__)


def load_into(
    engine: Engine,
    documents: Iterable[Document],
    encoder: Encoder,
    *,
    cache: PatternCache | None = None,
    progress: Progress = False,
    settle: bool = True,
) -> Committed:
    """Load any number of documents into an engine by its fastest path.

    A document with the same id and content as a stored one is skipped without being encoded. With other content, it replaces
    the stored one. So a killed run can be repeated, and nothing is lost or doubled. Several processes may load together.

    Args:
        engine: From `open_engine`; the collection is made if it is missing.
        documents: Read as they are needed. A document without an id gets an id made of its title and text.
        encoder: The encoder of the collection.
        cache: Keeps encoded patterns between runs.
        progress: True for a bar, or a callback; both count documents.
        settle: Build the indexes for searches at the end. False if several processes load inside `loading_elsewhere`.

    Returns:
        The numbers of documents added, updated and unchanged, and of passages written; without the ids.

    Raises:
        InputError: A document cannot be stored. Nothing is written if the documents are a list; else earlier batches stay.
        RetrievalError: The collection has another encoder, a document cannot be encoded, or the engine refuses.

    Example:
        >>> engine = open_engine("postgresql://db.example.org/docs?collection=papers")  # doctest: +SKIP
        >>> load_into(engine, [Document("Ada wrote it.", id="a")], encoder).added  # doctest: +SKIP
        1
    """
    engine.open(encoder.dimension, encoder.name, create=True)
    with loading_elsewhere(engine) if settle else nullcontext():
        return Committed.total(ingest(engine, documents, encoder, replace=True, cache=cache, progress=progress))


@contextmanager
def loading_elsewhere(engine: Engine) -> Iterator[None]:
    """A block in which processes load with `settle=False`; the indexes for searches are built at its end."""
    with engine.loading():
        yield
    try:
        engine.settle()
    except RetrievalError as error:
        raise RetrievalError(f"{error} {_LOADED}") from error
    except KeyboardInterrupt:
        _LOGGER.warning("%s: %s", engine.name, _LOADED)
        raise


def ingest(
    engine: Engine,
    documents: Iterable[Document],
    encoder: Encoder,
    *,
    replace: bool = False,
    cache: PatternCache | None = None,
    progress: Progress = False,
) -> Iterator[Committed]:
    """Add documents in batches of up to 256; each yielded result has been committed.

    One batch is encoded while earlier batches are written; at most four batches wait. If reading fails, the encoded batches
    are still written.
    """
    storable: Iterable[Document] = map(checked_document, checked_documents(documents))
    if isinstance(documents, Sequence):
        storable = list(storable)
    engine.open(encoder.dimension, encoder.name, create=True)
    total = len(documents) if isinstance(documents, Sized) else None
    waiting: deque[tuple[Future[None], Committed]] = deque()
    failed = threading.Event()

    def put(passages: Sequence[StoredPassage]) -> None:
        if failed.is_set():
            return
        try:
            engine.put(passages)
        except BaseException:
            failed.set()
            raise

    with track(progress, total, "Loading") as advance, ThreadPoolExecutor(1, "convcoa-load") as pool:

        def written(most: int) -> Iterator[Committed]:
            """Wait until at most `most` batches are unwritten."""
            while len(waiting) > most:
                writing, done = waiting.popleft()
                writing.result()
                advance(done.given)
                yield done

        for batch in batches_of(storable):
            # The engine compares the ids of passages when it writes.
            chosen = select(batch, encoder, replace=replace, digests=engine.digests, owners=lambda _ids: {})
            waiting.append((pool.submit(put, stored_passages(chosen.entries, encoder, cache)), chosen.done))
            yield from written(_AHEAD)
        yield from written(0)


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
        progress: True for a bar, or a callback; both count documents.

    Raises:
        InputError: Ray is missing or cannot be reached, has too few processors, or a document cannot be stored.
        RetrievalError: As for `load_into`, or a worker died repeatedly.
    """
    require("loading with Ray", "ray", "ray")
    engine = open_engine()
    engine.open(encoder.dimension, encoder.name, create=True)
    loader = Opener(open_engine, engine.variables), encoder, cache
    loaded = Committed()
    # Ray warns about its own internals, and changes the warning filters.
    with warnings.catch_warnings(record=True), loading_elsewhere(engine), track(progress, None, "Loading") as advance:
        warnings.simplefilter("ignore")
        for done in _by_workers(documents, loader, address, workers):
            loaded = Committed.total([loaded, done])
            advance(done.given)
    return loaded


class Opener:
    """Opens the engine in another process, with this process's variables. Ray logs the repr, which has no address."""

    def __init__(self, open_engine: Callable[[], Engine], variables: Iterable[str]) -> None:
        self._open = open_engine
        self._variables = {name: os.environ[name] for name in variables if name in os.environ}

    def __repr__(self) -> str:
        return "the engine"

    def __call__(self) -> Engine:
        for name, value in self._variables.items():
            os.environ.setdefault(name, value)
        return self._open()


class _Worker:
    """A worker of Ray, which loads one batch of documents after another."""

    def __init__(self, open_engine: Opener, encoder: Encoder, cache: Path | None) -> None:
        self._open, self._encoder, self._cache = open_engine, encoder, cache

    # The engine is opened after construction, since Ray reports a constructor's errors without their type.
    @cached_property
    def _opened(self) -> tuple[Engine, PatternCache | None]:
        return self._open(), None if self._cache is None else PatternCache(self._cache)

    def load(self, documents: list[Document]) -> Committed:
        engine, cache = self._opened
        return load_into(engine, documents, self._encoder, cache=cache, settle=False)


def _by_workers(
    documents: Iterable[Document], loader: tuple[Any, ...], address: str, workers: int | None
) -> Iterator[Committed]:
    """Yield the result of each batch. Errors of this library are raised unchanged, others as RetrievalError."""
    import ray
    from ray.util import ActorPool

    mine = not ray.is_initialized()
    if mine:
        local = {"num_cpus": workers or cores(), "include_dashboard": False} if address == "local" else {}
        try:
            ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False, **local)
        except Exception as error:  # noqa: BLE001 - Ray raises many types
            reason = first_line(error)
            raise InputError(f"Ray cannot be reached at {address!r} ({reason}): give its address, or local") from None
    try:
        there = ray.available_resources()
        gpus, cpus = int(there.get("GPU", 0)), int(there.get("CPU", 0))
        number = workers or min(gpus or cpus, cpus)
        if not 0 < number <= cpus:
            # Otherwise Ray would wait for processors forever.
            needed = f"{workers or 1} workers need one each"
            raise InputError(f"Ray has {cpus} free processors, and {needed}: free some, or give fewer --workers")
        # Limit the tries of a batch that kills every worker.
        options = {"num_cpus": 1, "num_gpus": int(number <= gpus), "max_restarts": -1, "max_task_retries": 2}
        pool = ActorPool([ray.remote(_Worker).options(**options).remote(*loader) for _ in range(number)])
        for batch in batches_of(map(checked_document, documents)):
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
