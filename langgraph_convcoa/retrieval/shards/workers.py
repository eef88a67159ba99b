"""Workers, each of which answers for one shard: a process of this machine, or the shard itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.documents.child import Child, EndedError, pipes, receive, send
from langgraph_convcoa.retrieval.shards.wire import Message, error_message
from langgraph_convcoa.retrieval.threads import cores


class ShardError(RetrievalError):
    """A shard did not answer; `shard` is its name."""

    def __init__(self, message: str, shard: str = "") -> None:
        super().__init__(message)
        self.shard = shard


class Worker(Protocol):
    """What answers for a shard. One thread at a time starts and asks it."""

    @property
    def name(self) -> str:
        """Its shard in messages: the folder."""

    def start(self) -> None:
        """Open the shard where that is not done, or what had it has ended; ShardError where it cannot be opened."""

    def ask(self, message: Message, seconds: float) -> Message:
        """The answer of `Shard.answer`; ShardError where there is none within so many seconds, which ends it."""

    def end(self) -> None:
        """End it, also while it is asked."""


class ProcessWorker:
    """A process of its own, which maps an index and ends with this process, however that ends.

    It runs this package's code only, and its answers are values of JSON and bytes.

    Args:
        path: The folder of the index.
        threads: How many cores it computes on.
        start_seconds: The time that opening it may take: everything is read once.
    """

    def __init__(self, path: Path, threads: int = 1, start_seconds: float = 600.0) -> None:
        self.path, self.threads, self.start_seconds = path, threads, start_seconds
        self._child: Child | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.threads, self.start_seconds)

    @property
    def name(self) -> str:
        """The folder."""
        return str(self.path)

    def start(self) -> None:
        """Start the process and open the index where that is not done, or it has ended."""
        if self._child is not None and self._child.usable:
            return
        self.end()
        self._child = Child(__name__, f"serve({self.threads})")
        check_opened(self, self.ask({"path": str(self.path.absolute())}, self.start_seconds))
        check_opened(self, self.ask({"ask": "about"}, self.start_seconds))

    def ask(self, message: Message, seconds: float) -> Message:
        """The answer; the process is killed where there is none in time."""
        assert self._child is not None
        try:
            answer: Message = self._child.ask(message, seconds)
        except EndedError as error:
            raise ended(self.name, seconds if error.late else None, f"its process ended with {error.status}") from None
        return answer

    def end(self) -> None:
        """Kill it."""
        if self._child is not None:
            self._child.end()


def check_opened(worker: Worker, answer: Message) -> None:
    """Raise ShardError, and end the worker, where it could not open its shard."""
    if "error" in answer:
        worker.end()
        raise ShardError(f"The shard {worker.name} cannot be opened: {answer['reason']}", worker.name)


def ended(name: str, seconds: float | None, reason: str) -> ShardError:
    """The error of a shard that did not answer, or not in time."""
    told = f"did not answer within {seconds:.3g} s" if seconds is not None else f"did not answer: {reason}"
    return ShardError(f"The shard {name} {told}; the next question starts it again.", name)


def threads_each(workers: int) -> int:
    """How many cores each of so many workers of this machine computes on."""
    return max(1, cores() // max(1, workers))


def serve(threads: int) -> None:
    """Answer the messages that come by standard input until it ends: what a `ProcessWorker` runs."""
    messages, answers = pipes()
    os.environ["OMP_NUM_THREADS"] = str(threads)
    # After the number of threads, which numpy's library reads once.
    from langgraph_convcoa.retrieval.index.index import Index
    from langgraph_convcoa.retrieval.shards.shard import Shard

    shard: Shard | None = None
    while True:
        try:
            message = receive(messages)
        except EOFError:
            return
        if shard is not None:
            send(answers, shard.answer(message))
            continue
        try:
            shard = Shard(Index(message["path"]))
            send(answers, {})
        except Exception as error:  # noqa: BLE001 - whatever it is, who asked hears of it
            send(answers, error_message(error))
