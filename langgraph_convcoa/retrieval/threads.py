"""Threads for matrix products."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any

Each = Callable[[Callable[[Any], object], Sequence[Any]], object]
"""Runs a function for each job, in any order."""


def cores() -> int:
    """The number of computing threads: OMP_NUM_THREADS, as for torch, or the cores of this process."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    # Missing on some systems.
    allowed: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1


@contextmanager
def workers(*, parallel: bool) -> Iterator[Each]:
    """Yield a function that runs jobs in this thread, or in `cores()` threads, and raises their errors."""
    number = cores() if parallel else 1
    pool = ThreadPoolExecutor(number, "matrices") if number > 1 else None

    def each(work: Callable[[Any], object], jobs: Sequence[Any]) -> None:
        deque(map(work, jobs) if pool is None else pool.map(work, jobs), maxlen=0)

    with pool or nullcontext():
        yield each
