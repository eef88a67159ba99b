"""The number of threads for matrix products."""

from __future__ import annotations

import os
from collections.abc import Callable


def cores() -> int:
    """The number of computing threads: OMP_NUM_THREADS, as for torch, or the cores of this process."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    # Missing on some systems.
    allowed: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1
