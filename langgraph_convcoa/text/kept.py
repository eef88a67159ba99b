"""A cache of what is made of texts, bounded by the characters of the texts and not by their number."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import TypeVar

_Made = TypeVar("_Made")
_OWN = 100
"""Characters that an entry counts beyond its text, so that short texts are bounded too."""


def kept_by_characters(limit: int) -> Callable[[Callable[[str], _Made]], Callable[[str], _Made]]:
    """A decorator: what a function makes of a text is kept while the texts together have at most `limit` characters.

    What was made first goes first. A text of over a quarter of the limit is not kept. Threads may share the function.

    Example:
        >>> @kept_by_characters(1_000)
        ... def halves(text: str) -> list[str]:
        ...     return [text[: len(text) // 2], text[len(text) // 2 :]]
        >>> halves("ab") is halves("ab")
        True
    """

    def decorated(make: Callable[[str], _Made]) -> Callable[[str], _Made]:
        kept: dict[str, _Made] = {}
        lock = threading.Lock()
        held = 0

        @wraps(make)
        def made(text: str) -> _Made:
            nonlocal held
            try:
                return kept[text]
            except KeyError:
                value = make(text)
            if len(text) <= limit // 4:
                with lock:
                    held += 0 if text in kept else len(text) + _OWN
                    kept[text] = value
                    while held > limit:
                        oldest = next(iter(kept))
                        del kept[oldest]
                        held -= len(oldest) + _OWN
            return value

        return made

    return decorated
