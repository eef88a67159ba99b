"""The protocol of an engine, which stores passages with their patterns and names candidates, and what is stored in one."""

from __future__ import annotations

import json
import math
import re
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from numbers import Real
from typing import Any, Protocol, TypeVar

import numpy as np
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.changes import Entry, content_digest
from langgraph_convcoa.retrieval.documents.split import Span, pattern_text
from langgraph_convcoa.retrieval.encoders.base import Encoder, Vectors
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.filters import Filter, FilterEvaluator
from langgraph_convcoa.retrieval.memory_corpus import encoded_memory
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.text.words import content_words

_END: ContextVar[float] = ContextVar("engine_deadline", default=math.inf)

SCHEMA_VERSION = 1
"""Version of what is stored of a passage; a collection of another version is not opened."""

LONGEST = 10_000_000
"""Characters of a document, which is written in one transaction."""

_Condition = TypeVar("_Condition")
_COLLECTION = re.compile(r"[a-z][a-z0-9_]{0,39}")
_LONGEST_ID = 1_000
_LONGEST_TENANT = 200
_as_json = json.JSONEncoder(allow_nan=False).encode


@dataclass(frozen=True, eq=False)
class StoredPassage:
    """A passage as an engine keeps it, with all that ranks it: nothing is encoded or counted again."""

    id: str
    document: str  # The id of the document that it is a part of, its own where it is the whole.
    text: str
    metadata: Mapping[str, Any]
    spans: Sequence[Span]  # n - 1 windows, where they stand in the text.
    vectors: Vectors  # (n, d), the pattern of the whole passage y_0, then those of its windows.
    terms: Mapping[str, int]  # How often each stemmed content word stands in it, its title included, as BM25 counts.
    digest: bytes  # `content_digest` of its document, the same in all its passages.


@dataclass(frozen=True)
class Statistics:
    """What BM25 weighs words by: those of all passages of a tenant that have words."""

    passages: int
    mean_length: float  # Content words a passage.
    frequencies: Mapping[str, int]  # In how many passages each of the terms that were asked for stands; 0 may be left out.


class Engine(Protocol):
    """Passages of one tenant in one collection of an engine. Threads may share it.

    Both are fixed when it is made, and the tenant is part of every statement. Nothing is asked of the server before the first
    call. Every method raises RetrievalError within the engine's time-out where the engine is down, slow, full or refuses, in
    words without a password; InputError, before anything is written, for what cannot be stored and for a filter that cannot
    be asked. A filter is a mapping (`retrieval.filters`), never a function.
    """

    variables: tuple[str, ...] = ()
    """Of the environment, what its driver reads beside the address: a worker on another machine needs them too."""

    @property
    def timeout(self) -> float:
        """Seconds that a call has, and all calls of one search together; without an end where an engine does not say."""
        return math.inf

    @property
    def name(self) -> str:
        """What it is called in messages: the kind of engine and the collection, without secrets."""

    def open(self, dimension: int, encoder: str, *, create: bool = False) -> None:
        """Check the collection against the encoder's name and the length of its vectors; nothing is asked a second time.

        RetrievalError where there is none, unless it is to be made, or it is of another encoder, dimension or version.
        """

    def search(self, vectors: Vectors, k: int, condition: Filter | None = None) -> list[list[str]]:
        """For each vector (q, d) the ids of up to k passages, that with the greatest product with one of its
        `search_vectors` first; fewer than k only where there are not so many that meet the condition.
        """

    def words(self, weights: Mapping[str, float], mean_length: float, k: int, condition: Filter | None = None) -> list[str]:
        """The ids of up to k passages that have one of the terms, probably the best by BM25 first.

        A weight is that of a term in the question times its idf. Few passages may be missing where terms are common.
        """

    def patterns(self, ids: Sequence[str]) -> list[StoredPassage]:
        """The passages of these ids that are there, in this order."""

    def parts(self, documents: Sequence[str]) -> dict[str, list[str]]:
        """The ids of the passages of each of these documents that is there, in the order of its text."""

    def digests(self, documents: Sequence[str]) -> dict[str, bytes]:
        """The digest of each of these documents that is there, with all its passages."""

    def put(self, passages: Sequence[StoredPassage]) -> None:
        """Store whole documents, each in place of the one that has its id, all or none; the same again changes nothing.

        RetrievalError where a passage's id is that of a passage of another document.
        """

    def loading(self) -> AbstractContextManager[object]:
        """While many documents are put, by this process or by others: the engine's fastest path.

        Call `settle` afterwards; searches meanwhile may be slow.
        """
        return nullcontext()

    def settle(self) -> None:
        """After `loading`, or many changes: build what a search needs, and free what is no longer needed. No time-out.

        Where another is `loading`, that is left to the last one. What was stored stands, however this ends.
        """

    def delete(self, documents: Sequence[str]) -> None:
        """Delete these documents with all that is stored of them, all or none; those that are not there are passed over."""

    def statistics(self, terms: Iterable[str]) -> Statistics:
        """The numbers that BM25 needs for these terms."""

    def count(self) -> int:
        """How many passages the tenant has; 0 where there is no collection."""

    def close(self) -> None:
        """Give up its connections; it may be used again."""


