"""Additions to a corpus: splits and checks documents, and compares them with the stored documents."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.documents.split import identify, rejoined, split_documents
from langgraph_convcoa.retrieval.encoders.base import Encoder

_Item = TypeVar("_Item")

_BATCH_DOCUMENTS = 256
_BATCH_CHARACTERS = 500_000


class Committed(NamedTuple):
    """The result of a commit. Documents without text count in `given` only."""

    ids: Sequence[str] = ()  # Ids of the documents, in the order given.
    added: int = 0
    updated: int = 0
    unchanged: int = 0
    passages: int = 0  # Passages written.
    given: int = 0

    @classmethod
    def total(cls, commits: Iterable[Committed]) -> Committed:
        """The sum of several commits, without the ids, since there may be millions of ids."""
        return cls((), *map(sum, zip(*(one[1:] for one in commits), strict=True)))


class Entry(NamedTuple):
    """A document to be stored: its id and its passages."""

    id: str
    passages: list[Document]


class Selection(NamedTuple):
    """The documents of a batch that are to be stored."""

    entries: list[Entry]  # Documents to store: new documents, then replacements of stored documents.
    replaced: list[str]  # Ids of the documents that are replaced.
    done: Committed  # The result of the commit that stores them.


def entries_of(passages: Iterable[Document]) -> Iterator[Entry]:
    """Group consecutive passages by document."""
    group: list[Document] = []
    for passage in passages:
        name = passage.metadata.get("document_id")
        if group and (name is None or (group[0].id, passage.id) != (f"{name}#1", f"{name}#{len(group) + 1}")):
            yield _entry(group)
            group = []
        group.append(passage)
    if group:
        yield _entry(group)


def content_digest(passages: Iterable[Document]) -> bytes:
    """A hash of the ids, texts and metadata of a document's passages."""
    digest = hashlib.sha256()
    for passage in passages:
        # JSON turns keys into texts, which can be sorted.
        metadata = json.loads(json.dumps(passage.metadata))
        content = [passage.id, passage.page_content, json.dumps(metadata, sort_keys=True)]
        digest.update(json.dumps(content).encode())
    return digest.digest()


def documents_of(ids: Iterable[str], passages: Iterable[Document]) -> list[Document]:
    """Copies of the documents with these ids, made of their passages. A passage's id gives a copy of that passage."""
    parts = {str(passage.id): passage for passage in passages}
    whole = {entry.id: entry.passages for entry in entries_of(parts.values())}
    return [rejoined(name, whole.get(name) or [parts[name]]) for name in distinct(ids) if name in whole or name in parts]


def select(
    documents: Iterable[Document],
    encoder: Encoder,
    *,
    replace: bool,
    digests: Callable[[Sequence[str]], Mapping[str, bytes]],
    owners: Callable[[Sequence[str]], Mapping[str, str]],
) -> Selection:
    """Split documents into passages; skip documents that have no text or are already stored.

    With `replace`, a document replaces a stored document of the same id but other content. Otherwise, this is an error.
    `digests` maps ids of stored documents to their `content_digest`; `owners` maps passages' ids to their documents' ids.

    Raises:
        InputError: An id or metadata cannot be stored.
        RetrievalError: An id is used twice, or a document would be left without text.
    """
    given = list(documents)
    count = len(given)
    emptied = [document.id for document in given if document.id is not None and not document.page_content.strip()]
    if replace and emptied and (held := digests(emptied)):
        raise RetrievalError(f"The document {next(iter(held))!r} would be left without text; delete it instead.")
    given = _distinct(document for document in given if document.page_content.strip())
    if not given:
        return Selection([], [], Committed(given=count))
    named = {document.id for document in given}
    identified = identify(given)
    entries = list(entries_of(split_documents(identified, encoder)))
    held = digests([entry.id for entry in entries])
    fresh = [entry for entry in entries if entry.id not in held]
    # A document given without an id has an id made of its title and text, and never replaces another.
    again = [entry for entry in entries if entry.id in held and entry.id in named]
    changed = [entry for entry in again if held[entry.id] != content_digest(entry.passages)]
    if changed and not replace:
        raise RetrievalError(
            f"The document id {changed[0].id!r} is there already with another content: call update(documents) to replace it, "
            "or give every document an id of its own."
        )
    chosen, replaced = [*fresh, *changed], [entry.id for entry in changed]
    known = owners([str(passage.id) for entry in chosen for passage in entry.passages])
    for entry in chosen:
        for passage in entry.passages:
            owner = known.get(str(passage.id))
            if owner is not None and owner not in replaced:
                raise RetrievalError(
                    f"The id {passage.id!r} of a passage of {entry.id!r} is that of a passage of {owner!r} already; "
                    "give every document an id of its own."
                )
    ids = [str(document.id) for document in identified]
    added, passages = len(chosen) - len(replaced), sum(len(entry.passages) for entry in chosen)
    return Selection(chosen, replaced, Committed(ids, added, len(replaced), len(entries) - len(chosen), passages, count))


