"""Loading into an engine by many processes or machines, with Ray Data: one reads, the others load batches."""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib.util import find_spec
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

LOCAL = "local"
"""The address of a Ray of this machine, started for the run and stopped after it."""

Read = Callable[[Told], Iterable[Document]]
_LOGGER = logging.getLogger(__name__)


def ray_load(
    open_engine: Callable[[], Engine],
    read: Read,
    encoder: Encoder,
    *,
    address: str = LOCAL,
    workers: int | None = None,
    cache: Path | None = None,
    progress: Progress = False,
    told: Told = lambda name, reason: _LOGGER.warning("skipped: %s %s", name, reason),
) -> Committed:
    """`load_into` with Ray Data: a process of this machine reads, and any number of workers encode and write.

    A worker has a GPU where the cluster has any, else a processor. A worker that dies is started again, and only its batch is
    encoded again; a batch that fails ends the run, which can be run again.

    Args:
        open_engine: Opens the engine in each process, such as a `functools.partial` of `choose.open_engine`. The variables
            that its driver reads, such as PGPASSWORD, are handed to processes that have none of their own.
        read: Gives the documents, in another process; it is called with a function to which it tells what cannot be read.
        encoder: The one of the collection, pickled for the workers.
        address: "local", or that of a Ray cluster that this machine is one of, such as "auto" or "head:6379".
        workers: How many; when None one a GPU, or one a processor but one, which reads.
        cache: The file of a `PatternCache`, where all workers are on this machine.
        progress: A bar, a callback or nothing, in documents.
        told: Called with what cannot be read, and why.

    Raises:
        InputError: Ray is not installed or not there, has no processors to give, or a document cannot be stored.
        RetrievalError: As `load_into`, or a worker died again and again.
    """
    check_ray()
    engine = open_engine()
    # Before the seconds that Ray takes.
    engine.open(encoder.dimension, encoder.name, create=True)
    job = {"open_engine": Opener(open_engine, engine.variables), "encoder": encoder, "cache": cache}
    loaded = Committed()
    # Ray warns of what it does by itself, and sets filters of its own.
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
    """Raise InputError where Ray Data is not installed; it is not imported."""
    if any(find_spec(name) is None for name in ("ray", "pyarrow", "pandas")):
        raise InputError('loading with Ray needs the extra ray: pip install "langgraph-convcoa[ray]"')


class BatchLoader:
    """A worker: loads batch after batch of documents into an engine, for `Dataset.map_batches`."""

    def __init__(self, open_engine: Callable[[], Engine], encoder: Encoder, cache: Path | None) -> None:
        self._engine, self._encoder = open_engine(), encoder
        self._cache = None if cache is None else PatternCache(cache)

    def __call__(self, rows: dict[str, Any]) -> dict[str, list[str]]:
        """Load a row: `documents` and `told` as JSON; gives what was `done`."""
        documents = [Document(text, id=name, metadata=data) for name, text, data in json.loads(rows["documents"][0])]
        done = load_into(self._engine, documents, self._encoder, cache=self._cache, settle=False)
        return {"done": [json.dumps(done[1:])], "told": [rows["told"][0]]}


class Opener:
    """Opens the engine in another process, with the variables of this one; Ray shows and writes down its name alone."""

    def __init__(self, open_engine: Callable[[], Engine], variables: Iterable[str]) -> None:
        self._open = open_engine
        self._variables = {name: os.environ[name] for name in variables if name in os.environ}

    def __repr__(self) -> str:
        return "the engine"

    def __call__(self) -> Engine:
        os.environ.update({name: value for name, value in self._variables.items() if name not in os.environ})
        return self._open()


def _results(read: Read, job: dict[str, Any], address: str, workers: int | None) -> Iterator[dict[str, str]]:
    """The rows of all workers, as they come. What they raise is raised here; another error is a RetrievalError."""
    import ray.data
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    mine, local = not ray.is_initialized(), {"num_cpus": (workers or cores()) + 1, "include_dashboard": False}
    try:
        if mine:
            options = local if address == LOCAL else {}
            ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False, **options)
    except Exception as error:  # noqa: BLE001 - whatever Ray raises, of many kinds
        reason = redact(str(error).strip().partition("\n")[0][:300])
        raise InputError(f"Ray cannot be reached at {address!r} ({reason}): give its address, or local") from None
    try:
        there = ray.available_resources()
        # One processor reads.
        gpus, cpus = int(there.get("GPU", 0)), int(there.get("CPU", 0)) - 1
        number = workers or min(gpus or cpus, cpus)
        if not 0 < number <= cpus:
            # Ray would wait for processors without an end.
            needed = f"{workers or 1} workers and the reader need {(workers or 1) + 1}"
            raise InputError(f"Ray has {cpus + 1} free processors, and {needed}: free some, or give fewer --workers")
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = context.print_on_execution_start = False
        # A block is one row, a batch of documents, so that a worker that dies loses one batch.
        context.target_max_block_size = context.target_min_block_size = 1
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)
        # On the machine of the command, where the files are.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        batches = ray.data.range(1, override_num_blocks=1).flat_map(partial(_rows, read), scheduling_strategy=here)
        loaded = batches.map_batches(
            BatchLoader,
            fn_constructor_kwargs=job,
            batch_size=1,
            # A worker that dies is started again, but a batch that kills each of them is not tried for ever.
            ray_remote_args_fn=lambda: {"max_restarts": -1, "max_task_retries": 2},
            compute=ray.data.ActorPoolStrategy(size=number, max_tasks_in_flight_per_actor=2),
            num_gpus=1 if number <= gpus else 0,
        )
        yield from loaded.iter_rows()
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
    told: list[tuple[str, str]] = []
    for batch in batches_of(read(lambda name, reason: told.append((name, reason)))):
        for document in batch:
            check_document(document)
        documents = [[one.id, one.page_content, one.metadata] for one in batch]
        yield {"documents": json.dumps(documents), "told": json.dumps(told)}
        told.clear()
    yield {"documents": "[]", "told": json.dumps(told)}
