"""Runs: turns that continue without a listener. Their events are kept for clients that reconnect."""

from __future__ import annotations

import asyncio
import logging
import traceback
import uuid
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from langgraph_convcoa.errors import ConvCoAError, ThreadBusyError
from langgraph_convcoa.server.wire import event, to_json

PING_SECONDS = 15.0  # Seconds without an event after which a comment is sent, so that proxies keep the connection open.
_MOST_BYTES = 8_000_000  # Maximum number of bytes of the events of one run. The oldest events are dropped.
_KEPT_BYTES, _KEPT_RUNS = 16_000_000, 200  # Bytes and number of ended runs that are kept.
_LOGGER = logging.getLogger(__name__)


def now() -> str:
    """The time as LangGraph's server writes it."""
    return datetime.now(UTC).isoformat()


class Run:
    """A turn that runs or has run, and its events."""

    def __init__(self, thread: str, assistant: str, question: str = "", strategy: str = "reject") -> None:
        self.id = str(uuid.uuid4())
        self.thread, self.assistant, self.question, self.strategy = thread, assistant, question, strategy
        self.created = self.updated = now()
        self.status = "pending"
        self.output: dict[str, Any] = {}
        self.task: asyncio.Task[None] | None = None
        self.begun = asyncio.Event()  # Set when the run has its thread's lock, or the lock was refused.
        self.refused: ThreadBusyError | None = None
        self.ended = False
        self.stopping = False
        self.size = 0
        self._events: deque[tuple[int, bytes]] = deque()
        self._count = 0
        self._news = asyncio.Event()

    def publish(self, name: str, data: Any) -> None:
        self._count += 1
        written = event(name, to_json(data), self._count)
        self._events.append((self._count, written))
        self.size += len(written)
        while self.size > _MOST_BYTES and len(self._events) > 1:
            self.size -= len(self._events.popleft()[1])
        news, self._news = self._news, asyncio.Event()
        news.set()

    def end(self) -> None:
        self.ended = True
        self.publish("end", {"run_id": self.id, "status": self.status})

    async def follow(self, after: int = 0) -> AsyncIterator[bytes]:
        """The events after this number, including later ones, until the run ends."""
        while True:
            news = self._news
            # Copied first: events are added and dropped while one is sent.
            fresh = [*islice(reversed(self._events), max(self._count - after, 0))]
            for number, written in reversed(fresh):
                after = number
                yield written
            if fresh:
                continue
            if self.ended:
                return
            try:
                await asyncio.wait_for(news.wait(), PING_SECONDS)
            except TimeoutError:
                yield b": still running\n\n"

    def as_json(self) -> dict[str, Any]:
        """A run as LangGraph's server describes it."""
        return {
            "run_id": self.id,
            "thread_id": self.thread,
            "assistant_id": self.assistant,
            "created_at": self.created,
            "updated_at": self.updated,
            "status": self.status,
            "metadata": {},
            "multitask_strategy": self.strategy,
        }


class Runs:
    """The runs of a server, one at a time for each thread. Keys are the threads' names in the store."""

    def __init__(self) -> None:
        self.active: dict[str, Run] = {}
        self._ended: OrderedDict[str, tuple[str, Run]] = OrderedDict()
        self.cut_short = False  # True if the end of the server cancelled a run.

    def start(self, key: str, run: Run, work: Callable[[Run], Awaitable[Mapping[str, Any]]]) -> None:
        """Start a run. Its thread must have no other active run."""
        assert key not in self.active, "a thread has one run at a time"
        self.active[key] = run
        run.task = asyncio.create_task(self._run(run, work))
        # A callback, since a task that is cancelled before its first step runs none of its code.
        run.task.add_done_callback(lambda _: self._end(key, run))

    async def _run(self, run: Run, work: Callable[[Run], Awaitable[Mapping[str, Any]]]) -> None:
        run.status = "running"
        run.publish("metadata", {"run_id": run.id, "thread_id": run.thread, "attempt": 1})
        try:
            run.output = dict(await work(run))
            run.status = "interrupted" if "__interrupt__" in run.output else "success"
        except asyncio.CancelledError:
            run.status = "interrupted"
        except Exception as error:  # noqa: BLE001 - sent to the listeners
            run.status = "error"
            run.publish("error", error_json(error))

    def _end(self, key: str, run: Run) -> None:
        if run.status in ("pending", "running"):
            run.status = "interrupted"
        run.updated = now()
        if self.active.get(key) is run:
            del self.active[key]
        if run.refused is None:
            self._ended[run.id] = (key, run)
            held = sum(one.size for _, one in self._ended.values())
            while len(self._ended) > 1 and (held > _KEPT_BYTES or len(self._ended) > _KEPT_RUNS):
                held -= self._ended.popitem(last=False)[1][1].size
        run.end()
        run.begun.set()

    def of(self, key: str) -> list[Run]:
        """The known runs of a thread, newest first."""
        found = [run for own, run in self._ended.values() if own == key]
        return [*([self.active[key]] if key in self.active else []), *reversed(found)]

    def cancel(self, run: Run) -> None:
        """Cancel a run, once: a second cancellation would interrupt its clean-up. The turn can be resumed."""
        if run.task is not None and not run.stopping:
            run.stopping = True
            run.task.cancel()

    async def stop(self, key: str) -> None:
        """Cancel a thread's run and wait for its end."""
        if (run := self.active.get(key)) is not None:
            await self._stopped([run])

    async def close(self) -> None:
        if runs := list(self.active.values()):
            self.cut_short = True
            await self._stopped(runs)

    async def _stopped(self, runs: Sequence[Run]) -> None:
        for run in runs:
            self.cancel(run)
        await asyncio.wait([run.task for run in runs if run.task is not None])


def error_json(error: BaseException) -> dict[str, str]:
    """An error for clients. The library's own errors keep their text. Others are shown by type and place: no secrets."""
    if isinstance(error, ConvCoAError):
        return {"error": type(error).__name__, "message": str(error)}
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    message = f"internal error ({type(error).__name__}{place}): please report it"
    _LOGGER.warning("%s", message)
    return {"error": "InternalError", "message": message}
