"""Separate towers: one encoder for questions and another for passages, as in dense passage retrieval."""

from __future__ import annotations

from collections.abc import Sequence

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.encoders.base import Encoder, Vectors, normalised
from langgraph_convcoa.retrieval.progress import Progress


class TwoTowerEncoder(Encoder):
    """Encode questions with one encoder and passages with another (Karpukhin et al. 2020; Pan et al. 2024b, section 4).

    One encoder for both is a shared tower and needs no class of its own. The towers must give vectors of one length; that
    they mean the same is what their training is for.

    Args:
        question: Encodes questions, and the earlier turns of a conversation.
        passage: Encodes passages; it also counts tokens, since passages are what is split.

    Raises:
        RetrievalError: On first use, when the vectors of the towers differ in length.

    Example:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langgraph_convcoa.retrieval.encoders.embeddings import EmbeddingsEncoder
        >>> question, passage = (EmbeddingsEncoder(DeterministicFakeEmbedding(size=8), name=name) for name in "qp")
        >>> TwoTowerEncoder(question, passage).name
        'towers(q > p)'
    """

    def __init__(self, question: Encoder, passage: Encoder) -> None:
        self.question = question
        self.passage = passage

    def __repr__(self) -> str:
        return f"TwoTowerEncoder({self.question!r}, {self.passage!r})"

    @property
    def name(self) -> str:
        return f"towers({self.question.name} > {self.passage.name})"

    @property
    def dimension(self) -> int:
        question, passage = self.question.dimension, self.passage.dimension
        if question != passage:
            raise RetrievalError(
                f"The question encoder gives vectors of length {question} and the passage encoder of length {passage}; "
                "take two that were trained together."
            )
        return passage

    @property
    def max_tokens(self) -> int:
        return self.passage.max_tokens

    def count_tokens(self, text: str) -> int:
        return self.passage.count_tokens(text)

    def count_tokens_batch(self, texts: Sequence[str]) -> list[int]:
        return self.passage.count_tokens_batch(texts)

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        return normalised(self.question.encode_queries(texts), len(texts), self.dimension, self.question.name)

    def encode_passages(self, texts: Sequence[str], progress: Progress = False) -> Vectors:
        return self.passage.encode_passages(texts, progress)
