"""Threads for matrix work in numpy: one product a core, each on one thread."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

Each = Callable[[Callable[[Any], object], Sequence[Any]], object]
"""Does a piece of work for every job, in no certain order."""


class _SingleThreaded:
    """OpenBLAS on one thread while anyone needs it so, and as before afterwards. The setting is the whole process's."""

    def __init__(self) -> None:
        self._lock, self._users = threading.Lock(), 0
        # Made when numpy's library is loaded; what a loaded torch multiplies with is left alone.
        self._libraries = ThreadpoolController().select(internal_api="openblas").lib_controllers
        self._usual: list[int] = []

    @contextmanager
    def held(self) -> Iterator[None]:
        with self._lock:
            if not self._users:
                self._usual = [library.get_num_threads() for library in self._libraries]
                self._set([1 for _ in self._libraries])
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._set(self._usual)

    def _set(self, numbers: list[int]) -> None:
        for library, number in zip(self._libraries, numbers, strict=True):
            # Newer releases let one thread alone change it; here whoever comes first and whoever goes last do.
            release = getattr(library, "clear_controlling_thread", None)
            if release is not None:
                release(force=True)
            library.set_num_threads(number)
            if release is not None:
                release(force=True)


@cache
def _blas() -> _SingleThreaded:
    return _SingleThreaded()


def cores() -> int:
    """How many threads may compute: OMP_NUM_THREADS where it is set, as for torch, else the cores of this process."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    # Not on every system.
    allowed: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1


def alone(work: Callable[[Any], object], jobs: Sequence[Any]) -> None:
    """Does the jobs one after another in this thread."""
    deque(map(work, jobs), maxlen=0)


@contextmanager
def workers(*, parallel: bool) -> Iterator[Each]:
    """One thread, or as many as there are `cores`, for the time of some work; errors of a job are raised here.

    Each thread takes job after job and keeps to one core, so that a block is still in its cache at the next step. Threads of
    the matrix library's own would wait for each other after every step, which on a busy machine costs more than the steps.

    Example:
        >>> found = []
        >>> with workers(parallel=True) as each:
        ...     each(found.append, [1, 2, 3])
        >>> sorted(found)
        [1, 2, 3]
    """
    number = cores() if parallel else 1
    with _blas().held():
        if number == 1:
            yield alone
            return
        with ThreadPoolExecutor(number, "matrices") as pool:

            def shared(work: Callable[[Any], object], jobs: Sequence[Any]) -> None:
                deque(pool.map(work, jobs), maxlen=0)

            yield shared
