"""Documents as an index stores them: split into passages, compared with those that are there, and encoded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.corpus import Passage
from langgraph_convcoa.retrieval.documents.split import identify, pattern_text, split_documents, windows
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.encoders.cache import encode_patterns as encode_texts
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.retrieval.scoring.patterns import PatternType, encode_patterns


@dataclass(frozen=True)
class Entry:
    """A document to be stored: its id, a hash of its content (`content_digest`) and its passages."""

    id: str
    digest: bytes
    passages: list[Passage]


class StoredSets(NamedTuple):
    """Patterns as they are stored: rows (N, d), the scales (N,) of int8 rows, and how many rows each passage has, (n,)."""

    values: npt.NDArray[Any]
    scales: npt.NDArray[np.float32] | None
    sizes: npt.NDArray[np.int64]


class Selection(NamedTuple):
    """The documents of a batch that are to be encoded: those that are new, and those that replace another."""

    ids: list[str]
    fresh: list[Entry]
    changed: list[Entry]
    unchanged: int


def groups_of(passages: Iterable[Passage]) -> Iterator[tuple[str, list[Passage]]]:
    """Consecutive passages grouped into the documents that they are parts of, each with the document's id."""
    group: list[Passage] = []
    for passage in passages:
        if group and not _follows(group[0].document, passage.document, len(group)):
            yield _document_id(group[0].document), group
            group = []
        group.append(passage)
    if group:
        yield _document_id(group[0].document), group


def entries_of(passages: Iterable[Passage]) -> Iterator[Entry]:
    """Consecutive passages as documents to be stored."""
    for identity, group in groups_of(passages):
        yield Entry(identity, content_digest(group), group)


def content_digest(passages: Iterable[Passage]) -> bytes:
    """A hash of the ids, texts and metadata of a document's passages."""
    digest = hashlib.sha256()
    for passage in passages:
        document = passage.document
        content = [document.id, document.page_content, json.dumps(document.metadata, sort_keys=True)]
        digest.update(json.dumps(content).encode())
    return digest.digest()


def select(
    documents: Sequence[Document], encoder: Encoder, *, replace: bool, digests: Callable[[Sequence[str]], dict[str, bytes]]
) -> Selection:
    """Split documents with text into passages, and leave out those that are stored already.

    Args:
        documents: At least one.
        encoder: Its limit of tokens says how long a passage may be.
        replace: Whether a document replaces one with its id and another content; otherwise that is an error.
        digests: Gives the `content_digest` of the stored documents among some ids.

    Raises:
        InputError: An id or metadata cannot be stored.
        RetrievalError: An id is used twice.
    """
    named = {document.id for document in documents if document.id is not None}
    identified = identify(_distinct(documents))
    # The windows are found when they are encoded.
    entries = list(entries_of(Passage(passage, []) for passage in split_documents(identified, encoder)))
    stored = digests([entry.id for entry in entries])
    changed = [entry for entry in entries if entry.id in stored and entry.id in named and stored[entry.id] != entry.digest]
    if changed and not replace:
        raise RetrievalError(
            f"The document id {changed[0].id!r} is there already with another content; update the document, "
            "or give every document an id of its own."
        )
    fresh = [entry for entry in entries if entry.id not in stored]
    ids = [str(document.id) for document in identified]
    return Selection(ids, fresh, changed, len(entries) - len(fresh) - len(changed))


def check_owners(entries: Iterable[Entry], owners: Mapping[str, str], replaced: Collection[str]) -> None:
    """Raise RetrievalError for a passage whose id is that of a stored passage of another document, by `owners`."""
    for entry in entries:
        for passage in entry.passages:
            owner = owners.get(str(passage.document.id))
            if owner is not None and owner not in replaced:
                raise RetrievalError(
                    f"The id {passage.document.id!r} of a passage of {entry.id!r} is that of a passage of {owner!r} already; "
                    "give every document an id of its own."
                )


def encoded(
    entries: Sequence[Entry], encoder: Encoder, dtype: PatternType, cache: PatternCache | None, progress: Progress = False
) -> tuple[list[Entry], StoredSets]:
    """The documents with the windows of their passages, and the pattern of each passage followed by those of its windows."""
    texts: list[str] = []
    sizes: list[int] = []
    filled = []
    for entry in entries:
        passages = []
        for passage in entry.passages:
            document = passage.document
            spans = windows(document.page_content)
            texts += [pattern_text(document), *(document.page_content[start:end] for start, end in spans)]
            sizes.append(1 + len(spans))
            passages.append(Passage(document, spans))
        filled.append(Entry(entry.id, entry.digest, passages))
    values, scales = encode_patterns(encode_texts(encoder, texts, cache, progress), dtype)
    return filled, StoredSets(values, scales, np.array(sizes, dtype=np.int64))


def check_storable(document: Document) -> None:
    """Raise InputError for a document whose id or metadata cannot be stored."""
    try:
        str(document.id).encode()
    except UnicodeEncodeError:
        raise InputError(f"The document id {document.id!r} holds half a character; give it another id.") from None
    for name, value in document.metadata.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError, RecursionError):
            good = False
        else:
            good = isinstance(name, str)
        if not good:
            raise InputError(
                f"The metadata {name!r} ({type(value).__name__}) of the document {document.id!r} cannot be stored; "
                "give text, numbers, lists or dicts under names that are text."
            )


def _distinct(documents: Iterable[Document]) -> list[Document]:
    """Documents without repetitions of one id and content."""
    kept: list[Document] = []
    seen: dict[str, Document] = {}
    for document in documents:
        check_storable(document)
        if document.id is not None:
            before = seen.setdefault(document.id, document)
            if before is not document and before == document:
                continue
        kept.append(document)
    return kept


def _follows(first: Document, passage: Document, count: int) -> bool:
    """Whether a passage is part count + 1 of the document that `first` is part 1 of."""
    name = first.metadata.get("document_id")
    parts = name is not None and first.id == f"{name}#1"
    return parts and passage.id == f"{name}#{count + 1}" and passage.metadata.get("document_id") == name


def _document_id(first: Document) -> str:
    name = first.metadata.get("document_id")
    # A document of one passage has its own id, whatever its metadata says.
    return str(name) if name is not None and first.id == f"{name}#1" else str(first.id)
