"""The best passages of all shards for a question, as one small memory that is ranked like any other."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from langchain_core.documents import Document

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.corpus import View
from langgraph_convcoa.retrieval.encoders.base import Encoder, Vectors
from langgraph_convcoa.retrieval.index.snapshot import check_encoder
from langgraph_convcoa.retrieval.memory_corpus import Memory, empty_memory
from langgraph_convcoa.retrieval.scoring.patterns import Patterns
from langgraph_convcoa.retrieval.shards.wire import Message, unpacked


class Kind(NamedTuple):
    """What all shards have in common."""

    name: str  # Of the first, in messages.
    encoder: str | None  # The encoder's name; None where passages in memory do not say.
    dimension: int
    dtype: str
    model: dict[str, str] | None  # How to make the encoder again.
    settings: Mapping[str, Any]  # Of a retriever.

    def check_encoder(self, encoder: Encoder) -> None:
        """Raise RetrievalError for an encoder that the shards were not built with."""
        if self.dimension:
            check_encoder(encoder, self.name, encoder.name if self.encoder is None else self.encoder, self.dimension)


def _nothing() -> Vectors:
    return np.zeros((2, 0, 0), dtype=np.float32)


@dataclass(frozen=True, eq=False)
class Best(Memory):
    """The best passages of all shards for q questions: shard by shard, and in each in the order of its numbers."""

    kind: Kind | None = None
    # BM25 of the questions and, where two, with the turns before, over the best of all shards: (1 or 2, q, n).
    lexical: Vectors = field(default_factory=_nothing)
    certified: bool = True  # Whether all shards answered, each with a certificate.
    places: tuple[tuple[int, int], ...] = ()  # Of each passage, its shard and its key there.

    def check_encoder(self, encoder: Encoder) -> None:
        """Raise RetrievalError for an encoder that the shards were not built with."""
        if self.kind is not None:
            self.kind.check_encoder(encoder)


class BestWords:
    """The BM25 that came with the best passages."""

    def scores(self, view: View, queries: Sequence[str], turns: Sequence[Sequence[tuple[str, str]]] | None = None) -> Vectors:
        """BM25 of each question or, with turns, of it and these, over the best of all shards, (q, n)."""
        assert isinstance(view, Best)
        return np.asarray(view.lexical[0 if turns is None else 1])


def united_best(
    kind: Kind, names: Sequence[str], parts: Mapping[int, Message], found: Mapping[int, Message], *, certified: bool
) -> Best:
    """The passages that shards, by their places among the names, handed over, with the BM25 that they found them with.

    RetrievalError where two shards have one id.
    """
    passages: list[Document] = []
    owner: dict[str, int] = {}
    values, sizes, scales, spans, lexical = [], [], [], [], []
    places: list[tuple[int, int]] = []
    for place, part in parts.items():
        for passage, key in zip(part["passages"], unpacked(part["keys"]).tolist(), strict=True):
            document = document_of(passage)
            check_owner(str(document.id), place, owner, names)
            passages.append(document)
            places.append((place, key))
        values.append(unpacked(part["values"]))
        sizes.append(np.diff(unpacked(part["offsets"])))
        scales.append(unpacked(part["scales"]))
        spans.append(unpacked(part["spans"]))
        scores = unpacked(found[place]["lexical"])
        if scores is not None:
            lexical.append(scores[:, :, np.isin(unpacked(found[place]["numbers"]), unpacked(part["numbers"]))])
    if not parts:
        memory = empty_memory()
        return Best(memory.passages, memory.patterns, memory.spans, kind=kind, certified=certified)
    patterns = Patterns(
        np.concatenate(values),
        np.cumsum([0, *np.concatenate(sizes)], dtype=np.int64),
        None if scales[0] is None else np.concatenate(scales),
        "float32" if scales[0] is None else "int8",
    )
    words = np.concatenate(lexical, axis=2) if lexical else _nothing()
    together = np.concatenate(spans)
    return Best(passages, patterns, together, kind=kind, lexical=words, certified=certified, places=tuple(places))


def check_owner(name: str, place: int, owner: dict[str, int], names: Sequence[str]) -> None:
    """Note the shard that has an id; RetrievalError where another has it too."""
    if (other := owner.setdefault(name, place)) != place:
        raise RetrievalError(f"The id {name!r} is in the shard {names[other]} and in {names[place]}; delete it from one.")


def document_of(parts: Sequence[Any]) -> Document:
    """The document of a message."""
    identity, text, metadata = parts[:3]
    return Document(id=identity, page_content=text, metadata=json.loads(metadata))
