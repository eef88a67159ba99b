"""Passages as rows of the two Milvus collections, and filters on metadata as expressions over these rows.

Milvus compares missing fields, null, numbers and texts in JSON differently from Python, and its versions differ. So a row
holds its metadata in two other forms: `facts`, hashes of statements such as "lang is en", and `ordered`, numbers and texts as
text with the same order. An expression contains only hashes, whatever names and values a filter has.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.engine.base import USUAL_LENGTH, EngineConditions, StoredPassage, check_text, search_vectors
from langgraph_convcoa.retrieval.filters import Filter
from langgraph_convcoa.retrieval.hybrid.bm25 import saturation

# Milvus's limits: bytes of a text, entries of an array. A piece of 16,000 characters never exceeds the first limit.
_LONGEST_TEXT, _MOST_ENTRIES, _PIECE = 65_535, 4_096, 16_000
_LIMITED = {"facts": "entries in its metadata", "terms": "words", "content": "characters and windows"}
_DIGITS = 32
_MOST_ROWS, _MOST_BYTES = 1_000, 16_000_000
_BYTES = ["abcdefghijklmnop"[byte >> 4] + "ABCDEFGHIJKLMNOP"[byte & 15] for byte in range(256)]

Row = dict[str, Any]


def key(*parts: str | int, size: int = _DIGITS // 2) -> str:
    """The key of a row, a tenant or a document: a hash of this many bytes."""
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=size).hexdigest()


def term_hash(term: str) -> str:
    """A word among the terms of a passage: 64 bits of its hash, in hexadecimal."""
    return hashlib.blake2b(term.encode(), digest_size=8).hexdigest()


def word_vector(terms: Mapping[str, float]) -> dict[int, float]:
    """Words with their weights as a sparse vector; it has 4 billion places, and two words may share a place."""
    vector: dict[int, float] = {}
    for term, weight in terms.items():
        place = int(term_hash(term), 16) % (2**32 - 2) + 1
        vector[place] = vector.get(place, 0.0) + float(weight)
    return vector


def rows_of(tenant: str, part: int, passage: StoredPassage) -> tuple[Row, list[Row]]:
    """The row of a passage (`part` of its document, from 1) and the rows of its windows; InputError if it is too large."""
    metadata = json.loads(json.dumps(passage.metadata, allow_nan=False))
    terms, length = passage.terms, sum(passage.terms.values())
    vectors = base64.b64encode(np.asarray(passage.vectors, dtype="<f4").tobytes()).decode()
    content = [passage.id, passage.document, passage.text, metadata, passage.spans, terms, vectors, passage.digest.hex()]
    written = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    shared = {"tenant": tenant, "document": key(tenant, passage.document), "part": part, "id": passage.id}
    shared |= {"facts": facts_of(metadata), "ordered": ordered_of(metadata)}
    row: Row = {
        **shared,
        "key": key(tenant, passage.id),
        # Milvus refuses an empty sparse vector; no word has place 0.
        "words": {0: 1e-6, **word_vector({term: saturation(n, length, USUAL_LENGTH) for term, n in terms.items()})},
        "terms": [*map(term_hash, terms)],
        "length": length,
        "content": [written[start : start + _PIECE] for start in range(0, len(written), _PIECE)],
        "digest": passage.digest.hex(),
    }
    for name, what in _LIMITED.items():
        if len(row[name]) > _MOST_ENTRIES:
            raise InputError(f"The passage {passage.id!r:.80} has too many {what} for Milvus; split or shorten it.")
    if len(json.dumps(row["ordered"])) > _LONGEST_TEXT:
        raise InputError(
            f"The texts in the metadata of the passage {passage.id!r:.80} are too long for Milvus, which holds about 32,000 "
            "bytes of them together; move what is long into the text."
        )
    windows = enumerate(search_vectors(passage.vectors).tolist())
    return row, [{**shared, "key": key(tenant, passage.id, number), "vector": vector} for number, vector in windows]


def stored_of(row: Mapping[str, Any]) -> StoredPassage:
    """The passage of a row."""
    name, document, text, metadata, spans, terms, packed, digest = json.loads("".join(row["content"]))
    vectors = np.frombuffer(base64.b64decode(packed), "<f4").reshape(len(spans) + 1, -1).astype(np.float32)
    places = [(start, end) for start, end in spans]
    return StoredPassage(name, document, text, metadata, places, vectors, terms, bytes.fromhex(digest))


def messages(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Rows in batches within Milvus's limits for a message."""
    batch: list[Row] = []
    size = 0
    for row in rows:
        own = len(json.dumps(row, ensure_ascii=False).encode())
        if batch and (len(batch) == _MOST_ROWS or size + own > _MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += own
    if batch:
        yield batch


def definitions(dimension: int, head: str, *, file: bool) -> dict[str, dict[str, Any]]:
    """The collections of passages and windows as arguments of `create_collection`; `head` is their description."""
    from pymilvus import DataType, MilvusClient

    short, long = {"max_length": _DIGITS}, {"max_length": _LONGEST_TEXT}
    texts = {"element_type": DataType.VARCHAR, "max_capacity": _MOST_ENTRIES}
    shared: dict[str, tuple[DataType, dict[str, Any]]] = {
        "key": (DataType.VARCHAR, {"is_primary": True, **short}),
        "tenant": (DataType.VARCHAR, {"is_partition_key": True, **short}),
        "document": (DataType.VARCHAR, short),
        "part": (DataType.INT64, {}),
        "id": (DataType.VARCHAR, long),
        "facts": (DataType.ARRAY, {**texts, "max_length": 16}),
        "ordered": (DataType.JSON, {}),
    }
    passages = {
        "words": (DataType.SPARSE_FLOAT_VECTOR, {}),
        "terms": (DataType.ARRAY, {**texts, "max_length": 16}),
        "length": (DataType.INT64, {}),
        "content": (DataType.ARRAY, {**texts, **long}),
        "digest": (DataType.VARCHAR, long),
    }
    near = {"index_type": "FLAT"} if file else {"index_type": "HNSW", "params": {"M": 16, "efConstruction": 200}}
    kinds = {
        "passages": ("words", {"index_type": "SPARSE_INVERTED_INDEX"}, passages, ["document", "terms", "facts"]),
        "windows": ("vector", near, {"vector": (DataType.FLOAT_VECTOR, {"dim": dimension})}, ["document", "facts"]),
    }
    made = {}
    for kind, (vector, index, own, scalars) in kinds.items():
        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False, description=head)
        for name, (of, options) in {**shared, **own}.items():
            schema.add_field(name, of, **options)
        indexes = MilvusClient.prepare_index_params()
        indexes.add_index(vector, metric_type="IP", **index)
        # milvus-lite has no inverted index of arrays.
        for name in scalars[:1] if file else scalars:
            indexes.add_index(name, index_type="INVERTED")
        properties = {"consistency_level": "Strong", "properties": {"convcoa.head": head}}
        made[kind] = {"schema": schema, "index_params": indexes, **properties}
    return made


