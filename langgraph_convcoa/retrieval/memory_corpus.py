"""The corpus in memory: passages with their windows and patterns, and changes to them."""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.changes import Committed, check_deletable, content_digest, documents_of, entries_of, select
from langgraph_convcoa.retrieval.corpus import Corpus, Listed, Numbers, Passage
from langgraph_convcoa.retrieval.documents.split import Span, pattern_text, split_documents, windows
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.cache import PatternCache, encode_texts
from langgraph_convcoa.retrieval.filters import Filter, allowed_passages
from langgraph_convcoa.retrieval.graph.index import GraphFollower
from langgraph_convcoa.retrieval.hybrid.follower import BM25Follower
from langgraph_convcoa.retrieval.patterns import Patterns, PatternType, encode_patterns
from langgraph_convcoa.retrieval.progress import Progress


@dataclass(frozen=True, eq=False)
class Memory:
    """Passages and their patterns in memory: a `View`, one state of a `MemoryCorpus`."""

    passages: list[Document]  # n documents with ids.
    patterns: Patterns  # For each passage, y_0 of the whole passage, then its windows Y.
    spans: list[list[Span]]  # For each passage, the places of its windows in its text, in characters.
    # (n,), in rising order, never reused in the same source; 0 to n - 1 by default.
    keys: Numbers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    source: str = field(default_factory=lambda: secrets.token_hex(16))

    def __post_init__(self) -> None:
        if len(self.keys) != self.patterns.n:
            object.__setattr__(self, "keys", np.arange(self.patterns.n))

    def __len__(self) -> int:
        return len(self.passages)

    @property
    def numbers(self) -> Numbers:
        return np.arange(len(self))

    def fetch(self, numbers: Sequence[int]) -> list[Passage]:
        return [Passage(self.passages[number], self.spans[number]) for number in numbers]

    def listed(self) -> list[Listed]:
        numbers = itertools.count()
        return [
            Listed(entry.id, entry.passages[0].metadata, [next(numbers) for _ in entry.passages])
            for entry in entries_of(self.passages)
        ]

    def allowed(self, condition: Filter | None) -> npt.NDArray[np.bool_] | None:
        return allowed_passages(self.passages, condition)

    def check_encoder(self, encoder: Encoder) -> None:
        if len(self) and encoder.dimension != self.patterns.d:
            raise RetrievalError(
                f"The encoder {encoder.name!r} gives vectors of length {encoder.dimension}, and the memory holds vectors "
                f"of length {self.patterns.d}; give the encoder that it was built with."
            )

    def select(self, sets: Numbers) -> Memory:
        """A copy of some of the passages, with their keys."""
        passages = [self.passages[number] for number in sets.tolist()]
        spans = [self.spans[number] for number in sets.tolist()]
        return Memory(passages, self.patterns.select(sets), spans, self.keys[sets], self.source)

    def joined(self, other: Memory) -> Memory:
        """The passages of both memories, with this memory's source; the keys of `other` must be greater."""
        if not len(self):
            return Memory(other.passages, other.patterns, other.spans, other.keys, self.source)
        one, two = self.patterns, other.patterns
        scales = None if one.scales is None or two.scales is None else np.concatenate([one.scales, two.scales])
        offsets = np.concatenate([one.offsets, one.offsets[-1] + two.offsets[1:]])
        patterns = Patterns(np.concatenate([one.values, two.values]), offsets, scales, one.dtype)
        keys = np.concatenate([self.keys, other.keys])
        return Memory([*self.passages, *other.passages], patterns, [*self.spans, *other.spans], keys, self.source)


def build_memory(
    documents: Iterable[Document],
    encoder: Encoder,
    *,
    cache: PatternCache | None = None,
    progress: Progress = False,
    dtype: PatternType = "float32",
) -> Memory:
    """Split documents into passages and encode them and their windows; RetrievalError if that fails."""
    return encoded_memory(split_documents(documents, encoder), encoder, dtype, cache, progress)


class MemoryCorpus(Corpus):
    """Passages in memory. Each change makes a new state; running searches use the old state."""

    bm25: BM25Follower
    graph: GraphFollower

    def __init__(self, memory: Memory | None = None) -> None:
        self._state = empty_memory() if memory is None else memory
        self._next_key = int(self._state.keys.max(initial=-1)) + 1
        self._changing = threading.RLock()
        self.bm25, self.graph = BM25Follower(), GraphFollower()

    def snapshot(self) -> Memory:
        return self._state

    def ingest(
        self,
        documents: Iterable[Document],
        encoder: Encoder,
        *,
        replace: bool = False,
        cache: PatternCache | None = None,
        progress: Progress = False,
    ) -> Iterator[Committed]:
        with self._changing:
            state, there = self._state, self._documents()
            state.check_encoder(encoder)

            def digests(ids: Sequence[str]) -> dict[str, bytes]:
                return {name: content_digest(state.passages[i] for i in there[name]) for name in ids if name in there}

            chosen = select(documents, encoder, replace=replace, digests=digests, owners=partial(_owners, state, there))
            if chosen.entries:
                passages = [passage for entry in chosen.entries for passage in entry.passages]
                added = encoded_memory(passages, encoder, state.patterns.dtype, cache, progress, first_key=self._next_key)
                self._state = self._without(chosen.replaced, there).joined(added)
                self._next_key += len(added)
        yield chosen.done

    def delete(self, ids: Iterable[str]) -> list[str]:
        with self._changing:
            there = self._documents()
            names = check_deletable(ids, there, lambda unknown: _owners(self._state, there, unknown))
            self._state = self._without(names, there)
            return names

    def documents(self, ids: Iterable[str]) -> list[Document]:
        return documents_of(ids, self._state.passages)

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy changes independently, so its keys get a source of their own.
        return type(self), (replaced(self._state, source=secrets.token_hex(16)),)

    def __repr__(self) -> str:
        return f"MemoryCorpus(passages={len(self)})"

    def _documents(self) -> dict[str, list[int]]:
        return {document.id: document.numbers for document in self._state.listed()}

    def _without(self, names: Iterable[str], there: dict[str, list[int]]) -> Memory:
        gone = [number for name in names for number in there[name]]
        return self._state.select(np.setdiff1d(np.arange(len(self)), gone)) if gone else self._state


def _owners(state: Memory, there: Mapping[str, Sequence[int]], _ids: Sequence[str]) -> dict[str, str]:
    return {str(state.passages[number].id): name for name, numbers in there.items() for number in numbers}


def encoded_memory(
    passages: list[Document],
    encoder: Encoder,
    dtype: PatternType,
    cache: PatternCache | None,
    progress: Progress,
    first_key: int = 0,
) -> Memory:
    """Encode passages and their windows into patterns; the keys start at `first_key`."""
    spans = [windows(passage.page_content) for passage in passages]
    texts = [
        text
        for passage, parts in zip(passages, spans, strict=True)
        for text in (pattern_text(passage), *(passage.page_content[start:end] for start, end in parts))
    ]
    values, scales = encode_patterns(encode_texts(encoder, texts, cache, progress), dtype)
    offsets = np.cumsum([0, *(1 + len(parts) for parts in spans)], dtype=np.int64)
    keys = first_key + np.arange(len(passages))
    return Memory(passages, Patterns(values, offsets, scales, dtype), spans, keys)


def empty_memory(dtype: PatternType = "float32") -> Memory:
    """A memory without passages."""
    values, scales = encode_patterns(np.zeros((0, 0), dtype=np.float32), dtype)
    return Memory([], Patterns(values, np.zeros(1, dtype=np.int64), scales, dtype), [])
