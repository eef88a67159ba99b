"""Passages as rows of Milvus."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.engine.base import StoredPassage, search_vectors
from langgraph_convcoa.retrieval.engine.milvus.conditions import facts_of, ordered_of
from langgraph_convcoa.retrieval.engine.milvus.schema import HASH, LONGEST_TEXT, MOST_ENTRIES
from langgraph_convcoa.retrieval.hybrid.bm25 import saturation

_USUAL_LENGTH = 100.0
"""Content words of a passage, at which a word's count is weighed; any other mean length ranks nearly as this does."""
_PIECE = 16_000
"""Characters of a text in UTF-8 that are never more bytes than Milvus holds in one."""
LENGTH_BITS = 24
"""The length of a passage in content words is written in binary, so that counting rows sums lengths."""
FILLED = "filled"

Row = dict[str, Any]


class Rows(NamedTuple):
    """The rows of a passage."""

    passage: Row
    windows: list[Row]


def key(*parts: str | int) -> str:
    """The key of a row, or what stands for a tenant or a document: the same whenever it is written."""
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=HASH // 2).hexdigest()


@lru_cache(maxsize=200_000)
def term_hash(term: str) -> str:
    """A word as it stands among the terms of a passage: 64 bits of its hash, in hexadecimal."""
    return hashlib.blake2b(term.encode(), digest_size=8).hexdigest()


def word_vector(terms: Mapping[str, float]) -> dict[int, float]:
    """Words with their weights as a sparse vector; two of 4 billion may share a place."""
    vector: dict[int, float] = {}
    for term, weight in terms.items():
        place = int(term_hash(term), 16) % (2**32 - 2) + 1
        vector[place] = vector.get(place, 0.0) + float(weight)
    return vector


def rows_of(tenant: str, part: int, passage: StoredPassage) -> Rows:
    """The rows of a passage that is this part of its document, from 1.

    Raises:
        InputError: Milvus cannot hold it.
    """
    metadata = json.loads(json.dumps(passage.metadata, allow_nan=False))
    length = sum(passage.terms.values())
    bits = [length_bit(bit) for bit in range(LENGTH_BITS) if length >> bit & 1]
    content = json.dumps(
        [passage.id, passage.document, passage.text, metadata, [list(span) for span in passage.spans], dict(passage.terms)],
        ensure_ascii=False,
        separators=(",", ":"),
    )
    shared: Row = {
        "tenant": tenant,
        "document": key(tenant, passage.document),
        "part": part,
        "id": passage.id,
        "facts": facts_of(metadata),
        "ordered": ordered_of(metadata),
    }
    weights = {term: float(saturation(count, length, _USUAL_LENGTH)) for term, count in passage.terms.items()}
    row: Row = {
        **shared,
        "key": passage_key(tenant, passage.id),
        # A sparse vector without an entry is refused, and nothing asks for place 0.
        "words": {0: 1e-6, **word_vector(weights)},
        "terms": [*map(term_hash, passage.terms), *bits, *([FILLED] if passage.terms else [])],
        "content": [content[start : start + _PIECE] for start in range(0, len(content), _PIECE)],
        "vectors": [base64.b64encode(vector.tobytes()).decode() for vector in np.asarray(passage.vectors, dtype="<f4")],
        "digest": passage.digest.hex(),
    }
    _check(passage, row)
    searched = search_vectors(passage.vectors)
    windows = [
        {**shared, "key": key(tenant, passage.id, number), "vector": vector.tolist()} for number, vector in enumerate(searched)
    ]
    return Rows(row, windows)


def passage_key(tenant: str, passage: str) -> str:
    """The key of a passage's row."""
    return key(tenant, passage)


def length_bit(bit: int) -> str:
    """What stands among the terms of a passage whose length has this bit."""
    return f"bit {bit}"


def stored_of(row: Mapping[str, Any]) -> StoredPassage:
    """The passage of a row."""
    name, document, text, metadata, spans, terms = json.loads("".join(row["content"]))
    vectors = [np.frombuffer(base64.b64decode(vector), "<f4") for vector in row["vectors"]]
    return StoredPassage(
        id=name,
        document=document,
        text=text,
        metadata=metadata,
        spans=[(start, end) for start, end in spans],
        vectors=np.stack(vectors).astype(np.float32),
        terms=terms,
        digest=bytes.fromhex(row["digest"]),
    )


def _check(passage: StoredPassage, row: Row) -> None:
    for field, what, advice in (
        ("facts", "entries in its metadata", "shorten the lists in them"),
        ("terms", "words", "split it"),
        ("content", "thousands of characters", "split it"),
        ("vectors", "windows", "split it"),
    ):
        if len(row[field]) > MOST_ENTRIES:
            raise InputError(f"The passage {passage.id!r:.80} has too many {what} for Milvus; {advice}.")
    # Letters and digits of ours only: as many bytes.
    size = len(json.dumps(row["ordered"]))
    if size > LONGEST_TEXT:
        raise InputError(
            f"The texts in the metadata of the passage {passage.id!r:.80} are too long for Milvus, which holds about 32,000 "
            "bytes of them together; move what is long into the text."
        )
