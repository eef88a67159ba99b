"""The protocol of an engine, the stored form of a passage, and the checks that engines share."""

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
from datetime import date
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

import numpy as np
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.changes import Entry, content_digest
from langgraph_convcoa.retrieval.documents.split import Span, pattern_text
from langgraph_convcoa.retrieval.encoders.base import Encoder, Vectors, without_arithmetic
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.filters import Filter, FilterEvaluator
from langgraph_convcoa.retrieval.hybrid.bm25 import saturation
from langgraph_convcoa.retrieval.memory_corpus import encoded_memory
from langgraph_convcoa.text.words import content_words

_END: ContextVar[float] = ContextVar("engine_deadline", default=math.inf)

# Stored word weights assume this mean number of content words a passage. With another mean, the ranking is nearly the same.
USUAL_LENGTH = 100.0
# Most characters of a document (it is written in one transaction), most bytes of an id, and most bytes of a tenant.
_LONGEST, _LONGEST_ID, _LONGEST_TENANT = 10_000_000, 1_000, 200

_Condition = TypeVar("_Condition")
_COLLECTION = re.compile(r"[a-z][a-z0-9_]{0,39}")


@dataclass(frozen=True, eq=False)
class StoredPassage:
    """A passage as an engine stores it, with everything needed to rank it."""

    id: str
    document: str  # Id of its document; its own id if it is the whole document.
    text: str
    metadata: Mapping[str, Any]
    spans: Sequence[Span]  # n - 1 windows, as places in the text.
    vectors: Vectors  # (n, d): the pattern of the whole passage y_0, then the patterns of its windows.
    terms: Mapping[str, int]  # Counts of its stemmed content words, title included, for BM25.
    digest: bytes  # `content_digest` of its document, the same in all its passages.


@dataclass(frozen=True)
class Statistics:
    """The numbers that BM25 needs, over all passages of a tenant that have words."""

    passages: int
    mean_length: float  # Mean number of content words in a passage.
    frequencies: Mapping[str, int]  # For each requested term, the number of passages that have it; 0 may be left out.


class Engine(Protocol):
    """Passages of one tenant in one collection of an engine. Threads may share the object.

    Collection and tenant are fixed, and the tenant is part of every statement. The first call connects to the server.
    A method raises RetrievalError within the time-out if the engine is down, slow, full or refuses; the message has no
    password. It raises InputError, before it writes anything, if a value cannot be stored or compared. A filter is a mapping
    (`retrieval.filters`), never a function.
    """

    name: str
    """The engine's name in messages: the kind of engine and the collection, without secrets."""
    timeout: float = math.inf
    """Seconds for one call, and for all calls of one search together."""
    variables: tuple[str, ...] = ()
    """Environment variables that its driver reads. A worker on another machine needs them too."""

    def open(self, dimension: int, encoder: str, *, create: bool = False) -> None:
        """Check on the first call that the collection has this encoder and dimension. With `create`, make it if missing.

        Raises RetrievalError if there is no collection and `create` is false, or it has another encoder, dimension or version.
        """

    def search(self, vectors: Vectors, k: int, condition: Filter | None = None) -> list[list[str]]:
        """For each vector (q, d), the ids of the k passages whose `search_vectors` have the greatest product with it.

        Returns fewer than k ids only if fewer passages meet the condition.
        """

    def words(self, weights: Mapping[str, float], mean_length: float, k: int, condition: Filter | None = None) -> list[str]:
        """The ids of up to k passages with at least one of the terms, roughly in the order of BM25, best first.

        A weight is the term's weight in the question times its idf. A few passages may be missing for common terms.
        """

    def patterns(self, ids: Sequence[str]) -> list[StoredPassage]:
        """The passages with these ids, in this order; missing ids are skipped."""

    def parts(self, documents: Sequence[str]) -> dict[str, list[str]]:
        """For each of these documents that exists, the ids of its passages in the order of the text."""

    def digests(self, documents: Sequence[str]) -> dict[str, bytes]:
        """The digest of each of these documents that is stored with all its passages."""

    def put(self, passages: Sequence[StoredPassage]) -> None:
        """Store whole documents, all or none. Each replaces the stored document with the same id, even if both are equal.

        Raises RetrievalError if a passage of another document has one of the ids.
        """

    def loading(self) -> AbstractContextManager[object]:
        """A block in which this process or others store many documents, in the engine's fastest way.

        Call `settle` afterwards; searches may be slow until then.
        """
        return nullcontext()

    def settle(self) -> None:
        """After `loading` or many changes, build the indexes for searches and free unused space. `timeout` does not apply.

        While other processes are `loading`, nothing is built: the last of them builds. Stored documents stay if this fails.
        """

    def delete(self, documents: Sequence[str]) -> None:
        """Delete these documents, all or none; missing documents are skipped."""

    def statistics(self, terms: Iterable[str]) -> Statistics:
        """The numbers that BM25 needs for these terms."""

    def count(self) -> int:
        """Number of passages of the tenant; 0 if there is no collection."""

    def close(self) -> None:
        """Close its connections; a later call opens them again."""


