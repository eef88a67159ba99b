"""Loading documents into an engine: they are split, encoded and stored batch by batch, so that a stopped run can resume."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial

from langchain_core.documents import Document

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.changes import Committed, batches_of, select
from langgraph_convcoa.retrieval.editing import checked_documents
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.engine.base import Engine, StoredPassage, check_document, stored_passages
from langgraph_convcoa.retrieval.progress import Progress, track

_AHEAD = 4
"""Most encoded batches that wait to be written."""
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
    """Load any number of documents into an engine by its fastest path.

    A document with the same id and content as a stored one is skipped without being encoded; with other content, it replaces
    the stored one. So a killed run can be run again: nothing is lost or doubled. Several processes may load together.

    Args:
        engine: From `open_engine`; the collection is made if it is missing.
        documents: Read as they are needed. A document without an id gets an id made of its title and text.
        encoder: The encoder of the collection.
        cache: Keeps encoded patterns between runs.
        progress: True for a bar, or a callback; they count documents.
        settle: Build the indexes for searches at the end. False if several processes load inside `loading_elsewhere`.

    Returns:
        The numbers of documents added, updated and unchanged, and of passages written; without the ids.

    Raises:
        InputError: A document cannot be stored. Nothing is written if the documents are a list; else earlier batches stay.
        RetrievalError: The collection has another encoder, a document cannot be encoded, or the engine refuses.

    Example:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langgraph_convcoa.retrieval.encoders.choice import as_encoder
        >>> from langgraph_convcoa.retrieval.engine.memory import MemoryEngine
        >>> engine, encoder = MemoryEngine(), as_encoder(DeterministicFakeEmbedding(size=8))
        >>> load_into(engine, [Document("Ada wrote it.", id="a"), Document("It was in 1843.", id="b")], encoder).added
        2
    """
    engine.open(encoder.dimension, encoder.name, create=True)
    with loading_elsewhere(engine) if settle else nullcontext():
        return Committed.total(ingest(engine, documents, encoder, replace=True, cache=cache, progress=progress))


@contextmanager
def loading_elsewhere(engine: Engine) -> Iterator[None]:
    """A block in which processes load with `settle=False`; the indexes for searches are built at its end."""
    with engine.loading():
        yield
    try:
        engine.settle()
    except RetrievalError as error:
        raise RetrievalError(f"{error} {_LOADED}") from error
    except KeyboardInterrupt:
        _LOGGER.warning("%s: %s", engine.name, _LOADED)
        raise


def ingest(
    engine: Engine,
    documents: Iterable[Document],
    encoder: Encoder,
    *,
    replace: bool,
    cache: PatternCache | None = None,
    progress: Progress = False,
) -> Iterator[Committed]:
    """Add documents in batches of up to 256; each yielded result has been committed.

    One batch is encoded while earlier batches are written; at most four batches wait. If reading fails, the encoded batches
    are still written.
    """
    if isinstance(documents, Sequence):
        for document in checked_documents(documents):
            check_document(document)
    engine.open(encoder.dimension, encoder.name, create=True)
    total = len(documents) if isinstance(documents, Sized) else None
    waiting: deque[tuple[Future[None], Committed]] = deque()
    failed = threading.Event()

    def put(passages: Sequence[StoredPassage]) -> None:
        if failed.is_set():
            return
        try:
            engine.put(passages)
        except BaseException:
            failed.set()
            raise

    with track(progress, total, "Loading") as advance, ThreadPoolExecutor(1, "convcoa-load") as pool:

        def written(most: int) -> Iterator[Committed]:
            """Wait until at most `most` batches are unwritten."""
            while len(waiting) > most:
                writing, done = waiting.popleft()
                writing.result()
                advance(done.given)
                yield done

        for batch in batches_of(checked_documents(documents)):
            for document in batch:
                check_document(document)
            # The engine compares the ids of passages when it writes.
            chosen = select(batch, encoder, replace=replace, digests=partial(_digests, engine), owners=lambda _ids: {})
            waiting.append((pool.submit(put, stored_passages(chosen.entries, encoder, cache)), chosen.done))
            yield from written(_AHEAD)
        yield from written(0)


def _digests(engine: Engine, ids: Sequence[str]) -> dict[str, bytes]:
    return engine.digests(ids) if ids else {}
