"""Loading into an engine with Ray Data: one process reads the documents, and workers on any machine load the batches."""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from langgraph_convcoa.errors import ConvCoAError, InputError, RetrievalError
from langgraph_convcoa.errors.redaction import redact
from langgraph_convcoa.retrieval.changes import Committed, batches_of
from langgraph_convcoa.retrieval.documents.load import Told
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.engine.base import Engine, check_document
from langgraph_convcoa.retrieval.engine.load import load_into, loading_elsewhere
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.retrieval.threads import cores

Read = Callable[[Told], Iterable[Document]]


def ray_load(
    open_engine: Callable[[], Engine],
    read: Read,
    encoder: Encoder,
    *,
    told: Told,
    address: str = "local",
    workers: int | None = None,
    cache: Path | None = None,
    progress: Progress = False,
) -> Committed:
    """`load_into` with Ray Data. A worker has a GPU if the cluster has one, else a processor.

    A worker that dies is started again and only its batch is encoded again. A batch that fails ends the run, which can be
    run again. The arguments are pickled: `open_engine` and `encoder` for the workers, `read` for the process that reads.

    Args:
        open_engine: Opens the engine in each process. The environment variables of its driver are sent along.
        read: Gives the documents; it is called with a function that takes the name of what cannot be read and the reason.
        encoder: The encoder of the collection.
        told: Called in this process with what cannot be read, and why.
        address: "local" for a Ray of this machine, or a cluster that this machine belongs to: "auto", "head:6379".
        workers: Their number; when None one for each GPU, or for each processor but one, which reads.
        cache: The file of a `PatternCache`, if all workers are on this machine.
        progress: A bar, a callback or nothing, in documents.

    Raises:
        InputError: Ray is missing or cannot be reached, has too few processors, or a document cannot be stored.
        RetrievalError: As `load_into`, or a worker died repeatedly.
    """
    check_ray()
    engine = open_engine()
    engine.open(encoder.dimension, encoder.name, create=True)
    job = {"open_engine": Opener(open_engine, engine.variables), "encoder": encoder, "cache": cache}
    loaded = Committed()
    # Ray warns of its own doings and sets filters of its own.
    with warnings.catch_warnings(record=True), loading_elsewhere(engine), track(progress, None, "Loading") as advance:
        warnings.simplefilter("ignore")
        for row in _results(read, job, address, workers):
            done = Committed((), *json.loads(row["done"]))
            loaded = Committed.total([loaded, done])
            for name, reason in json.loads(row["told"]):
                told(name, reason)
            advance(done.given)
    return loaded


def check_ray() -> None:
    """Raise InputError if Ray Data is not installed; it is not imported."""
    if any(find_spec(name) is None for name in ("ray", "pyarrow", "pandas")):
        raise InputError('loading with Ray needs the extra ray: pip install "langgraph-convcoa[ray]"')


class BatchLoader:
    """A worker of `Dataset.map_batches`: loads one batch of documents after another."""

    def __init__(self, open_engine: Callable[[], Engine], encoder: Encoder, cache: Path | None) -> None:
        kept = None if cache is None else PatternCache(cache)
        self._load = partial(load_into, open_engine(), encoder=encoder, cache=kept, settle=False)

    def __call__(self, rows: dict[str, Any]) -> dict[str, list[str]]:
        documents = [Document(text, id=name, metadata=data) for name, text, data in json.loads(rows["documents"][0])]
        return {"done": [json.dumps(self._load(documents=documents)[1:])], "told": [rows["told"][0]]}


class Opener:
    """Opens the engine in another process, with this one's variables; Ray shows and logs only its repr."""

    def __init__(self, open_engine: Callable[[], Engine], variables: Iterable[str]) -> None:
        self._open = open_engine
        self._variables = {name: os.environ[name] for name in variables if name in os.environ}

    def __repr__(self) -> str:
        return "the engine"

    def __call__(self) -> Engine:
        os.environ.update({name: value for name, value in self._variables.items() if name not in os.environ})
        return self._open()


def _results(read: Read, job: dict[str, Any], address: str, workers: int | None) -> Iterator[dict[str, str]]:
    """The workers' rows as they come. Errors of this library are raised as they are, others as RetrievalError."""
    import ray.data
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    mine = not ray.is_initialized()
    if mine:
        local = {"num_cpus": (workers or cores()) + 1, "include_dashboard": False} if address == "local" else {}
        try:
            ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False, **local)
        except Exception as error:  # noqa: BLE001 - Ray raises many types
            reason = redact(str(error).strip().partition("\n")[0][:300])
            raise InputError(f"Ray cannot be reached at {address!r} ({reason}): give its address, or local") from None
    try:
        there = ray.available_resources()
        # One processor reads.
        gpus, cpus = int(there.get("GPU", 0)), int(there.get("CPU", 0)) - 1
        number = workers or min(gpus or cpus, cpus)
        if not 0 < number <= cpus:
            # Ray would wait for processors forever.
            needed = f"{workers or 1} workers and the reader need {(workers or 1) + 1}"
            raise InputError(f"Ray has {cpus + 1} free processors, and {needed}: free some, or give fewer --workers")
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = context.print_on_execution_start = False
        # A block is one row, a batch of documents, so that a worker that dies loses one batch.
        context.target_max_block_size = context.target_min_block_size = 1
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)
        # The files are on the machine of the command.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        batches = ray.data.range(1, override_num_blocks=1).flat_map(partial(_rows, read), scheduling_strategy=here)
        yield from batches.map_batches(
            BatchLoader,
            fn_constructor_kwargs=job,
            batch_size=1,
            # A batch that kills each worker is not tried forever.
            ray_remote_args_fn=lambda: {"max_restarts": -1, "max_task_retries": 2},
            compute=ray.data.ActorPoolStrategy(size=number, max_tasks_in_flight_per_actor=2),
            num_gpus=1 if number <= gpus else 0,
        ).iter_rows()
    except (ray.exceptions.RayError, RuntimeError) as error:
        cause: Any = error
        while cause is not None and (not isinstance(cause, ConvCoAError) or hasattr(cause, "cause")):
            cause = getattr(cause, "cause", None) or cause.__cause__
        if cause is not None:
            # Ray adds lines of its own.
            raise type(cause)(str(cause).partition("\n")[0]) from None
        reason = redact((str(error).strip().splitlines() or [""])[-1][:300])
        raise RetrievalError(f"Ray ended the run ({type(error).__name__}: {reason}); run it again to resume it") from error
    finally:
        if mine:
            ray.shutdown()


def _rows(read: Read, _row: object = None) -> Iterator[dict[str, str]]:
    """Batches of documents as JSON, with what could not be read; the last one is empty."""
    told: list[tuple[str, str]] = []
    for batch in chain(batches_of(read(lambda name, reason: told.append((name, reason)))), [[]]):
        for document in batch:
            check_document(document)
        documents = [[one.id, one.page_content, one.metadata] for one in batch]
        yield {"documents": json.dumps(documents), "told": json.dumps(told)}
        told.clear()
