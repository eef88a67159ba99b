"""Loading into an engine by many processes or machines, with Ray Data: one reads, the others split, encode and write."""

from __future__ import annotations

import json
import logging
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from langgraph_convcoa.errors import ConvCoAError, InputError, RetrievalError
from langgraph_convcoa.errors.redaction import redact
from langgraph_convcoa.retrieval.changes import batches_of
from langgraph_convcoa.retrieval.documents.load import Told
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.encoders.choice import encoder_from_settings, encoder_settings
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from langgraph_convcoa.retrieval.engine.base import Engine, check_document
from langgraph_convcoa.retrieval.engine.load import Loaded, loading_elsewhere, prepare
from langgraph_convcoa.retrieval.progress import Progress, track

LOCAL = "local"
"""The address of a Ray of this machine, started for the run and stopped after it."""

_ATTEMPTS = 3
_PAUSE = 2.0
_READER_CPUS = 1


def ray_load(
    open_engine: Callable[[], Engine],
    read: Callable[[Told], Iterable[Document]],
    encoder: Encoder,
    *,
    address: str = LOCAL,
    workers: int | None = None,
    cache: Path | None = None,
    progress: Progress = False,
    told: Told | None = None,
) -> Loaded:
    """`load_into` with Ray Data: a process of this machine reads, and any number of workers encode and write.

    A worker has a GPU where the cluster has any, else a processor. Reading waits for the workers. A worker that dies is
    started again, and only its batch is encoded again; a batch that fails three times ends the run, which can be run again.

    Args:
        open_engine: Opens the engine in each process, such as a `functools.partial` of `choose.open_engine`. What the engine
            reads of this process' environment, such as PGPASSWORD, is handed to those that have none of their own.
        read: Gives the documents, in another process; it is called with a function to which it tells what cannot be read.
        encoder: The one of the collection; workers rebuild it from its settings, or get a copy.
        address: "local", or that of a Ray cluster that this machine is one of, such as "auto" or "head:6379".
        workers: How many; when None one a GPU, or one a processor but one, which reads.
        cache: The file of a `PatternCache`, where all workers are on this machine.
        progress: A bar, a callback or nothing, in documents.
        told: What is told of what cannot be read; a warning in the log when None.

    Raises:
        InputError: Ray is not installed or not there, has no processors to give, or a document cannot be stored.
        RetrievalError: As `load_into`, or a worker died again and again.
    """
    check_ray()
    engine = open_engine()
    # Before the seconds that Ray takes.
    engine.open(encoder.dimension, encoder.name, create=True)
    tell = told or (lambda name, reason: logging.getLogger(__name__).warning("skipped: %s %s", name, reason))
    loaded = Loaded()
    with (
        _no_warnings(),
        _ray(address, workers) as (number, resources),
        loading_elsewhere(engine),
        track(progress, None, "Loading") as advance,
    ):
        job: dict[str, Any] = {
            "open_engine": _Opener(open_engine, engine.variables),
            "settings": encoder_settings(encoder),
            "encoder": None if encoder_settings(encoder) else encoder,
            "cache": cache,
        }
        for row in _results(read, job, number, resources):
            loaded = loaded.plus(Loaded(*(int(row[name]) for name in Loaded._fields)))
            for name, reason in json.loads(row["told"]):
                tell(name, reason)
            advance(int(row["given"]))
    return loaded


def check_ray() -> None:
    """Raise InputError where Ray Data is not installed; it is not imported."""
    if any(find_spec(name) is None for name in ("ray", "pyarrow", "pandas")):
        raise InputError('loading with Ray needs the extra ray: pip install "langgraph-convcoa[ray]"')


class BatchLoader:
    """A worker: loads batch after batch of documents into an engine, for `Dataset.map_batches` of Ray Data.

    Args:
        open_engine: Opens the engine.
        settings: Of the encoder, for `encoder_from_settings`; it is computed on the worker's GPU where that has one.
        encoder: In place of settings.
        cache: The file of a `PatternCache`.
    """

    def __init__(
        self,
        open_engine: Callable[[], Engine],
        settings: Mapping[str, str] | None,
        encoder: Encoder | None = None,
        cache: Path | None = None,
    ) -> None:
        self._engine = open_engine()
        found = encoder or encoder_from_settings(settings or {})
        if isinstance(found, SentenceTransformerEncoder) and _has_gpu():
            found.device = "cuda"
        self._encoder = found
        self._cache = None if cache is None else PatternCache(cache)
        self._engine.open(found.dimension, found.name, create=True)

    def __call__(self, rows: dict[str, Any]) -> dict[str, list[Any]]:
        """Load a batch: a row of `documents` and `told` as JSON; gives a row of what was done."""
        found: dict[str, list[Any]] = {name: [] for name in (*Loaded._fields, "given", "told")}
        for text, told in zip(rows["documents"], rows["told"], strict=True):
            documents = [Document(content, id=name, metadata=data) for name, content, data in json.loads(text)]
            for name, value in self._loaded(documents)._asdict().items():
                found[name].append(value)
            found["given"].append(len(documents))
            found["told"].append(told)
        return found

    def _loaded(self, documents: list[Document]) -> Loaded:
        if not documents:
            return Loaded()
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                batch = prepare(self._engine, documents, self._encoder, self._cache)
                if batch.passages:
                    self._engine.put(batch.passages)
                return batch.done
            except RetrievalError:
                if attempt == _ATTEMPTS:
                    raise
                # A server that starts again, or a lost connection: what was written is passed over the next time.
                time.sleep(_PAUSE * attempt)
        raise AssertionError


