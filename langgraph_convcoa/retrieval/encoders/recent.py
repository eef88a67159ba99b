"""An encoder that keeps what it encoded last."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np

from langgraph_convcoa.retrieval.encoders.base import Encoder, Vectors
from langgraph_convcoa.retrieval.encoders.delegating import DelegatingEncoder
from langgraph_convcoa.retrieval.progress import Progress

_T = TypeVar("_T")


class RecentEncoder(DelegatingEncoder):
    """Another encoder, with the vectors and token counts of recent passages kept in memory.

    Args:
        encoder: Encodes what is new.
        capacity: How many texts are kept.

    Example:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langgraph_convcoa.retrieval.encoders.choice import as_encoder
        >>> RecentEncoder(as_encoder(DeterministicFakeEmbedding(size=8)), 100).encode_passages(["a", "a", "b"]).shape
        (3, 8)
    """

    def __init__(self, encoder: Encoder, capacity: int) -> None:
        super().__init__(encoder)
        self._vectors: _Recent[Vectors] = _Recent(capacity)
        self._counts: _Recent[int] = _Recent(capacity)

    def count_tokens(self, text: str) -> int:
        return self.count_tokens_batch([text])[0]

    def count_tokens_batch(self, texts: Sequence[str]) -> list[int]:
        known = self._counts.get(texts)
        new = [text for text in dict.fromkeys(texts) if text not in known]
        if new:
            known |= self._counts.put(new, self.encoder.count_tokens_batch(new))
        return [known[text] for text in texts]

    def encode_passages(self, texts: Sequence[str], progress: Progress = False) -> Vectors:
        known = self._vectors.get(texts)
        new = [text for text in dict.fromkeys(texts) if text not in known]
        if new:
            known |= self._vectors.put(new, list(self.encoder.encode_passages(new, progress)))
        return np.stack([known[text] for text in texts]) if texts else self.encoder.encode_passages([])


class _Recent(Generic[_T]):
    """The values of the texts that were used last."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._values: OrderedDict[str, _T] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, texts: Sequence[str]) -> dict[str, _T]:
        with self._lock:
            found = {text: self._values[text] for text in texts if text in self._values}
            for text in found:
                self._values.move_to_end(text)
            return found

    def put(self, texts: Sequence[str], values: Sequence[_T]) -> dict[str, _T]:
        new = dict(zip(texts, values, strict=True))
        with self._lock:
            self._values.update(new)
            while len(self._values) > self._capacity:
                self._values.popitem(last=False)
        return new
