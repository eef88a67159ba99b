"""Encoders around other encoders: one that keeps recent vectors, and one with an encoder a side (two towers)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from cachetools import LRUCache

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.encoders.base import Encoder, Vectors, normalised
from langgraph_convcoa.retrieval.encoders.pooled import PassageText, WindowKind
from langgraph_convcoa.retrieval.progress import Progress

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class DelegatingEncoder(Encoder):
    """Passes everything on to another encoder; a subclass changes what it must."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.encoder!r})"

    @property
    def name(self) -> str:
        return self.encoder.name

    @property
    def dimension(self) -> int:
        return self.encoder.dimension

    @property
    def max_tokens(self) -> int:
        return self.encoder.max_tokens

    def count_tokens(self, text: str) -> int:
        return self.encoder.count_tokens(text)

    def count_tokens_batch(self, texts: Sequence[str]) -> list[int]:
        return self.encoder.count_tokens_batch(texts)

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        return self.encoder.encode_queries(texts)

    def encode_passages(self, texts: Sequence[str], progress: Progress = False) -> Vectors:
        return self.encoder.encode_passages(texts, progress=progress)

    @property
    def windows(self) -> WindowKind:
        """What is encoded of a passage: the whole and its windows "apart", or fewer texts by `encode_sets`."""
        kind: WindowKind = getattr(self.encoder, "windows", "apart")
        return kind

    def encode_sets(self, passages: Sequence[PassageText], progress: Progress = False) -> Vectors:
        """The other encoder's, where `windows` is not "apart"."""
        rows: Vectors = self.encoder.encode_sets(passages, progress=progress)  # type: ignore[attr-defined]
        return rows


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


class RecentEncoder(DelegatingEncoder):
    """Another encoder, with the vectors and token counts of the `capacity` most recent passages kept in memory."""

    def __init__(self, encoder: Encoder, capacity: int) -> None:
        super().__init__(encoder)
        self._vectors = RecentValues[str, Vectors](capacity)
        self._counts = RecentValues[str, int](capacity)

    def count_tokens(self, text: str) -> int:
        return self.count_tokens_batch([text])[0]

    def count_tokens_batch(self, texts: Sequence[str]) -> list[int]:
        counts = self._counts.of(texts, self.encoder.count_tokens_batch)
        return [counts[text] for text in texts]

    def encode_passages(self, texts: Sequence[str], progress: Progress = False) -> Vectors:
        vectors = self._vectors.of(texts, lambda new: self.encoder.encode_passages(new, progress))
        return np.stack([vectors[text] for text in texts]) if texts else self.encoder.encode_passages([])


class TwoTowerEncoder(DelegatingEncoder):
    """Encode questions with one encoder and passages with another (Karpukhin et al. 2020; Pan et al. 2024b, section 4).

    `question` encodes the earlier turns of a conversation too; `passage` also counts tokens, since passages are what is
    split. On first use, a RetrievalError where their vectors differ in length.
    """

    def __init__(self, question: Encoder, passage: Encoder) -> None:
        super().__init__(passage)
        self.question, self.passage = question, passage

    def __repr__(self) -> str:
        return f"TwoTowerEncoder({self.question!r}, {self.passage!r})"

    @property
    def name(self) -> str:
        return f"towers({self.question.name} > {self.passage.name})"

    @property
    def dimension(self) -> int:
        question, passage = self.question.dimension, self.passage.dimension
        if question != passage:
            lengths = f"The query encoder gives vectors of length {question} and the passage encoder of length {passage}"
            raise RetrievalError(f"{lengths}; take two that were trained together.")
        return passage

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        return normalised(self.question.encode_queries(texts), len(texts), self.dimension, self.question.name)
