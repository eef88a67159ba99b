"""Work on many blocks, each done by one thread from its first step to its last."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self, TypeVar

import torch

Job = TypeVar("Job")


class Workers:
    """One thread, or as many as torch uses here, for the time of a search.

    Each takes block after block and keeps to one core, so that a block is still in its cache at the next step. torch's own
    threads would wait for each other after every step of every block, which costs more than the steps on a busy machine.

    Args:
        parallel: Whether the work is worth more than one thread.
        here: Do the work in the calling thread, as for a GPU.

    Example:
        >>> done = []
        >>> with Workers(parallel=True) as workers:
        ...     workers.each(done.append, [1, 2, 3])
        >>> sorted(done)
        [1, 2, 3]
    """

    def __init__(self, *, parallel: bool, here: bool = False) -> None:
        self._usual = torch.get_num_threads()
        self._threads = self._usual if parallel else 1
        # torch's number of threads is each thread's own.
        self._pool = None
        if self._usual > 1 and not here:
            self._pool = ThreadPoolExecutor(self._threads, "scoring", torch.set_num_threads, (1,))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            # A thread that is new to torch starts with the number that was set last, wherever that was.
            torch.set_num_threads(self._usual)

    def each(self, work: Callable[[Job], object], jobs: Sequence[Job]) -> None:
        """Do every job, in no certain order; an error in one is raised here."""
        if self._pool is None:
            for job in jobs:
                work(job)
            return
        waiting = deque(jobs)

        def drain() -> None:
            while True:
                try:
                    job = waiting.popleft()
                except IndexError:
                    return
                work(job)

        running = [self._pool.submit(drain) for _ in range(min(self._threads, len(jobs)))]
        for future in running:
            future.result()
