"""The two collections of Milvus that a collection of ours is, and what says of which encoder it is."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.engine.base import SCHEMA_VERSION

if TYPE_CHECKING:
    from pymilvus import CollectionSchema
    from pymilvus.milvus_client import IndexParams

LONGEST_TEXT, MOST_ENTRIES = 65_535, 4_096
"""Bytes of a text and entries of an array that Milvus holds."""
LONGEST_VECTOR = 12_000
"""Numbers whose base64 is such a text."""
HASH = 32
"""Hexadecimal digits of a key."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_HEAD = "convcoa.head"


class Names(NamedTuple):
    """The names of the two collections."""

    passages: str
    windows: str


class Head(NamedTuple):
    """What a collection is of."""

    version: int
    dimension: int
    encoder: str


def names_of(collection: str) -> Names:
    """The names in Milvus; InputError where a collection cannot be called so."""
    if not isinstance(collection, str) or not _NAME.fullmatch(collection):
        raise InputError(
            f"The collection {collection!r:.80} has a name that cannot be used; give one of up to 40 lower-case letters, "
            "digits and _, with a letter first."
        )
    return Names(f"convcoa_{collection}_passages", f"convcoa_{collection}_windows")


def head_of(description: dict[str, Any], label: str) -> Head:
    """What stands of it in the description that Milvus gives; RetrievalError where another program made the collection."""
    # Milvus in a file keeps properties only.
    written = description.get("properties", {}).get(_HEAD) or description.get("description", "")
    try:
        version, dimension, encoder = json.loads(written)
        return Head(int(version), int(dimension), str(encoder))
    except (TypeError, ValueError):
        raise RetrievalError(f"{label} was not made by this library; name another collection.") from None


def check_head(head: Head, dimension: int, encoder: str, label: str) -> None:
    """RetrievalError where a collection is of another version, encoder or dimension."""
    if head.version != SCHEMA_VERSION:
        raise RetrievalError(
            f"{label} is of version {head.version}, and this library reads version {SCHEMA_VERSION}; load it into another "
            "collection, or install the version of the library that made it."
        )
    if (head.dimension, head.encoder) != (dimension, encoder):
        raise RetrievalError(
            f"{label} was encoded by {head.encoder!r} in vectors of length {head.dimension}, and the encoder given is "
            f"{encoder!r} with vectors of length {dimension}; give that encoder, or another collection."
        )


def definitions(dimension: int, encoder: str, *, file: bool) -> dict[str, dict[str, Any]]:
    """How each of the two is made, as arguments of `create_collection`; Milvus in a file has fewer indexes."""
    head = json.dumps([SCHEMA_VERSION, dimension, encoder])
    passages, windows = _schema(head), _schema(head)
    passages.add_field("words", _type("SPARSE_FLOAT_VECTOR"))
    for name, length in (("terms", 16), ("content", LONGEST_TEXT), ("vectors", LONGEST_TEXT)):
        passages.add_field(name, _type("ARRAY"), element_type=_type("VARCHAR"), max_length=length, max_capacity=MOST_ENTRIES)
    passages.add_field("digest", _type("VARCHAR"), max_length=LONGEST_TEXT)
    windows.add_field("vector", _type("FLOAT_VECTOR"), dim=dimension)
    by_words, by_vector = _indexes("document"), _indexes("document")
    by_words.add_index("words", index_type="SPARSE_INVERTED_INDEX", metric_type="IP")
    if file:
        by_vector.add_index("vector", index_type="FLAT", metric_type="IP")
    else:
        by_vector.add_index("vector", index_type="HNSW", metric_type="IP", params={"M": 16, "efConstruction": 200})
        by_words.add_index("terms", index_type="INVERTED")
        for indexes in (by_words, by_vector):
            indexes.add_index("facts", index_type="INVERTED")
    shared = {"consistency_level": "Strong", "properties": {_HEAD: head}}
    return {
        "passages": {"schema": passages, "index_params": by_words, **shared},
        "windows": {"schema": windows, "index_params": by_vector, **shared},
    }


def _schema(head: str) -> CollectionSchema:
    """The fields that both have: which passage it is of, whose, and what its metadata are."""
    from pymilvus import MilvusClient

    schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False, description=head)
    schema.add_field("key", _type("VARCHAR"), is_primary=True, max_length=HASH)
    schema.add_field("tenant", _type("VARCHAR"), is_partition_key=True, max_length=HASH)
    schema.add_field("document", _type("VARCHAR"), max_length=HASH)
    schema.add_field("part", _type("INT64"))
    schema.add_field("id", _type("VARCHAR"), max_length=LONGEST_TEXT)
    schema.add_field("facts", _type("ARRAY"), element_type=_type("VARCHAR"), max_length=16, max_capacity=MOST_ENTRIES)
    schema.add_field("ordered", _type("JSON"))
    return schema


def _indexes(*scalar: str) -> IndexParams:
    from pymilvus import MilvusClient

    indexes = MilvusClient.prepare_index_params()
    for name in scalar:
        indexes.add_index(name, index_type="INVERTED")
    return indexes


def _type(name: str) -> Any:
    from pymilvus import DataType

    return DataType[name]
