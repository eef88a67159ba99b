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
from collections.abc import Mapping, Sequence
from functools import partial
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.engine.base import USUAL_LENGTH, EngineConditions, StoredPassage, search_vectors
from langgraph_convcoa.retrieval.filters import Filter
from langgraph_convcoa.retrieval.hybrid.bm25 import saturation

# Milvus's limits: bytes of a text, entries of an array. A piece of 16,000 characters never exceeds the first limit.
_LONGEST_TEXT, _MOST_ENTRIES, _PIECE = 65_535, 4_096, 16_000
_DIGITS = 32
_REVERSED = str.maketrans("0123456789abcdef", "fedcba9876543210")
_BYTES = ["abcdefghijklmnop"[byte >> 4] + "ABCDEFGHIJKLMNOP"[byte & 15] for byte in range(256)]

Row = dict[str, Any]
KINDS = ("windows", "passages")  # Kinds of collections.


def key(*parts: str | int, size: int = _DIGITS // 2) -> str:
    """The key of a row, a tenant or a document: a hash of this many bytes."""
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=size).hexdigest()


# The hash of a passage's word, or of a statement about metadata.
statement = partial(key, size=8)


def word_vector(terms: Mapping[str, float]) -> dict[int, float]:
    """Words with their weights as a sparse vector; it has 4 billion places, and two words may share a place."""
    vector: dict[int, float] = {}
    for term, weight in terms.items():
        place = int(statement(term), 16) % (2**32 - 2) + 1
        vector[place] = vector.get(place, 0.0) + float(weight)
    return vector


def rows_of(tenant: str, part: int, passage: StoredPassage) -> tuple[Row, list[Row]]:
    """The row of a passage (`part` of its document, from 1) and the rows of its windows; InputError if it is too large."""
    metadata = json.loads(json.dumps(passage.metadata, allow_nan=False))
    terms, length = passage.terms, sum(passage.terms.values())
    vectors = base64.b64encode(np.asarray(passage.vectors, dtype="<f4").tobytes()).decode()
    content = [passage.id, passage.document, passage.text, metadata, passage.spans, terms, vectors, passage.digest.hex()]
    written = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    shared: Row = {"tenant": tenant, "document": key(tenant, passage.document), "part": part, "id": passage.id}
    shared |= {"facts": facts_of(metadata), "ordered": ordered_of(metadata)}
    row: Row = {
        **shared,
        "key": key(tenant, passage.id),
        "facts": [*shared["facts"], *map(statement, terms)],
        # Milvus refuses an empty sparse vector; no word has place 0.
        "words": {0: 1e-6, **word_vector({term: saturation(n, length, USUAL_LENGTH) for term, n in terms.items()})},
        "length": length,
        "content": [written[start : start + _PIECE] for start in range(0, len(written), _PIECE)],
        "digest": passage.digest.hex(),
    }
    if len(row["facts"]) > _MOST_ENTRIES:
        what = "too many entries in its metadata, or too many words"
        raise InputError(f"The passage {passage.id!r:.80} has {what}, for Milvus; split or shorten it.")
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


def definition(kind: str, dimension: int, head: str, *, file: bool) -> dict[str, Any]:
    """A collection of passages or windows as arguments of `create_collection`; `head` is its description."""
    from pymilvus import DataType, MilvusClient

    short, long = {"max_length": _DIGITS}, {"max_length": _LONGEST_TEXT}
    texts = {"element_type": DataType.VARCHAR, "max_capacity": _MOST_ENTRIES}
    schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False, description=head)
    schema.add_field("key", DataType.VARCHAR, is_primary=True, **short)
    schema.add_field("tenant", DataType.VARCHAR, is_partition_key=True, **short)
    schema.add_field("document", DataType.VARCHAR, **short)
    schema.add_field("part", DataType.INT64)
    schema.add_field("id", DataType.VARCHAR, **long)
    schema.add_field("facts", DataType.ARRAY, **texts, max_length=16)
    schema.add_field("ordered", DataType.JSON)
    indexes = MilvusClient.prepare_index_params()
    if kind == "windows":
        near = {"index_type": "FLAT"} if file else {"index_type": "HNSW", "params": {"M": 16, "efConstruction": 200}}
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dimension)
        indexes.add_index("vector", metric_type="IP", **near)
    else:
        schema.add_field("words", DataType.SPARSE_FLOAT_VECTOR)
        schema.add_field("length", DataType.INT64)
        schema.add_field("content", DataType.ARRAY, **texts, **long)
        schema.add_field("digest", DataType.VARCHAR, **long)
        indexes.add_index("words", metric_type="IP", index_type="SPARSE_INVERTED_INDEX")
    # milvus-lite has no inverted index of arrays.
    for name in ["document"] if file else ["document", "facts"]:
        indexes.add_index(name, index_type="INVERTED")
    kept = {"consistency_level": "Strong", "properties": {"convcoa.head": head}}
    return {"schema": schema, "index_params": indexes, **kept}


