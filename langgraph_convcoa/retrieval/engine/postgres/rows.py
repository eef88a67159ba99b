"""Passages as rows of PostgreSQL's binary COPY format."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from struct import pack
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from langgraph_convcoa.retrieval.documents.split import Span
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.engine.base import USUAL_LENGTH, StoredPassage, search_vectors
from langgraph_convcoa.retrieval.hybrid.bm25 import saturation

_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END = b"\xff\xff"
_LARGEST = 32_767

Keys = npt.NDArray[np.int64]


class Postings(NamedTuple):
    """Every word in every passage: its number, the passage's key, its count, the passage's length, and its impact."""

    numbers: Keys
    owners: Keys
    counts: Keys
    lengths: Keys
    impacts: npt.NDArray[np.float32]


@lru_cache(maxsize=200_000)
def term_number(term: str) -> int:
    """A word in the tables: 64 bits of its hash, signed."""
    return int.from_bytes(hashlib.blake2b(term.encode(), digest_size=8).digest(), "big", signed=True)


def passage_rows(keys: Keys, tenant: str, passages: Sequence[StoredPassage]) -> bytes:
    """The table of passages: (key, tenant, id, document, part, text, metadata, spans, terms, vectors)."""
    parts: Counter[str] = Counter()
    rows = [_HEADER]
    for key, passage in zip(keys.tolist(), passages, strict=True):
        parts[passage.document] += 1
        rows.append(pack(">hiq", 10, 8, key))
        rows += _sized(tenant.encode(), passage.id.encode(), passage.document.encode())
        rows.append(pack(">ii", 4, parts[passage.document]))
        rows += _sized(
            passage.text.encode(),
            # The version of the jsonb format, then the content.
            b"\1" + json.dumps(dict(passage.metadata)).encode(),
            np.array(passage.spans, dtype="<i4").tobytes(),
            json.dumps(passage.terms, ensure_ascii=False, separators=(",", ":")).encode(),
            np.ascontiguousarray(passage.vectors, dtype="<f4").tobytes(),
        )
    return b"".join([*rows, _END])


def windows_of(spans: bytes, vectors: bytes) -> tuple[list[Span], Vectors]:
    """The spans and vectors of a row."""
    places = [(start, end) for start, end in np.frombuffer(spans, "<i4").reshape(-1, 2).tolist()]
    return places, np.frombuffer(vectors, "<f4").reshape(len(places) + 1, -1).astype(np.float32)


def window_rows(keys: Keys, tenant: str, passages: Sequence[StoredPassage]) -> bytes:
    """The table of windows: (passage, tenant, vector), the vectors in half precision."""
    vectors = np.concatenate([search_vectors(passage.vectors) for passage in passages]).astype(">f2")
    counts = [len(passage.vectors) - 1 for passage in passages]
    dimension = vectors.shape[1]
    halves = np.zeros(len(vectors), dtype=[("dimension", ">i2"), ("unused", ">i2"), ("values", ">f2", (dimension,))])
    halves["dimension"], halves["values"] = dimension, vectors
    return _binary({"passage": np.repeat(keys, counts).astype(">i8"), "tenant": _text(tenant), "vector": halves})


def postings(keys: Keys, terms: Sequence[Mapping[str, int]]) -> Postings:
    """The words of these passages."""
    sizes = [len(words) for words in terms]
    numbers = np.fromiter(map(term_number, chain.from_iterable(terms)), dtype=np.int64, count=sum(sizes))
    counts = np.fromiter(chain.from_iterable(words.values() for words in terms), dtype=np.int64, count=sum(sizes))
    lengths = np.repeat(np.array([sum(words.values()) for words in terms], dtype=np.int64), sizes)
    counts, lengths = np.minimum(counts, _LARGEST), np.minimum(lengths, _LARGEST)
    impacts = saturation(counts, lengths, USUAL_LENGTH).astype(np.float32)
    return Postings(numbers, np.repeat(keys, sizes), counts, lengths, impacts)


def word_rows(tenant: str, found: Postings) -> bytes:
    """The table of words: (term, passage, impact, count, length, tenant)."""
    columns: dict[str, npt.NDArray[Any]] = {"term": found.numbers.astype(">i8"), "passage": found.owners.astype(">i8")}
    columns |= {"impact": found.impacts.astype(">f4"), "count": found.counts.astype(">i2")}
    return _binary({**columns, "length": found.lengths.astype(">i2"), "tenant": _text(tenant)})


def frequency_rows(tenant: str, found: Postings, sign: int = 1) -> bytes:
    """The table of frequencies: (term, found, tenant), a row for each word of these passages."""
    numbers, times = np.unique(found.numbers, return_counts=True)
    return _binary({"term": numbers.astype(">i8"), "found": (sign * times).astype(">i4"), "tenant": _text(tenant)})


def total_row(tenant: str, terms: Sequence[Mapping[str, int]], sign: int = 1) -> list[Any]:
    """A row of the table of totals: (tenant, passages, filled, words)."""
    lengths = [sum(words.values()) for words in terms]
    return [tenant, sign * len(lengths), sign * sum(length > 0 for length in lengths), sign * sum(lengths)]


def _sized(*fields: bytes) -> list[bytes]:
    """Fields of a row, each after its length."""
    return [part for field in fields for part in (pack(">i", len(field)), field)]


def _text(value: str) -> npt.NDArray[Any]:
    """A column with one value."""
    return np.array(value.encode(), dtype=f"V{len(value.encode())}")


def _binary(columns: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """A table in the binary format: the number of fields before each row, and its length before each field."""
    fields: list[tuple[str, Any]] = [("fields", ">i2")]
    for name, column in columns.items():
        fields += [(f"{name} bytes", ">i4"), (name, column.dtype)]
    rows = np.zeros(max(len(column) for column in columns.values() if column.ndim), dtype=fields)
    rows["fields"] = len(columns)
    for name, column in columns.items():
        rows[f"{name} bytes"], rows[name] = column.dtype.itemsize, column
    return _HEADER + rows.tobytes() + _END
