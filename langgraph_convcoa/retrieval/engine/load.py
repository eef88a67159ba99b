"""Loading many documents into an engine: split, encoded and stored batch by batch, so that a run that was stopped goes on."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence, Sized
from contextlib import closing, contextmanager, nullcontext, suppress
from enum import Enum
from queue import Empty, Full, Queue, SimpleQueue
from threading import Thread
from typing import NamedTuple

from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.changes import batches_of, select
from langgraph_convcoa.retrieval.editing import checked_documents
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.engine.base import Engine, StoredPassage, check_document, stored_passages
from langgraph_convcoa.retrieval.progress import Progress, track

_AHEAD = 4
"""Batches that are encoded and wait to be written."""
_TOGETHER = 1_280
"""Passages from which on batches that wait are not written together: each transaction costs some ten answers of the server."""
_LOOK_AGAIN = 0.2
_LOADED = (
    "All documents are loaded and stay so. Only the indexes that make searches fast are not finished: load the same again to "
    "finish them, and nothing is encoded or written a second time."
)
_LOGGER = logging.getLogger(__name__)


class Loaded(NamedTuple):
    """What a run did: its documents by what became of them, and the passages that it wrote."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    passages: int = 0

    @property
    def documents(self) -> int:
        """All of them; those without text are not counted."""
        return self.added + self.updated + self.unchanged

    def plus(self, other: Loaded) -> Loaded:
        """Both together."""
        return Loaded(*(one + two for one, two in zip(self, other, strict=True)))


class Prepared(NamedTuple):
    """A batch of documents, encoded: the passages that are to be written, and what that does."""

    passages: list[StoredPassage]
    given: int  # Documents, those without text too.
    done: Loaded


def load_into(
    engine: Engine,
    documents: Iterable[Document | Sequence[Document]],
    encoder: Encoder,
    *,
    cache: PatternCache | None = None,
    progress: Progress = False,
    settle: bool = True,
) -> Loaded:
    """Load documents into an engine, however many there are.

    They are read as they are needed, in batches of up to 256: one is encoded while those before it are written, and at most
    four wait, to be written together. A document that is there with the same id and content is passed over without being
    encoded, and one with another content is replaced, so that a run that was killed at any moment is run again, and nothing
    is lost or doubled. Several processes may load into one collection.

    Args:
        engine: Of `open_engine`; the collection is made where there is none.
        documents: Documents, or batches of them, such as the rows of a partition; iterated in the calling thread. One without
            an id gets one made of its title and text.
        encoder: The one of the collection.
        cache: Where encoded patterns are kept between runs.
        progress: A bar, a callback or nothing, in documents that were written or passed over.
        settle: Whether to build at the end what searches need; not where this is one of many processes, of which one uses
            `loading_elsewhere`.

    Returns:
        How many documents were added, updated and unchanged, and how many passages were written.

    Raises:
        InputError: A document cannot be stored. Nothing is written where the documents are a list; else batches before that
            of this document stay, and nothing of its own. Where it is the engine that refuses, those that were to be written
            together with it are not either.
        RetrievalError: The collection is of another encoder, a document cannot be encoded, or the engine refuses.

    Example:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langgraph_convcoa.retrieval.encoders.choice import as_encoder
        >>> from langgraph_convcoa.retrieval.engine.memory import MemoryEngine
        >>> engine, encoder = MemoryEngine(), as_encoder(DeterministicFakeEmbedding(size=8))
        >>> load_into(engine, [Document("Ada wrote it.", id="a"), Document("It was in 1843.", id="b")], encoder)
        Loaded(added=2, updated=0, unchanged=0, passages=2)
        >>> load_into(engine, [Document("Ada wrote it.", id="a"), Document("It was in 1842.", id="b")], encoder)
        Loaded(added=0, updated=1, unchanged=1, passages=1)
    """
    if isinstance(documents, list | tuple):
        # All of them are there to be looked at before anything is written.
        for document in checked_documents(_each(documents)):
            check_document(document)
    engine.open(encoder.dimension, encoder.name, create=True)
    loaded = Loaded()
    total = len(documents) if isinstance(documents, Sized) else None
    with track(progress, total, "Loading") as advance, _Writer(engine, settle) as writer:

        def note(written: Iterable[Prepared]) -> None:
            nonlocal loaded
            for batch in written:
                loaded = loaded.plus(batch.done)
                advance(batch.given)

        for batch in batches_of(checked_documents(_each(documents))):
            prepared = prepare(engine, batch, encoder, cache)
            if prepared.passages:
                note(writer.put(prepared))
            else:
                note([prepared])
        note(writer.end())
    if settle:
        # Not in the writer's thread, so that Ctrl-C ends it.
        _settle(engine)
    return loaded


@contextmanager
def loading_elsewhere(engine: Engine) -> Iterator[None]:
    """While other processes load into a collection with `settle=False`: the fastest path for it, and `settle` afterwards.

    Example:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langgraph_convcoa.retrieval.encoders.choice import as_encoder
        >>> from langgraph_convcoa.retrieval.engine.memory import MemoryEngine
        >>> engine, encoder = MemoryEngine(), as_encoder(DeterministicFakeEmbedding(size=8))
        >>> with loading_elsewhere(engine):
        ...     load_into(engine, [Document("Ada wrote it.", id="a")], encoder, settle=False).passages
        1
    """
    # A bulk of one batch of nothing, which ends when the block does.
    steps = engine.bulk([[]])
    with closing(steps) if isinstance(steps, Generator) else nullcontext():
        next(steps)
        yield
    _settle(engine)


