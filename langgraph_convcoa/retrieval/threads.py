"""Threads for matrix work: a pool for the time of some work, which leaves the settings of matrix libraries alone."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any

Each = Callable[[Callable[[Any], object], Sequence[Any]], object]
"""Does a piece of work for every job, in no certain order."""


def cores() -> int:
    """How many threads may compute: OMP_NUM_THREADS where it is set, as for torch, else the cores of this process."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    # Not on every system.
    allowed: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1


@contextmanager
def workers(*, parallel: bool) -> Iterator[Each]:
    """This thread, or as many as there are `cores`; errors of a job are raised here.

    Each thread takes job after job, so that a block is still in its core's cache at the next step.

    Example:
        >>> found = []
        >>> with workers(parallel=True) as each:
        ...     each(found.append, [1, 2, 3])
        >>> sorted(found)
        [1, 2, 3]
    """
    number = cores() if parallel else 1
    pool = ThreadPoolExecutor(number, "matrices") if number > 1 else None

    def each(work: Callable[[Any], object], jobs: Sequence[Any]) -> None:
        deque(map(work, jobs) if pool is None else pool.map(work, jobs), maxlen=0)

    with pool or nullcontext():
        yield each