class ServerEngine(Engine):
    """A collection and a tenant of an engine that has an address, with what all such engines check."""

    def __init__(self, label: str, collection: str, tenant: str, timeout: float) -> None:
        if not timeout > 0:
            raise InputError(f"timeout must be a number of seconds above 0, not {timeout!r}.")
        if not isinstance(collection, str) or not _COLLECTION.fullmatch(collection):
            raise InputError(
                f"The collection {collection!r:.80} has a name that cannot be used; give one of up to 40 lower-case letters, "
                "digits and _, with a letter first."
            )
        if not isinstance(tenant, str) or not 0 < len(tenant.encode("utf-8", "replace")) <= _LONGEST_TENANT:
            raise InputError(f"A tenant must be a text of 1 to {_LONGEST_TENANT} bytes, not {tenant!r:.80}.")
        check_text(tenant, "tenant")
        self.collection, self.tenant = collection, tenant
        self._name = f"The collection {collection!r} in {label}"
        self._opened: tuple[int, str] | None = None  # Dimension and encoder that were compared with the collection.

    @property
    def name(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"{type(self).__name__}(collection={self.collection!r}, tenant={self.tenant!r})"

    def _not_there(self) -> RetrievalError:
        return RetrievalError(f"{self.name} is not there; add documents to make it, or name another collection.")

    def _taken(self) -> RetrievalError:
        return RetrievalError(
            f"{self.name} has a passage of another document under one of these ids, or a document was written twice; "
            "give every document an id of its own."
        )


def check_head(label: str, stored: tuple[int, int, str], dimension: int, encoder: str) -> None:
    """Raise RetrievalError where a stored collection is of another version, dimension or encoder."""
    version, length, name = stored
    if version != SCHEMA_VERSION:
        raise RetrievalError(
            f"{label} is of version {version}, and this library reads version {SCHEMA_VERSION}; load it into another "
            "collection, or install the version of the library that made it."
        )
    if (length, name) != (dimension, encoder):
        raise RetrievalError(
            f"{label} was encoded by {name!r} in vectors of length {length}, and the encoder given is {encoder!r} with "
            f"vectors of length {dimension}; give that encoder, or another collection."
        )


class EngineConditions(FilterEvaluator[_Condition]):
    """Filters in the language of an engine. A value that has no order with the filter's leaves its passage out."""

    def condition(self, filter: Filter | None) -> _Condition | None:
        """What a filter becomes; None where there is none.

        InputError where it is a function, which only runs here, is malformed, or compares with what is not JSON.
        """
        try:
            return None if filter is None else self.read(filter)
        except RecursionError:
            raise InputError("The filter compares with a value that is nested too deep.") from None

    def function(self, test: Callable[[Document], bool]) -> _Condition:
        raise InputError(
            "A filter of a retriever over an engine must be a mapping, such as {'year': {'$gte': 2020}}: the engine applies "
            "it to all passages, and cannot run a function."
        )

    def ordered(self, name: str, word: str, bound: Any) -> _Condition:
        if isinstance(bound, str):
            check_text(bound, "filter")
        elif not isinstance(bound, Real):
            raise InputError(
                f"The filter's {word} under {name!r} compares with {bound!r:.60}: metadata in an engine is JSON, which has no "
                "dates; keep them as texts such as 2026-11-22, and compare with one."
            )
        return self.above_or_below(name, word, bound)

    @abstractmethod
    def above_or_below(self, name: str, word: str, bound: str | Real) -> _Condition:
        """`ordered`, for a text or a number."""

    def _field(self, name: str, wanted: Any, depth: int) -> _Condition:
        check_text(name, "filter")
        return super()._field(name, wanted, depth)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """All calls of engines made here end within these seconds together, each within its own time-out.

    Example:
        >>> with within(1):
        ...     end_of(10) - time.monotonic() <= 1
        True
    """
    token = _END.set(end_of(seconds))
    try:
        yield
    finally:
        _END.reset(token)


def end_of(limit: float) -> float:
    """When a call that begins now and has so many seconds must have ended, by `time.monotonic`."""
    return min(time.monotonic() + limit, _END.get())


def search_vectors(vectors: Vectors) -> Vectors:
    """What an engine searches of a passage (n, d): (y_0 + y_j) / 2 for each of its windows, (n - 1, d).

    The product with a query state is half the bound of the passage's score at w = 1 (`scoring.topk.search`), so that one
    search over windows ranks passages by whole and window together.

    Example:
        >>> search_vectors(np.array([[1, 0], [1, 0], [0, 1]], dtype=np.float32)).tolist()
        [[1.0, 0.0], [0.5, 0.5]]
    """
    return np.asarray((vectors[:1] + vectors[1:]) / np.float32(2), dtype=np.float32)


def stored_passages(
    entries: Iterable[Entry], encoder: Encoder, *, cache: PatternCache | None = None, progress: Progress = False
) -> list[StoredPassage]:
    """Documents that passed `check_document` and were split into passages, encoded and counted, as an engine keeps them.

    RetrievalError where the passages cannot be encoded.

    Example:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langgraph_convcoa.retrieval.encoders.choice import as_encoder
        >>> entry = Entry("a", [Document("Ada wrote it.", id="a")])
        >>> [passage] = stored_passages([entry], as_encoder(DeterministicFakeEmbedding(size=8)))
        >>> passage.spans, passage.vectors.shape, dict(passage.terms)
        ([(0, 13)], (2, 8), {'ada': 1, 'wrote': 1})
    """
    chosen = list(entries)
    passages = [passage for entry in chosen for passage in entry.passages]
    if not passages:
        return []
    memory = encoded_memory(passages, encoder, "float32", cache, progress)
    owners = [(entry.id, content_digest(entry.passages)) for entry in chosen for _ in entry.passages]
    offsets = memory.patterns.offsets
    return [
        StoredPassage(
            id=str(passage.id),
            document=document,
            text=passage.page_content,
            metadata=passage.metadata,
            spans=memory.set_spans(number),
            vectors=memory.patterns.rows(offsets[number], offsets[number + 1]),
            terms=Counter(content_words(pattern_text(passage))),
            digest=digest,
        )
        for number, (passage, (document, digest)) in enumerate(zip(passages, owners, strict=True))
    ]


def check_document(document: Document) -> None:
    """Raise InputError for a document that no engine keeps: asked before it is split and encoded."""
    if len(document.page_content) > LONGEST:
        raise InputError(
            f"The document {document.id!r:.80} has {len(document.page_content):,} characters, and an engine takes at most "
            f"{LONGEST:,} at once; divide it into several documents."
        )
    if document.id is not None:
        check_text(document.id, "document id")
        if not document.id or len(document.id.encode()) > _LONGEST_ID:
            raise InputError(f"A document id must be of 1 to {_LONGEST_ID:,} bytes, not {len(document.id.encode()):,}.")
    check_text(document.page_content, f"text of the document {document.id!r:.80}")
    try:
        _as_json(document.metadata)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"The metadata of the document {document.id!r:.80} cannot be stored in an engine ({error}); give text, finite "
            "numbers, lists or dicts under names that are text."
        ) from None
    for text in _texts(document.metadata):
        check_text(text, f"metadata of the document {document.id!r:.80}")


def check_text(text: str, what: str) -> None:
    """Raise InputError for a text that no engine keeps: one with NUL or half a character in it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"The {what} holds half a character (a lone surrogate), which an engine does not keep.") from None
    if "\0" in text:
        raise InputError(f"The {what} holds a NUL character, which an engine does not keep; remove it.")


def _texts(value: Any) -> Iterator[str]:
    """The texts and names in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, part in value.items():
            yield str(name)
            yield from _texts(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)
