"""Vectors of short texts, cached by content, so that a turn encodes only new texts."""

from __future__ import annotations

import logging
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from langgraph_convcoa.retrieval.encoders.base import RecentValues
from langgraph_convcoa.text.words import content_words, words

_log = logging.getLogger(__name__)
Vectors = npt.NDArray[np.float32]
"""One vector per row, float32, of length one."""

WORD_DIMENSION = 1024


class QueryEncoder(Protocol):
    """The part of an encoder that the history needs."""

    def encode_queries(self, texts: Sequence[str]) -> Vectors: ...


class TextVectors:
    """Vectors of texts; hashed content words if there is no encoder, or if it fails.

    `encoder` encodes questions, or is a function that returns the encoder; `capacity` is the number of vectors kept.
    """

    def __init__(self, encoder: QueryEncoder | Callable[[], QueryEncoder | None] | None = None, capacity: int = 8192) -> None:
        self._encoder, self._capacity = encoder, capacity
        self._kept = RecentValues[str, Vectors](capacity)
        self._failed = False

    @property
    def lexical(self) -> bool:
        """True if the vectors count words: there is no encoder, or it failed."""
        return self._failed or self.encoder is None

    @property
    def encoder(self) -> QueryEncoder | None:
        if callable(self._encoder) and not hasattr(self._encoder, "encode_queries"):
            self._encoder = self._encoder()
        return self._encoder

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """Vectors (n, d) of n texts. New texts are encoded in one batch."""
        encoder = None if self._failed else self.encoder
        if encoder is None:
            found = self._kept.of(texts, word_vectors)
        else:
            try:
                found = self._kept.of(texts, lambda new: unit(np.asarray(encoder.encode_queries(new), dtype=np.float32)))
            except Exception as error:  # noqa: BLE001 - the turn goes on; the look-up itself reports a broken encoder
                _log.warning("the encoder failed on the history (%s); its words are counted instead", type(error).__name__)
                # All vectors must be of one kind, so those of the encoder are discarded.
                self._failed, self._kept = True, RecentValues(self._capacity)
                return self(texts)
        return np.stack([found[text] for text in texts]) if len(texts) else np.zeros((0, 0), dtype=np.float32)


def word_vectors(texts: Sequence[str]) -> Vectors:
    """Hashed counts of content words, damped by their square root, (n, 1024)."""
    rows = np.zeros((len(texts), WORD_DIMENSION), dtype=np.float32)
    for row, text in zip(rows, texts, strict=True):
        for word, count in Counter(content_words(text) or words(text)).items():
            row[zlib.crc32(word.encode()) % WORD_DIMENSION] += count**0.5
    return unit(rows)


def unit(rows: Vectors) -> Vectors:
    """Scale vectors (..., d) to length one; a zero vector stays zero."""
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    unit: Vectors = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return unit
