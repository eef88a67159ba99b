"""The values of the keys that were used last, such as the vectors of recent texts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, TypeVar

from cachetools import LRUCache

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class RecentValues(Generic[_Key, _Value]):
    """The values of the keys that were used last. One thread at a time makes missing values, so each is made once.

    Example:
        >>> lengths = RecentValues[str, int](2)
        >>> lengths.of(["a", "bb", "a"], lambda new: [len(text) for text in new])
        {'a': 1, 'bb': 2}
    """

    def __init__(self, capacity: int) -> None:
        self._kept: LRUCache[_Key, _Value] = LRUCache(capacity)
        self._lock = threading.Lock()
        self._making = threading.RLock()

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy starts empty, with locks of its own.
        return type(self), (int(self._kept.maxsize),)

    def of(self, keys: Iterable[_Key], make: Callable[[list[_Key]], Iterable[_Value]]) -> dict[_Key, _Value]:
        """The value of each key; missing ones are made together."""
        wanted = list(dict.fromkeys(keys))
        found = self._known(wanted)
        if len(found) < len(wanted):
            with self._making:
                found |= self._known(wanted)
                new = [key for key in wanted if key not in found]
                made = dict(zip(new, make(new), strict=True)) if new else {}
                with self._lock:
                    self._kept.update(made)
                found |= made
        return {key: found[key] for key in wanted}

    def _known(self, keys: list[_Key]) -> dict[_Key, _Value]:
        with self._lock:
            return {key: self._kept[key] for key in keys if key in self._kept}
