"""Passages as rows of the two Milvus collections, and the fields and indexes of these."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.engine.base import USUAL_LENGTH, StoredPassage, search_vectors
from langgraph_convcoa.retrieval.engine.milvus.conditions import facts_of, ordered_of
from langgraph_convcoa.retrieval.hybrid.bm25 import saturation

# Milvus's limits: bytes of a text, entries of an array. A piece of 16,000 characters never exceeds the first limit.
_LONGEST_TEXT, _MOST_ENTRIES, _PIECE = 65_535, 4_096, 16_000
_DIGITS = 32
_MOST_ROWS, _MOST_BYTES = 1_000, 16_000_000
_LIMITED = {"facts": "entries in its metadata", "terms": "words", "content": "characters and windows"}

Row = dict[str, Any]


def key(*parts: str | int) -> str:
    """The key of a row, a tenant or a document: a hash."""
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=_DIGITS // 2).hexdigest()


@lru_cache(maxsize=200_000)
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
