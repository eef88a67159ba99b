"""A cache for the values of recent keys, and an encoder that keeps the vectors of recent passages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from cachetools import LRUCache

from langgraph_convcoa.retrieval.encoders.base import DelegatingEncoder, Encoder, Vectors

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class RecentValues(Generic[_Key, _Value]):
    """The values of the `capacity` most recent keys. One thread at a time makes missing values, so each is made once.

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


class RecentEncoder(DelegatingEncoder):
    """Wraps an encoder, and keeps the vectors and token counts of the `capacity` most recent passages."""

    def __init__(self, encoder: Encoder, capacity: int) -> None:
        super().__init__(encoder)
        self._vectors = RecentValues[str, Vectors](capacity)
        self._counts = RecentValues[str, int](capacity)

    def count_tokens(self, text: str) -> int:
        return self.count_tokens_batch([text])[0]

    def count_tokens_batch(self, texts: Sequence[str]) -> list[int]:
        counts = self._counts.of(texts, self.encoder.count_tokens_batch)
        return [counts[text] for text in texts]

    def encode_passages(self, texts: Sequence[str]) -> Vectors:
        vectors = self._vectors.of(texts, self.encoder.encode_passages)
        return np.stack([vectors[text] for text in texts]) if texts else self.encoder.encode_passages([])