def facts_of(metadata: Mapping[str, Any]) -> list[str]:
    """The hashes of the statements that are true of metadata."""
    found: list[str] = []
    for name, value in metadata.items():
        found.append(_hash("has", name))
        if value is not None:
            found += [_hash("some", name), _hash("is", name, _written(value))]
        if isinstance(value, str):
            found.append(_hash("text", name))
        if isinstance(value, list):
            found += [_hash("holds", name, _written(entry)) for entry in value]
    return [*dict.fromkeys(found)]


def ordered_of(metadata: Mapping[str, Any]) -> dict[str, str]:
    """The numbers and texts of metadata as texts with the same order; InputError for a number beyond float64."""
    kept = {name: value for name, value in metadata.items() if type(value) in (str, int, float)}
    for name, value in kept.items():
        if type(value) is int and abs(value) > sys.float_info.max:
            raise InputError(
                f"The metadata {name!r:.80} is a number beyond 1.8e308, which Milvus does not order; write it as text."
            )
    return {f"k{_hash(name)}": _sortable(value) for name, value in kept.items()}


class Condition(NamedTuple):
    """The expression of the rows for which a condition is true, and of those for which it is false.

    Neither holds for a row whose value cannot be compared (a text with a number), so `$not` leaves it out too.
    """

    true: str
    false: str