def batches_of(documents: Iterable[Document]) -> Iterator[list[Document]]:
    """Documents in batches, one for each commit: up to 256 documents with up to 500,000 characters."""
    return batched(documents, _BATCH_DOCUMENTS, _BATCH_CHARACTERS, lambda document: len(document.page_content))


def batched(
    items: Iterable[_Item], most: int, room: float = math.inf, size: Callable[[_Item], int] = lambda _: 0
) -> Iterator[list[_Item]]:
    """Items in batches of up to `most` items, with sizes of up to `room` together; a larger item goes alone."""
    batch: list[_Item] = []
    filled = 0
    for item in items:
        own = size(item)
        if batch and filled + own > room:
            yield batch
            batch, filled = [], 0
        batch.append(item)
        filled += own
        if len(batch) == most:
            yield batch
            batch, filled = [], 0
    if batch:
        yield batch


def distinct(ids: Iterable[str]) -> list[str]:
    """The ids without repetitions, in order; a single string is one id. Raises InputError for other types."""
    if not isinstance(ids, Iterable):
        raise InputError(f"The ids must be a list of texts, not {type(ids).__name__}.")
    names = [ids] if isinstance(ids, str) else list(dict.fromkeys(ids))
    for name in names:
        if not isinstance(name, str):
            raise InputError(f"An id must be a text, not {name!r:.60}.")
    return names


def check_deletable(
    ids: Iterable[str], there: Container[str], owners: Callable[[Sequence[str]], Mapping[str, str]]
) -> list[str]:
    """The ids whose documents exist; InputError for the id of a part of a longer document."""
    names = distinct(ids)
    unknown = [name for name in names if name not in there]
    of = owners(unknown) if unknown else {}
    for name in unknown:
        if name in of:
            raise InputError(
                f"{name!r} is a passage of {of[name]!r}, which can only be deleted as a whole; nothing was deleted."
            )
    return [name for name in names if name in there]


def check_storable(document: Document) -> None:
    """Raise InputError if the id or metadata cannot be stored."""
    try:
        str(document.id).encode()
    except UnicodeEncodeError:
        raise InputError(f"The document id {document.id!r} holds half a character; give it another id.") from None
    for name, value in document.metadata.items():
        try:
            json.dumps(value)
            good = isinstance(name, str)
        except (TypeError, ValueError, RecursionError):
            good = False
        if not good:
            raise InputError(
                f"The metadata {name!r} ({type(value).__name__}) of the document {document.id!r} cannot be stored; "
                "give text, numbers, lists or dicts under names that are text."
            )


def _distinct(documents: Iterable[Document]) -> list[Document]:
    """Leave out a document if the last document with the same id is equal."""
    kept: list[Document] = []
    seen: dict[str | None, Document] = {}
    for document in documents:
        check_storable(document)
        if document.id is None or document != seen.get(document.id):
            kept.append(document)
        seen[document.id] = document
    return kept


def _entry(passages: list[Document]) -> Entry:
    name, first = passages[0].metadata.get("document_id"), str(passages[0].id)
    # A document with a single passage has the id of the passage, whatever its metadata says.
    return Entry(str(name) if first == f"{name}#1" else first, passages)