class ServerEngine(Engine):
    """An engine with an address: its collection, tenant and connections, and the checks that all such engines need."""

    version = 1
    """Version of the stored form of a passage; a collection of another version is not opened."""

    def __init__(self, kind: str, address: str, collection: str, tenant: str, timeout: float) -> None:
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
        self.name, self.timeout = f"The collection {collection!r} in {kind}{_place(address)}", float(timeout)
        self._opened: tuple[int, str] | None = None  # Dimension and encoder that were compared with the collection.
        self._connections: Any = None

    def close(self) -> None:
        self._connections.close()

    def open(self, dimension: int, encoder: str, *, create: bool = False) -> None:
        encoder = without_arithmetic(encoder)
        if self._opened == (dimension, encoder):
            return
        if not self._prepared(dimension, encoder, create):
            raise RetrievalError(f"{self.name} is not there; add documents to make it, or name another collection.")
        self._opened = (dimension, encoder)

    @abstractmethod
    def _prepared(self, dimension: int, encoder: str, create: bool) -> bool:
        """Check the collection, and prepare it for searches. If it does not exist, make it, or return False."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(collection={self.collection!r}, tenant={self.tenant!r})"

    @abstractmethod
    def _found(self, server: Any) -> tuple[int, int, str] | None:
        """Ask the server for version, dimension and encoder of the collection; None if it does not exist."""

    def _checked(self, server: Any, dimension: int, encoder: str) -> bool:
        """True if the collection exists. RetrievalError if it has another version, dimension or encoder."""
        if (found := self._found(server)) is None:
            return False
        version, length, name = found
        if version != self.version:
            raise RetrievalError(
                f"{self.name} is of version {version}, and this library reads version {self.version}; load it into another "
                "collection, or install the version of the library that made it."
            )
        if (length, name) != (dimension, encoder):
            raise RetrievalError(
                f"{self.name} was encoded by {name!r} in vectors of length {length}, and the encoder given is {encoder!r} "
                f"with vectors of length {dimension}; give that encoder, or another collection."
            )
        return True

    def _check_open(self, server: Any) -> None:
        """Raise RetrievalError before writing if the collection was not opened, or was deleted or replaced."""
        if self._opened is None or not self._checked(server, *self._opened):
            raise RetrievalError(f"{self.name} is not open, or not there any more.")

    def _taken(self) -> RetrievalError:
        return RetrievalError(
            f"{self.name} has a passage of another document under one of these ids, or a document was written twice; "
            "give every document an id of its own."
        )


class EngineConditions(FilterEvaluator[_Condition]):
    """Filters in an engine's language. A passage whose value cannot be compared is left out."""

    def condition(self, filter: Filter | None) -> _Condition | None:
        """A filter in the engine's language. InputError if it is a function, malformed, or compares with a non-JSON value."""
        try:
            for text in _texts(filter):
                check_text(text, "filter")
            return None if filter is None else self.read(filter)
        except RecursionError:
            raise InputError("The filter compares with a value that is nested too deep.") from None

    def function(self, test: Callable[[Document], bool]) -> _Condition:
        raise InputError(
            "A filter of a retriever over an engine must be a mapping, such as {'year': {'$gte': 2020}}: the engine applies "
            "it to all passages, and cannot run a function."
        )

    def _bound(self, name: str, word: str, bound: Any) -> _Condition:
        if isinstance(bound, date):
            raise InputError(
                f"The filter's {word} under {name!r} compares with {bound!r:.60}: metadata in an engine is JSON, which has no "
                "dates; keep them as texts such as 2026-11-22, and compare with one."
            )
        return super()._bound(name, word, bound)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Limit all engine calls of a block to these seconds together; each call also keeps its own time-out."""
    token = _END.set(end_of(seconds))
    try:
        yield
    finally:
        _END.reset(token)


def end_of(limit: float) -> float:
    """The time (`time.monotonic`) by which a call that starts now must end."""
    return min(time.monotonic() + limit, _END.get())


def search_vectors(vectors: Vectors) -> Vectors:
    """Turn a passage's patterns (n, d) into the vectors that an engine searches: (y_0 + y_j) / 2 for each window, (n - 1, d).

    The largest product with a query state is half the bound of the passage's score at w = 1 (`search.top_k`).

    Example:
        >>> search_vectors(np.array([[1, 0], [1, 0], [0, 1]], dtype=np.float32)).tolist()
        [[1.0, 0.0], [0.5, 0.5]]
    """
    return np.asarray((vectors[:1] + vectors[1:]) / np.float32(2), dtype=np.float32)


def bm25(passage: StoredPassage, weights: Mapping[str, float], mean_length: float) -> float:
    """BM25 of a passage; `weights` holds each word's weight times its idf."""
    length = sum(passage.terms.values())
    shared = [(weight, passage.terms[word]) for word, weight in weights.items() if word in passage.terms]
    return float(sum(weight * saturation(count, length, mean_length) for weight, count in shared))


