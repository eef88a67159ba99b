"""An encoder around another one."""

from __future__ import annotations

from collections.abc import Sequence

from langgraph_convcoa.retrieval.encoders.base import Encoder, Vectors
from langgraph_convcoa.retrieval.progress import Progress


class DelegatingEncoder(Encoder):
    """Does everything as the encoder that it holds; a subclass changes what it must.

    Example:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langgraph_convcoa.retrieval.encoders.choice import as_encoder
        >>> DelegatingEncoder(as_encoder(DeterministicFakeEmbedding(size=8))).encode_queries(["a"]).shape
        (1, 8)
    """

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