def facts_of(metadata: Mapping[str, Any]) -> list[str]:
    """The hashes of the statements that are true of metadata."""
    found: list[str] = []
    for name, value in metadata.items():
        found.append(statement("has", name))
        if value is not None:
            found += [statement("some", name), statement("is", name, _written(value))]
        if isinstance(value, str):
            found.append(statement("text", name))
        if isinstance(value, list):
            found += [statement("holds", name, _written(entry)) for entry in value]
    return [*dict.fromkeys(found)]


def ordered_of(metadata: Mapping[str, Any]) -> dict[str, str]:
    """The numbers and texts of metadata as texts with the same order."""
    kept = {name: value for name, value in metadata.items() if type(value) in (str, int, float)}
    return {f"k{statement(name)}": _sortable(value) for name, value in kept.items()}


class Condition(NamedTuple):
    """The expression of the rows for which a condition is true, and of those for which it is false.

    Neither expression holds for a row whose value cannot be compared (a text with a number), so `$not` leaves it out too.
    """

    true: str
    false: str


def condition_of(filter: Filter | None) -> str | None:
    """A filter as an expression, with the meaning of `retrieval.filters.predicate`; None if there is no filter."""
    found = _Expressions().condition(filter)
    return None if found is None else found.true


class _Expressions(EngineConditions[Condition]):
    def all(self, parts: Sequence[Condition]) -> Condition:
        true, false = " and ".join(part.true for part in parts), " or ".join(part.false for part in parts)
        return Condition(f"({true or 'part >= 0'})", f"({false or 'part < 0'})")

    def negated(self, part: Condition) -> Condition:
        return Condition(part.false, part.true)

    def exists(self, name: str) -> Condition:
        return _fact(statement("has", name))

    def among(self, name: str, values: Sequence[Any]) -> Condition:
        known = [statement("is", name, _written(value)) for value in values if value is not None]
        missing = [self.negated(_fact(statement("some", name)))] if any(value is None for value in values) else []
        return self.any([*([_fact(*known)] if known else []), *missing])

    def contains(self, name: str, wanted: Any) -> Condition:
        parts = [_fact(statement("holds", name, _written(wanted)))]
        if isinstance(wanted, str):
            # For a value that is no text, Milvus may find neither `within` nor its negation true.
            within = f'({_value(name)} like "t%{_spelled(wanted)}%")'
            parts.append(self.all([_fact(statement("text", name)), Condition(within, f"not {within}")]))
        return self.any(parts)

    def ordered(self, name: str, word: str, bound: Any) -> Condition:
        edge, value = _sortable(bound), _value(name)
        kind, above = edge[0], chr(ord(edge[0]) + 1)
        over, under = (">", "<=") if word in ("$gt", "$lte") else (">=", "<")
        ranges = f'({value} {over} "{edge}" and {value} < "{above}")', f'({value} >= "{kind}" and {value} {under} "{edge}")'
        true, other = ranges if word in ("$gt", "$gte") else ranges[::-1]
        return Condition(true, f"({_fact(statement('some', name)).false} or {other})")


def _fact(*hashes: str) -> Condition:
    listed = ", ".join(f'"{one}"' for one in hashes)
    found = f"array_contains(facts, {listed})" if len(hashes) == 1 else f"array_contains_any(facts, [{listed}])"
    return Condition(found, f"not {found}")


def _written(value: Any) -> str:
    """A value as text, the same for values that are equal in Python (1, 1.0 and True). Values other than JSON become "?"."""
    match value:
        case None | str():
            return json.dumps(value)
        case Real() if value == value:
            return _sortable(value)
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
    if exact in (math.inf, -math.inf):
        return "n3" if exact > 0 else "n"
    numerator, denominator = exact.as_integer_ratio()
    size = abs(numerator)
    exponent = size.bit_length() - denominator.bit_length()
    # The exponent of 2, then the binary digits from the first 1 on.
    digits = f"{exponent + 2_000:04x}" + f"{size << -size.bit_length() % 4:x}".rstrip("0")
    if exact < 0:
        return "n0" + digits.translate(_REVERSED) + "g"
    return f"n2{digits}" if exact else "n1"


def _spelled(text: str) -> str:
    """Each byte of a text as a small and a capital letter, so that a match starts at the start of a byte."""
    return "".join(map(_BYTES.__getitem__, text.encode()))


def _value(name: str) -> str:
    return f'ordered["k{statement(name)}"]'
