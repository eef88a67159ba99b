"""The workers of all shards, asked side by side, each within the time that a question has."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.shards.wire import Message
from langgraph_convcoa.retrieval.shards.workers import ShardError, Worker

_GRACE = 1.0
"""Seconds that a worker's own end comes before that of who waits for it."""

Answers = dict[int, Message]
"""By the places of the workers, in their order."""


class MissingError(Exception):
    """One more shard is missing, and those that answered are to be asked again without it."""


class Crew:
    """Workers that are asked side by side, each by one thread.

    Args:
        workers: One a shard.
        partial: Whether others may answer without one that fails.
    """

    def __init__(self, workers: Sequence[Worker], *, partial: bool) -> None:
        self.workers, self.partial = list(workers), partial
        self.names = [worker.name for worker in workers]
        self.sources: dict[int, str] = {}  # The ids of the indexes that were opened.
        self._closed = False
        self._threads: tuple[int, list[ThreadPoolExecutor]] = (0, [])

    def all(self, message: Message, end: float) -> Answers:
        """The answers of all to one message until a time; where `partial` of those that answer."""
        missing: dict[int, ShardError] = {}
        while True:
            try:
                return self.ask({place: message for place in range(len(self.workers)) if place not in missing}, end, missing)
            except MissingError:
                continue

    def ask(self, messages: Mapping[int, Message], end: float, missing: dict[int, ShardError]) -> Answers:
        """The answers of some to a message each, until a time (`time.monotonic`).

        Raises:
            ShardError: One did not answer; where `partial`, only when there is no other left.
            MissingError: Where `partial` and others are left: it is among the missing from now on.
        """
        if self._closed:
            raise RetrievalError("The shards are closed; open them again.")
        # A fork has no threads.
        if self._threads[0] != os.getpid():
            self._threads = (os.getpid(), [ThreadPoolExecutor(1, f"shard-{place}") for place in range(len(self.workers))])
        waiting: dict[int, Future[Message]] = {}
        answers: Answers = {}
        failed: list[ShardError] = []
        try:
            for place, message in messages.items():
                waiting[place] = self._threads[1][place].submit(self._answer, place, message, end)
            for place, future in waiting.items():
                try:
                    answers[place] = future.result(max(0.0, end - time.monotonic()) + _GRACE)
                except TimeoutError:
                    failed.append(self._late(place))
                except ShardError as error:
                    failed.append(error)
                else:
                    continue
                missing[place] = failed[-1]
        except BaseException as error:
            if not isinstance(error, Exception):
                # Interrupted: nobody waits for what they still do, and the interpreter would wait for their threads.
                for place in waiting:
                    self.workers[place].end()
            raise
        if failed and (not self.partial or len(missing) == len(self.workers)):
            raise failed[0]
        if failed:
            raise MissingError
        return answers

    def close(self) -> None:
        """End all workers, for good."""
        self._closed = True
        for worker in self.workers:
            worker.end()
        for pool in self._threads[1] if self._threads[0] == os.getpid() else ():
            pool.shutdown(wait=False, cancel_futures=True)

    def _answer(self, place: int, message: Message, end: float) -> Message:
        worker = self.workers[place]
        worker.start()
        if self._closed:
            # Started while it was closed.
            worker.end()
        left = end - time.monotonic()
        if left <= 0:
            raise self._late(place)
        answer = worker.ask(message, left)
        if "error" in answer:
            if answer["error"] == "InputError":
                raise InputError(answer["reason"])
            raise ShardError(f"The shard {worker.name} failed: {answer['reason']}", worker.name)
        if self.sources and answer.get("source", self.sources.get(place)) != self.sources.get(place):
            raise ShardError(
                f"The shard {worker.name} is not the index that was opened, or none was; open the shards again.", worker.name
            )
        return answer

    def _late(self, place: int) -> ShardError:
        name = self.names[place]
        return ShardError(f"The shard {name} did not answer in time: it is busy, or still being opened; ask again.", name)