def condition_of(filter: Filter | None) -> str | None:
    """A filter as an expression, with the meaning of `retrieval.filters.predicate`; None if there is no filter."""
    found = _Expressions().condition(filter)
    return None if found is None else found.true


class _Expressions(EngineConditions[Condition]):
    def all(self, parts: Sequence[Condition]) -> Condition:
        if len(parts) == 1:
            return parts[0]
        true, false = " and ".join(part.true for part in parts), " or ".join(part.false for part in parts)
        return Condition(f"({true or 'part >= 0'})", f"({false or 'part < 0'})")

    def negated(self, part: Condition) -> Condition:
        return Condition(part.false, part.true)

    def exists(self, name: str) -> Condition:
        return _fact(_hash("has", name))

    def among(self, name: str, values: Sequence[Any]) -> Condition:
        known = [_hash("is", name, _written(value)) for value in values if value is not None]
        missing = [self.negated(_fact(_hash("some", name)))] if any(value is None for value in values) else []
        return self.any([*([_fact(*known)] if known else []), *missing])

    def contains(self, name: str, wanted: Any) -> Condition:
        parts = [_fact(_hash("holds", name, _written(wanted)))]
        if isinstance(wanted, str):
            within, text = f'({_value(name)} like "t%{_spelled(wanted)}%")', _fact(_hash("text", name))
            # For a value that is no text, Milvus may find neither this nor its negation true.
            parts.append(Condition(f"({text.true} and {within})", f"({text.false} or not {within})"))
        return self.any(parts)

    def ordered(self, name: str, word: str, bound: Any) -> Condition:
        edge, value = _sortable(bound), _value(name)
        kind, above = edge[0], chr(ord(edge[0]) + 1)
        over, under = (">", "<=") if word in ("$gt", "$lte") else (">=", "<")
        ranges = f'({value} {over} "{edge}" and {value} < "{above}")', f'({value} >= "{kind}" and {value} {under} "{edge}")'
        true, other = ranges if word in ("$gt", "$gte") else ranges[::-1]
        return Condition(true, f"({_fact(_hash('some', name)).false} or {other})")


def _fact(*hashes: str) -> Condition:
    """One of these statements is true."""
    listed = ", ".join(f'"{one}"' for one in hashes)
    found = f"array_contains(facts, {listed})" if len(hashes) == 1 else f"array_contains_any(facts, [{listed}])"
    return Condition(found, f"not {found}")


def _written(value: Any) -> str:
    """A value as text, the same for values that are equal in Python (1, 1.0 and True). Values other than JSON become "?"."""
    match value:
        case None:
            return "null"
        case str():
            check_text(value, "filter")
            return json.dumps(value)
        case Real() if isinstance(value, Integral) or math.isfinite(value):
            number = int(value) if isinstance(value, Integral) else float(value)
            return hex(int(number)) if number == int(number) else float(number).hex()
        case list():
            return "[" + ",".join(map(_written, value)) + "]"
        case Mapping() if all(isinstance(name, str) for name in value):
            return "{" + ",".join(f"{_written(name)}:{_written(value[name])}" for name in sorted(value)) + "}"
    return "?"


def _sortable(value: Any) -> str:
    """A number or a text as ASCII text with the same order. Numbers begin with n, texts with t."""
    if isinstance(value, str):
        return "t" + _spelled(value)
    exact = int(value) if isinstance(value, Integral) else float(value)
    within = abs(exact) <= sys.float_info.max
    near = float(exact) if within else math.inf if exact > 0 else -math.inf
    if within and near > exact:
        near = math.nextafter(near, -math.inf)
    [bits] = struct.unpack(">Q", struct.pack(">d", near or 0.0))
    bits ^= 2**64 - 1 if bits >> 63 else 2**63
    # An integer that float64 lacks comes after the nearest float below it.
    rest = f"{exact - int(near):x}" if isinstance(exact, int) and within and near != exact else ""
    return f"n{bits:016x}" + (f"{len(rest):03x}{rest}" if rest else "")


def _spelled(text: str) -> str:
    """Each byte of a text as a small and a capital letter, so that a match starts at the start of a byte."""
    return "".join(map(_BYTES.__getitem__, text.encode()))


def _value(name: str) -> str:
    return f'ordered["k{_hash(name)}"]'


def _hash(*parts: str) -> str:
    return key(*parts, size=8)
