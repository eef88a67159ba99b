"""How long the calls of one question may take together."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_END: ContextVar[float] = ContextVar("engine_deadline", default=math.inf)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """All calls of engines made here end within these seconds together, each within its own time-out.

    Example:
        >>> with within(1):
        ...     end_of(10) - time.monotonic() <= 1
        True
    """
    token = _END.set(end_of(seconds))
    try:
        yield
    finally:
        _END.reset(token)


def end_of(limit: float) -> float:
    """When a call that begins now and has so many seconds must have ended, by `time.monotonic`."""
    return min(time.monotonic() + limit, _END.get())