def numbered(passages: Sequence[StoredPassage]) -> Iterator[tuple[int, StoredPassage]]:
    """Each passage and its number in the document, from 1."""
    parts: Counter[str] = Counter()
    for passage in passages:
        parts[passage.document] += 1
        yield parts[passage.document], passage


def stored_passages(entries: Sequence[Entry], encoder: Encoder, cache: PatternCache | None = None) -> list[StoredPassage]:
    """Encode documents that were checked and split. RetrievalError if they cannot be encoded."""
    passages = [passage for entry in entries for passage in entry.passages]
    memory = encoded_memory(passages, encoder, "float32", cache, progress=False)
    owners = [(entry.id, content_digest(entry.passages)) for entry in entries for _ in entry.passages]
    offsets = memory.patterns.offsets
    return [
        StoredPassage(
            id=str(passage.id),
            document=document,
            text=passage.page_content,
            metadata=passage.metadata,
            spans=memory.spans[number],
            vectors=memory.patterns.rows(offsets[number], offsets[number + 1]),
            terms=Counter(content_words(pattern_text(passage))),
            digest=digest,
        )
        for number, (passage, (document, digest)) in enumerate(zip(passages, owners, strict=True))
    ]


def checked_document(document: Document) -> Document:
    """Return the document, or raise InputError if no engine can store it."""
    if len(document.page_content) > _LONGEST:
        raise InputError(
            f"The document {document.id!r:.80} has {len(document.page_content):,} characters, and an engine takes at most "
            f"{_LONGEST:,} at once; divide it into several documents."
        )
    if document.id is not None:
        check_text(document.id, "document id")
        if not document.id or len(document.id.encode()) > _LONGEST_ID:
            raise InputError(f"A document id must be of 1 to {_LONGEST_ID:,} bytes, not {len(document.id.encode()):,}.")
    check_text(document.page_content, f"text of the document {document.id!r:.80}")
    try:
        json.dumps(document.metadata, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"The metadata of the document {document.id!r:.80} cannot be stored in an engine ({error}); give text, finite "
            "numbers, lists or dicts under names that are text."
        ) from None
    for text in _texts(document.metadata):
        check_text(text, f"metadata of the document {document.id!r:.80}")
    return document


def check_text(text: str, what: str) -> None:
    """Raise InputError for a text with NUL or a lone surrogate, which no engine stores."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"The {what} holds half a character (a lone surrogate), which an engine does not keep.") from None
    if "\0" in text:
        raise InputError(f"The {what} holds a NUL character, which an engine does not keep; remove it.")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from map(str, value)
        value = list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        for part in value:
            yield from _texts(part)


def _place(address: str) -> str:
    """The server or file of an address, without user, password and options."""
    try:
        parts = urlsplit(address)
        name = parts.hostname or (Path(unquote(parts.path)).name if parts.scheme.endswith("file") else "")
    except ValueError:
        name = ""
    return f" at {name}" if name else ""
