"""An engine in the memory of one process, for tests without a server."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from langchain_core.documents import Document

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.encoders.base import Vectors, without_arithmetic
from langgraph_convcoa.retrieval.engine.base import Engine, Statistics, StoredPassage, bm25, search_vectors
from langgraph_convcoa.retrieval.filters import Filter, allowed_passages


class MemoryEngine(Engine):
    """Passages in memory, lost when the process ends; every search compares all of them."""

    def __init__(self, name: str = "The memory") -> None:
        self.name = name
        self._encoder: tuple[int, str] | None = None
        self._documents: dict[str, list[StoredPassage]] = {}
        self._lock = threading.Lock()

    def open(self, dimension: int, encoder: str, *, create: bool = False) -> None:
        encoder = without_arithmetic(encoder)
        if self._encoder is None:
            if not create:
                raise RetrievalError(f"{self.name} has no documents: load some.")
            self._encoder = (dimension, encoder)
        if self._encoder != (dimension, encoder):
            held, of = self._encoder
            raise RetrievalError(f"{self.name} is of {held} numbers by {of!r}, not of {dimension} by {encoder!r}.")

    def search(self, vectors: Vectors, k: int, condition: Filter | None = None) -> list[list[str]]:
        passages = self._allowed(condition)
        if not passages:
            return [[] for _ in vectors]
        best = np.stack([(vectors @ search_vectors(passage.vectors).T).max(axis=1) for passage in passages], axis=1)
        return [[passages[i].id for i in np.argsort(-row, kind="stable")[:k]] for row in best]

    def words(self, weights: Mapping[str, float], mean_length: float, k: int, condition: Filter | None = None) -> list[str]:
        found = sorted((-bm25(passage, weights, mean_length), passage.id) for passage in self._allowed(condition))
        return [name for score, name in found[:k] if score < 0]

    def patterns(self, ids: Sequence[str]) -> list[StoredPassage]:
        there = {passage.id: passage for passage in self._passages()}
        return [there[name] for name in ids if name in there]

    def parts(self, documents: Sequence[str]) -> dict[str, list[str]]:
        return {name: [p.id for p in self._documents[name]] for name in documents if name in self._documents}

    def digests(self, documents: Sequence[str]) -> dict[str, bytes]:
        return {name: self._documents[name][0].digest for name in documents if name in self._documents}

    def put(self, passages: Sequence[StoredPassage]) -> None:
        given: dict[str, list[StoredPassage]] = {}
        for passage in passages:
            given.setdefault(passage.document, []).append(passage)
        with self._lock:
            owners = {passage.id: passage.document for passage in self._passages() if passage.document not in given}
            for passage in passages:
                if passage.id in owners:
                    raise RetrievalError(
                        f"The id {passage.id!r} of a passage of {passage.document!r} is that of a passage of "
                        f"{owners[passage.id]!r} already; give every document an id of its own."
                    )
            # A single assignment: a search sees all new passages or none.
            self._documents = self._documents | given

    def delete(self, documents: Sequence[str]) -> None:
        with self._lock:
            self._documents = {name: parts for name, parts in self._documents.items() if name not in set(documents)}

    def statistics(self, terms: Iterable[str]) -> Statistics:
        held = [passage.terms for passage in self._passages() if passage.terms]
        words = sum(sum(one.values()) for one in held)
        found = Counter({term: sum(term in one for one in held) for term in set(terms)})
        return Statistics(len(held), words / max(len(held), 1), found)

    def count(self) -> int:
        return sum(map(len, self._documents.values()))

    def _passages(self) -> list[StoredPassage]:
        return [passage for parts in self._documents.values() for passage in parts]

    def _allowed(self, condition: Filter | None) -> list[StoredPassage]:
        passages = self._passages()
        documents = [Document(one.text, id=one.id, metadata=dict(one.metadata)) for one in passages]
        allowed = allowed_passages(documents, condition)
        return passages if allowed is None else [one for one, good in zip(passages, allowed, strict=True) if good]
