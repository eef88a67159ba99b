"""Passages as rows of the tables in PostgreSQL."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from struct import pack
from typing import Any, NamedTuple

import numpy as np

from langgraph_convcoa.retrieval.documents.split import Span
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.engine.base import USUAL_LENGTH, StoredPassage, numbered, search_vectors
from langgraph_convcoa.retrieval.hybrid.bm25 import saturation

TYPES = {
    "passages": ("int8", "text", "text", "text", "int4", "text", "jsonb", "bytea", "text", "bytea"),
    # A halfvec is sent in its binary form.
    "windows": ("int8", "text", "bytea"),
    "words": ("int8", "int8", "float4", "int2", "int2", "text"),
    "frequencies": ("int8", "int4", "text"),
}
"""The types of the columns of each table."""
_LARGEST = 32_767

Row = tuple[Any, ...]


class Posting(NamedTuple):
    """A word in a passage."""

    term: int
    passage: int
    impact: float  # The word's weight at a usual mean length, before its idf.
    times: int
    length: int


@lru_cache(maxsize=200_000)
def term_number(term: str) -> int:
    """A word in the tables: 64 bits of its hash, signed."""
    return int.from_bytes(hashlib.blake2b(term.encode(), digest_size=8).digest(), "big", signed=True)


def passage_rows(keys: Sequence[int], tenant: str, passages: Sequence[StoredPassage]) -> Iterator[Row]:
    """Rows of the table of passages: (key, tenant, id, document, part, text, metadata, spans, terms, vectors)."""
    for key, (part, one) in zip(keys, numbered(passages), strict=True):
        spans = np.array(one.spans, dtype="<i4").tobytes()
        terms = json.dumps(one.terms, ensure_ascii=False, separators=(",", ":"))
        vectors = np.ascontiguousarray(one.vectors, dtype="<f4").tobytes()
        yield key, tenant, one.id, one.document, part, one.text, dict(one.metadata), spans, terms, vectors


def windows_of(spans: bytes, vectors: bytes) -> tuple[list[Span], Vectors]:
    """The spans and vectors of a row."""
    places = [(start, end) for start, end in np.frombuffer(spans, "<i4").reshape(-1, 2).tolist()]
    return places, np.frombuffer(vectors, "<f4").reshape(len(places) + 1, -1).astype(np.float32)


def window_rows(keys: Sequence[int], tenant: str, passages: Sequence[StoredPassage]) -> Iterator[Row]:
    """Rows of the table of windows: (passage, tenant, vector), the vectors in half precision."""
    for key, passage in zip(keys, passages, strict=True):
        for vector in search_vectors(passage.vectors).astype(">f2"):
            yield key, tenant, pack(">HH", len(vector), 0) + vector.tobytes()


def postings(keys: Sequence[int], terms: Sequence[Mapping[str, int]]) -> list[Posting]:
    """The postings of these passages, one for each word of a passage."""
    found = []
    for key, words in zip(keys, terms, strict=True):
        length = min(sum(words.values()), _LARGEST)
        for word, count in words.items():
            times = min(count, _LARGEST)
            found.append(Posting(term_number(word), key, saturation(times, length, USUAL_LENGTH), times, length))
    return found


def word_rows(tenant: str, found: Sequence[Posting]) -> Iterator[Row]:
    """Rows of the table of words: (term, passage, impact, count, length, tenant)."""
    return ((*one, tenant) for one in found)


def frequency_rows(tenant: str, found: Sequence[Posting], sign: int = 1) -> Iterator[Row]:
    """Rows of the table of frequencies: (term, found, tenant), one for each word of these passages."""
    return ((term, sign * times, tenant) for term, times in Counter(one.term for one in found).items())


def total_row(tenant: str, terms: Sequence[Mapping[str, int]], sign: int = 1) -> list[Any]:
    """A row of the table of totals: (tenant, passages, filled, words)."""
    lengths = [sum(words.values()) for words in terms]
    return [tenant, sign * len(lengths), sign * sum(length > 0 for length in lengths), sign * sum(lengths)]
