"""Which sample of a repeated prompt is asked for: what tells equal requests apart in a cache of replies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

SAMPLE: ContextVar[int] = ContextVar("sample", default=0)
"""The number of the sample that a method is asking for, from 0; part of the key under which its reply is kept."""


@contextmanager
def sample(number: int) -> Iterator[None]:
    """Ask for one of several replies to the same prompt.

    Args:
        number: From 0, which is what a request outside any sample has.

    Example:
        >>> with sample(2):
        ...     SAMPLE.get()
        2
        >>> SAMPLE.get()
        0
    """
    token = SAMPLE.set(number)
    try:
        yield
    finally:
        SAMPLE.reset(token)
