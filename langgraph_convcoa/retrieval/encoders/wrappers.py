"""Encoders around other encoders: one that keeps recent vectors, and one with an encoder a side (two towers)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.encoders.base import Encoder, Vectors, normalised
from langgraph_convcoa.retrieval.encoders.recent import RecentValues


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

    def encode_passages(self, texts: Sequence[str]) -> Vectors:
        return self.encoder.encode_passages(texts)


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

    def encode_passages(self, texts: Sequence[str]) -> Vectors:
        vectors = self._vectors.of(texts, self.encoder.encode_passages)
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