def prepare(engine: Engine, documents: Sequence[Document], encoder: Encoder, cache: PatternCache | None = None) -> Prepared:
    """Split and encode those of a batch of documents that the engine has not, or has with another content."""
    for document in documents:
        check_document(document)
    chosen = select(
        documents,
        encoder,
        replace=True,
        digests=lambda ids: engine.digests(ids) if ids else {},
        # The engine looks at them when it writes.
        owners=lambda _ids: {},
    )
    passages = stored_passages(chosen.entries, encoder, cache=cache)
    updated = len(chosen.replaced)
    done = Loaded(len(chosen.entries) - updated, updated, chosen.unchanged, len(passages))
    return Prepared(passages, len(documents), done)


def _settle(engine: Engine) -> None:
    try:
        engine.settle()
    except RetrievalError as error:
        raise RetrievalError(f"{error} {_LOADED}") from error
    except KeyboardInterrupt:
        _LOGGER.warning("%s: %s", engine.name, _LOADED)
        raise


def _each(documents: Iterable[Document | Sequence[Document]]) -> Iterator[Document]:
    if not isinstance(documents, Iterable):
        raise InputError(f"The documents must be a list or another iterable, not {type(documents).__name__}.")
    for item in documents:
        if isinstance(item, list | tuple):
            yield from item
        else:
            # Whatever else it is, it is told by the caller.
            yield item  # type: ignore[misc]


class _Writer:
    """Writes batches in a thread of its own, while the next one is encoded."""

    def __init__(self, engine: Engine, bulk: bool) -> None:
        self._engine, self._bulk = engine, bulk
        self._ready: Queue[Prepared | _End] = Queue(_AHEAD)
        # What the engine has been given and has not committed: batches that are written together.
        self._taken: deque[list[Prepared]] = deque()
        self._written: SimpleQueue[Prepared] = SimpleQueue()
        self._error: BaseException | None = None
        self._thread = Thread(target=self._write, name="convcoa-load", daemon=True)
        self._steps = engine.bulk(self._batches()) if bulk else map(engine.put, self._batches())

    def __enter__(self) -> _Writer:
        if self._bulk:
            # In this thread, so that Ctrl-C ends its wait for another load's indexes.
            next(self._steps)
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            # Something else fails, or Ctrl-C is pressed: what waits is written, so that it is not encoded again.
            self._hand_over(_End.CUT_SHORT)
            self._thread.join()

    def put(self, batch: Prepared) -> list[Prepared]:
        """Hand over a batch, once there is room; gives those that have been written since. Raises what writing raised."""
        self._hand_over(batch)
        return self._news()

    def end(self) -> list[Prepared]:
        """Wait until all is written; gives what has been since."""
        self._hand_over(_End.ALL)
        self._thread.join()
        return self._news()

    def _hand_over(self, batch: Prepared | _End) -> None:
        while self._thread.is_alive():
            with suppress(Full):
                self._ready.put(batch, timeout=_LOOK_AGAIN)
                return

    def _news(self) -> list[Prepared]:
        if self._error is not None:
            raise self._error
        found: list[Prepared] = []
        with suppress(Empty):
            while True:
                found.append(self._written.get_nowait())
        return found

    def _write(self) -> None:
        try:
            for _ in self._steps:
                for batch in self._taken.popleft():
                    self._written.put(batch)
        except _CutShortError:
            pass
        except BaseException as error:  # noqa: BLE001 - it is raised in the thread that waits for it
            self._error = error

    def _batches(self) -> Iterator[list[StoredPassage]]:
        if self._bulk:
            yield []
            if self._thread.ident is None:
                raise RetrievalError(f"{self._engine.name} gave no size of an empty batch, as `bulk` must.")
        following: Prepared | _End | None = None
        while not isinstance(batch := following or self._ready.get(), _End):
            together, names, count, following = [batch], _names(batch), len(batch.passages), None
            while count < _TOGETHER and isinstance(following := self._waiting(), Prepared):
                # A document that comes again is written after itself.
                if not names.isdisjoint(again := _names(following)):
                    break
                together.append(following)
                names |= again
                count += len(following.passages)
                following = None
            self._taken.append(together)
            yield [passage for one in together for passage in one.passages]
        if batch is _End.CUT_SHORT:
            raise _CutShortError

    def _waiting(self) -> Prepared | _End | None:
        """The next batch, where one waits already."""
        with suppress(Empty):
            return self._ready.get_nowait()
        return None


def _names(batch: Prepared) -> set[str]:
    """The ids of its documents and passages, none of which may come twice in a transaction."""
    return {name for passage in batch.passages for name in (passage.document, passage.id)}


class _End(Enum):
    """How the batches end."""

    ALL = 1
    CUT_SHORT = 2


class _CutShortError(Exception):
    """There are more batches, which do not come."""
