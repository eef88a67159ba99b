"""Documents into an index, batch by batch: memory stays bounded by the batch, and a killed run goes on where it stopped."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import NamedTuple, cast

from langchain_core.documents import Document

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.index.documents import Catalogue
from langgraph_convcoa.retrieval.index.entries import check_owners, encoded, select
from langgraph_convcoa.retrieval.index.write import append
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.retrieval.scoring.patterns import PatternType

_LOGGER = logging.getLogger(__name__)
_BATCH_DOCUMENTS = 256
_BATCH_CHARACTERS = 500_000


class Committed(NamedTuple):
    """What one commit did: the ids of the documents in the order they came, and how many were of which kind."""

    ids: list[str]
    added: int
    updated: int
    unchanged: int


def ingest(
    database: Catalogue,
    documents: Iterable[Document],
    encoder: Encoder,
    *,
    replace: bool,
    cache: PatternCache | None = None,
    progress: Progress = False,
) -> Iterator[Committed]:
    """Add documents to an index; what is given back has been committed. The writer's lock must be held.

    A document that is there already with the same content is passed over without being encoded, so that a run that was killed
    goes on where it stopped. One without an id has one made of its title and text, and is passed over where that is there.

    Args:
        database: The index.
        documents: Read as they are needed.
        encoder: The one that the index was built with.
        replace: Whether a document takes the place of one with its id and another content, which else is an error.
        cache: Where encoded patterns are kept between runs.
        progress: A bar, a callback or nothing, in documents.

    Raises:
        InputError: An id or metadata cannot be stored.
        RetrievalError: An id is used twice, or the documents cannot be encoded or written; earlier batches stay.
    """
    total = len(documents) if isinstance(documents, Sized) else None
    empty = 0
    with track(progress, total, "Indexing") as advance:
        for batch in _batches(documents):
            found = [document for document in batch if document.page_content.strip()]
            empty += len(batch) - len(found)
            if len(found) < len(batch) and replace:
                _refuse_emptying(database, batch)
            if found:
                yield _ingest_batch(database, found, encoder, replace, cache)
            advance(len(batch))
    if empty:
        _LOGGER.warning("Left out %d document(s) without text.", empty)


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    characters = 0
    for document in documents:
        batch.append(document)
        characters += len(document.page_content)
        if len(batch) == _BATCH_DOCUMENTS or characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _ingest_batch(
    database: Catalogue, documents: list[Document], encoder: Encoder, replace: bool, cache: PatternCache | None
) -> Committed:
    with database.reading() as connection:
        dtype = cast(PatternType, database.head(connection).dtype)

    def digests(ids: Sequence[str]) -> dict[str, bytes]:
        with database.reading() as connection:
            return database.digests(connection, ids)

    ids, fresh, changed, unchanged = select(documents, encoder, replace=replace, digests=digests)
    todo, replaced = fresh + changed, [entry.id for entry in changed]
    if todo:
        with database.reading() as connection:
            names = [str(passage.document.id) for entry in todo for passage in entry.passages]
            check_owners(todo, database.owners(connection, names), replaced)
        append(database, *encoded(todo, encoder, dtype, cache), replaced)
    return Committed(ids, len(fresh), len(changed), unchanged)


def _refuse_emptying(database: Catalogue, batch: Iterable[Document]) -> None:
    names = [document.id for document in batch if document.id is not None and not document.page_content.strip()]
    with database.reading() as connection:
        there = database.digests(connection, names)
    if there:
        raise RetrievalError(f"The document {next(iter(there))!r} would be left without text; delete it instead.")