class _Opener:
    """Opens the engine in another process, with the variables of this one; Ray shows and writes down its name alone."""

    def __init__(self, open_engine: Callable[[], Engine], variables: Iterable[str]) -> None:
        self._open = open_engine
        self._variables = {name: os.environ[name] for name in variables if name in os.environ}

    def __repr__(self) -> str:
        return "the engine"

    def __call__(self) -> Engine:
        for name, value in self._variables.items():
            os.environ.setdefault(name, value)
        return self._open()


def _has_gpu() -> bool:
    import ray

    return bool(ray.get_gpu_ids())


@contextmanager
def _no_warnings() -> Iterator[None]:
    """Ray warns of what it does by itself, and sets filters of its own."""
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _ray(address: str, workers: int | None) -> Iterator[tuple[int, dict[str, float]]]:
    """Ray for the time of a run: how many workers there are to be, and what each of them takes."""
    import ray

    mine = not ray.is_initialized()
    if mine:
        quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
        try:
            if address == LOCAL:
                wanted = workers or _cores()
                ray.init(address=LOCAL, num_cpus=wanted + _READER_CPUS, include_dashboard=False, **quiet)
            else:
                ray.init(address=address, **quiet)
        except Exception as error:  # noqa: BLE001 - whatever Ray raises, of many kinds
            reason = redact(str(error).strip().partition("\n")[0][:300])
            raise InputError(f"Ray cannot be reached at {address!r} ({reason}): give its address, or local") from None
    try:
        there = ray.available_resources()
        gpus, cpus = int(there.get("GPU", 0)), int(there.get("CPU", 0)) - _READER_CPUS
        most = min(gpus, cpus) if gpus else cpus
        number = workers or most
        if not 0 < number <= max(cpus, 0):
            # Ray would wait for processors without an end.
            raise InputError(
                f"Ray has {cpus + _READER_CPUS} free processors, and {(workers or 1)} workers and what reads need "
                f"{(workers or 1) + _READER_CPUS}: stop what holds them, or give fewer --workers"
            )
        yield number, {"num_cpus": 1, "num_gpus": 1 if 0 < number <= gpus else 0}
    finally:
        if mine:
            ray.shutdown()


def _results(
    read: Callable[[Told], Iterable[Document]], job: Mapping[str, Any], number: int, resources: Mapping[str, float]
) -> Iterator[dict[str, Any]]:
    """The rows of all workers, as they come. What they raise is raised here; another error is a RetrievalError."""
    import ray.data
    from ray.exceptions import RayError

    context = ray.data.DataContext.get_current()
    kept = {name: getattr(context, name) for name in _CONTEXT}
    for name, value in _CONTEXT.items():
        setattr(context, name, value)
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    try:
        dataset = ray.data.read_datasource(_source(read), override_num_blocks=1, num_cpus=_READER_CPUS).map_batches(
            BatchLoader,
            fn_constructor_kwargs=dict(job),
            batch_size=1,
            batch_format="numpy",
            # A worker that dies is started again, but a batch that kills each of them is not tried for ever.
            ray_remote_args_fn=lambda: {"max_restarts": -1, "max_task_retries": _ATTEMPTS - 1},
            compute=ray.data.ActorPoolStrategy(size=number, max_tasks_in_flight_per_actor=2),
            **resources,
        )
        yield from dataset.iter_rows()
    except (RayError, RuntimeError) as error:
        known = _cause(error)
        if known is not None:
            raise known from None
        reason = redact((str(error).strip().splitlines() or [""])[-1][:300])
        raise RetrievalError(
            f"Ray ended the run ({type(error).__name__}: {reason}); run it again to go on where it was"
        ) from error
    finally:
        for name, value in kept.items():
            setattr(context, name, value)


# A row is a batch of documents, and a block one row, so that a worker that dies loses one batch.
_CONTEXT: dict[str, Any] = {
    "enable_progress_bars": False,
    "print_on_execution_start": False,
    "target_max_block_size": 1,
    "target_min_block_size": 1,
}


def _source(read: Callable[[Told], Iterable[Document]]) -> Any:
    """What Ray Data reads from: batches of documents, read one after another by one process of this machine."""
    import pyarrow as pa
    from ray.data.block import BlockMetadata
    from ray.data.datasource import Datasource, ReadTask

    class Documents(Datasource):  # type: ignore[misc]
        # On the machine of the command, where the files are.
        supports_distributed_reads = False

        def estimate_inmemory_data_size(self) -> int | None:
            return None

        def get_read_tasks(self, *_: Any, **__: Any) -> list[Any]:
            unknown = BlockMetadata(num_rows=None, size_bytes=None, input_files=None, exec_stats=None)
            return [ReadTask(lambda: map(pa.Table.from_pydict, _rows(read)), unknown)]

    return Documents()


def _rows(read: Callable[[Told], Iterable[Document]]) -> Iterator[dict[str, list[str]]]:
    told: list[tuple[str, str]] = []

    def row(batch: list[Document]) -> dict[str, list[str]]:
        for document in batch:
            check_document(document)
        found = json.dumps([[one.id, one.page_content, one.metadata] for one in batch])
        said, told[:] = json.dumps(told), []
        return {"documents": [found], "told": [said]}

    yield from map(row, batches_of(read(lambda name, reason: told.append((name, reason)))))
    if told:
        yield row([])


def _cause(error: BaseException) -> ConvCoAError | None:
    """The library's own error that Ray raised another one for."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        if isinstance(found, ConvCoAError) and not hasattr(found, "cause"):
            # Ray adds lines of its own.
            return type(found)(str(found).partition("\n")[0])
        found = getattr(found, "cause", None) or found.__cause__
    return None


def _cores() -> int:
    from langgraph_convcoa.retrieval.threads import cores

    return cores()
