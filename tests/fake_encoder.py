"""A fast encoder that counts words. `python -m tests.fake_encoder ask ...` runs the command line with it."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from langgraph_convcoa.retrieval.encoders.base import Encoder, Vectors
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.text.words import content_words

DIMENSION = 512


class WordEncoder(Encoder):
    """A text's vector counts its content words, hashed into `buckets`; texts that share words are similar."""

    name = "words"
    dimension = DIMENSION
    max_tokens = 256
    buckets = DIMENSION

    def __init__(self) -> None:
        self.encoded: list[str] = []

    def count_tokens(self, text: str) -> int:
        return len(text.split()) + 2

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        return self._encode(texts)

    def encode_passages(self, texts: Sequence[str], progress: Progress = False) -> Vectors:
        self.encoded += texts
        return self._encode(texts)

    def _encode(self, texts: Sequence[str]) -> Vectors:
        vectors = np.zeros((len(texts), self.buckets), dtype=np.float32)
        for row, text in enumerate(texts):
            for word in content_words(text):
                vectors[row, zlib.crc32(word.encode()) % self.buckets] += 1
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.divide(vectors, lengths, out=vectors, where=lengths > 0)


class CountingEncoder(WordEncoder):
    """Keep each batch of queries in `asked`; raise an error while `broken` is True."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[list[str]] = []
        self.broken = False

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        self.asked.append(list(texts))
        if self.broken:
            raise ConnectionError("lost")
        return super().encode_queries(texts)


class MadeUpEncoder(WordEncoder):
    """Vectors of no meaning, so that encoding takes next to nothing."""

    dimension = 384

    def __init__(self) -> None:
        super().__init__()
        rows = np.random.default_rng(0).standard_normal((4096, self.dimension), dtype=np.float32)
        self._rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def count_tokens(self, text: str) -> int:
        return text.count(" ") * 3 // 2 + 2

    def _encode(self, texts: Sequence[str]) -> Vectors:
        keys = np.array([zlib.crc32(text.encode()) for text in texts], dtype=np.int64)
        found = self._rows[keys % len(self._rows)] + np.float32(0.5) * self._rows[keys // len(self._rows) % len(self._rows)]
        return found / np.linalg.norm(found, axis=1, keepdims=True)


if __name__ == "__main__":
    from langgraph_convcoa.cli.app import main
    from langgraph_convcoa.retrieval import retriever

    words = WordEncoder()
    retriever.as_encoder = lambda _encoder: words
    main()
