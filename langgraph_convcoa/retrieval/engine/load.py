"""Writing documents into an engine: split, encoded and stored batch by batch, so that a run that was stopped goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from typing import NamedTuple

from langchain_core.documents import Document

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.changes import Committed, batches_of, select
from langgraph_convcoa.retrieval.editing import checked_documents
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.engine.base import Engine, StoredPassage, check_document, stored_passages
from langgraph_convcoa.retrieval.progress import Progress, track

_AHEAD = 4
"""Batches that are encoded and wait to be written."""
_LOADED = (
    "All documents are loaded and stay so. Only the indexes that make searches fast are not finished: load the same again to "
    "finish them, and nothing is encoded or written a second time."
)
_LOGGER = logging.getLogger(__name__)


def load_into(
    engine: Engine,
    documents: Iterable[Document],
    encoder: Encoder,
    *,
    cache: PatternCache | None = None,
    progress: Progress = False,
    settle: bool = True,
) -> Committed:
    """Load documents into an engine by its fastest path, however many there are.

    A document that is there with the same id and content is passed over without being encoded, and one with another content
    is replaced, so that a run that was killed at any moment can be run again: nothing is lost or doubled. Several processes
    may load into one collection.

    Args:
        engine: Of `open_engine`; the collection is made where there is none.
        documents: Read as they are needed. One without an id gets one made of its title and text.
        encoder: The one of the collection.
        cache: Where encoded patterns are kept between runs.
        progress: A bar, a callback or nothing, in documents that were written or passed over.
        settle: Whether to build at the end what searches need. Not where this is one of many processes: one of them loads
            within `loading_elsewhere`.

    Returns:
        How many documents were added, updated and unchanged, and how many passages were written; without the ids.

    Raises:
        InputError: A document cannot be stored. Nothing is written where the documents are a list; else earlier batches stay.
        RetrievalError: The collection is of another encoder, a document cannot be encoded, or the engine refuses.

    Example:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langgraph_convcoa.retrieval.encoders.choice import as_encoder
        >>> from langgraph_convcoa.retrieval.engine.memory import MemoryEngine
        >>> engine, encoder = MemoryEngine(), as_encoder(DeterministicFakeEmbedding(size=8))
        >>> load_into(engine, [Document("Ada wrote it.", id="a"), Document("It was in 1843.", id="b")], encoder).added
        2
        >>> load_into(engine, [Document("Ada wrote it.", id="a"), Document("It was in 1842.", id="b")], encoder)
        Committed(ids=(), added=0, updated=1, unchanged=1, passages=1, given=2)
    """
    engine.open(encoder.dimension, encoder.name, create=True)
    with engine.loading() if settle else nullcontext():
        done = Committed.total(ingest(engine, documents, encoder, replace=True, cache=cache, progress=progress))
    if settle:
        _settle(engine)
    return done


@contextmanager
def loading_elsewhere(engine: Engine) -> Iterator[None]:
    """While other processes load into a collection with `settle=False`: the fastest path for it, and `settle` afterwards."""
    with engine.loading():
        yield
    _settle(engine)


def ingest(
    engine: Engine,
    documents: Iterable[Document],
    encoder: Encoder,
    *,
    replace: bool,
    cache: PatternCache | None = None,
    progress: Progress = False,
) -> Iterator[Committed]:
    """Add documents to an engine, in batches of up to 256; what is given back has been committed.

    While a batch is encoded, those before it are written; at most four wait, and are written together. What is encoded when
    the reading ends with an error is written, so that the next run need not encode it again.
    """
    if isinstance(documents, Sequence):
        # All of them are there to be looked at before anything is written.
        for document in checked_documents(documents):
            check_document(document)
    engine.open(encoder.dimension, encoder.name, create=True)
    total = len(documents) if isinstance(documents, Sized) else None
    with track(progress, total, "Loading") as advance, ThreadPoolExecutor(1, "convcoa-load") as pool:
        writer = _Writer(engine, pool)

        def commits() -> Iterator[Committed]:
            for batch in batches_of(checked_documents(documents)):
                yield from writer.put(_prepared(engine, batch, encoder, replace, cache))
            yield from writer.rest()

        try:
            for done in commits():
                advance(done.given)
                yield done
        except BaseException:
            with suppress(RetrievalError):
                for _ in writer.rest():
                    pass
            raise


class _Prepared(NamedTuple):
    """A batch of documents, encoded: the passages that are to be written, and what that does."""

    passages: list[StoredPassage]
    done: Committed

    @property
    def names(self) -> set[str]:
        """The ids of its documents and passages, none of which may come twice in a transaction."""
        return {name for passage in self.passages for name in (passage.document, passage.id)}


def _prepared(
    engine: Engine, documents: Sequence[Document], encoder: Encoder, replace: bool, cache: PatternCache | None
) -> _Prepared:
    """Split and encode those of a batch of documents that the engine has not, or has with another content."""
    for document in documents:
        check_document(document)
    # The engine compares the ids of passages when it writes.
    chosen = select(
        documents,
        encoder,
        replace=replace,
        digests=lambda ids: engine.digests(ids) if ids else {},
        owners=lambda _ids: {},
    )
    return _Prepared(stored_passages(chosen.entries, encoder, cache=cache), chosen.done)


class _Writer:
    """Writes batches in a thread of its own, while the next one is encoded."""

    def __init__(self, engine: Engine, pool: ThreadPoolExecutor) -> None:
        self._engine, self._pool = engine, pool
        self._waiting: list[_Prepared] = []
        self._written: list[_Prepared] = []
        self._writing: Future[None] | None = None

    def put(self, batch: _Prepared) -> Iterator[Committed]:
        """Hand over a batch; gives what was committed since. Raises what writing raised."""
        if not batch.passages:
            yield batch.done
            return
        self._waiting.append(batch)
        if self._writing is None or self._writing.done() or len(self._waiting) == _AHEAD:
            yield from self._next()

    def rest(self) -> Iterator[Committed]:
        """Wait until all is written."""
        while self._writing is not None or self._waiting:
            yield from self._next()

    def _next(self) -> Iterator[Committed]:
        """Wait for what is being written, then write what waits."""
        if self._writing is not None:
            try:
                self._writing.result()
            except Exception:
                self._waiting, self._writing = [], None
                raise
            self._writing = None
            yield from (batch.done for batch in self._written)
        self._written, names = [], set[str]()
        # A document that comes again is written after itself.
        while self._waiting and names.isdisjoint(self._waiting[0].names):
            self._written.append(self._waiting.pop(0))
            names |= self._written[-1].names
        if self._written:
            passages = [passage for batch in self._written for passage in batch.passages]
            self._writing = self._pool.submit(self._engine.put, passages)


def _settle(engine: Engine) -> None:
    try:
        engine.settle()
    except RetrievalError as error:
        raise RetrievalError(f"{error} {_LOADED}") from error
    except KeyboardInterrupt:
        _LOGGER.warning("%s: %s", engine.name, _LOADED)
        raise
