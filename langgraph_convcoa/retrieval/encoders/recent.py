"""The values of the keys that were used last, such as the vectors of recent texts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar

from cachetools import LRUCache

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class RecentValues(Generic[_Key, _Value]):
    """The values of the keys that were used last; threads that share them make each value once.

    Example:
        >>> lengths = RecentValues[str, int](2)
        >>> lengths.of(["a", "bb", "a"], lambda new: [len(text) for text in new])
        {'a': 1, 'bb': 2}
    """

    def __init__(self, capacity: int) -> None:
        self._kept: LRUCache[_Key, _Value] = LRUCache(capacity)
        self._lock = threading.Lock()
        self._made: dict[_Key, threading.Event] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy starts empty, with a lock of its own.
        return type(self), (int(self._kept.maxsize),)

    def of(self, keys: Iterable[_Key], make: Callable[[list[_Key]], Iterable[_Value]]) -> dict[_Key, _Value]:
        """The value of each key; those that are not kept are made together, but for those that another thread is making."""
        missing = list(dict.fromkeys(keys))
        found: dict[_Key, _Value] = {}
        while missing:
            with self._lock:
                found |= {key: self._kept[key] for key in missing if key in self._kept}
                missing = [key for key in missing if key not in found]
                new = [key for key in missing if key not in self._made]
                ended = threading.Event() if new or not missing else self._made[missing[0]]
                self._made |= dict.fromkeys(new, ended)
            if new:
                try:
                    values = dict(zip(new, make(new), strict=True))
                    found |= values
                    with self._lock:
                        self._kept.update(values)
                finally:
                    with self._lock:
                        for key in new:
                            del self._made[key]
                    ended.set()
            elif missing:
                # What that thread could not make is made here.
                ended.wait()
            missing = [key for key in missing if key not in found]
        return found
