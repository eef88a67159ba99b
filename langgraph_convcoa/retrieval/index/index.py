"""The index: a memory of passages and their patterns in a folder, that is searched where it lies."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.documents.split import Span
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.filters import Filter
from langgraph_convcoa.retrieval.hybrid.ann import ApproximateSettings
from langgraph_convcoa.retrieval.index.beside import Beside
from langgraph_convcoa.retrieval.index.build import Committed, ingest
from langgraph_convcoa.retrieval.index.database import Head
from langgraph_convcoa.retrieval.index.documents import Catalogue, Passage
from langgraph_convcoa.retrieval.index.file import WriterLock
from langgraph_convcoa.retrieval.index.save import new_head, prepare_folder
from langgraph_convcoa.retrieval.index.snapshot import Checked, Snapshot
from langgraph_convcoa.retrieval.index.verify import verify
from langgraph_convcoa.retrieval.index.write import gathered, remove, rewrite
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.retrieval.scoring.patterns import Patterns, PatternType

_OPENINGS = 5


class Index:
    """An index in a folder: memory-mapped patterns, and a database of documents, metadata and settings beside them.

    Opening reads no pattern; each block of patterns is compared with its checksum before its first use. Any number of
    processes may read while one writes, and see each commit from their next search on. A process that is killed leaves the
    index as it was after its last commit.

    Args:
        path: The folder.

    Attributes:
        beside: Its lexical channel and its approximate stage.

    Raises:
        RetrievalError: There is no index, it is of another version, damaged or cut short.

    Example:
        >>> import tempfile
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langgraph_convcoa.retrieval.encoders.embeddings import EmbeddingsEncoder
        >>> encoder = EmbeddingsEncoder(DeterministicFakeEmbedding(size=8), name="fake")
        >>> index = Index.create(tempfile.mkdtemp(), encoder, dtype="int8")
        >>> index.add_documents([Document("Ada wrote it.", id="a"), Document("It was in 1843.", id="b")], encoder)
        ['a', 'b']
        >>> index.delete(["a"])
        >>> len(index), len(Index(index.path))
        (1, 1)
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._database = Catalogue(self.path)
        self._lock = WriterLock(self.path)
        self._checked = Checked()
        self._guard = threading.Lock()
        self.beside = Beside(self.path, self._lock)
        self._current: Snapshot | None = None
        self.snapshot()

    @classmethod
    def create(
        cls, path: str | Path, encoder: Encoder, *, dtype: PatternType = "float32", settings: Mapping[str, Any] | None = None
    ) -> Index:
        """Make an index of nothing.

        Args:
            path: A folder that is empty or does not exist.
            encoder: What its documents will be encoded with.
            dtype: How patterns are stored.
            settings: Settings of a retriever, kept with it.

        Raises:
            InputError: There is no such type.
            RetrievalError: The folder holds something, cannot be made, or the encoder cannot be told from another.
        """
        folder = Path(path)
        database = Catalogue(folder)
        if database.exists():
            raise RetrievalError(f"{folder} holds an index already; open it, or name another folder.")
        head = new_head(encoder, dtype, settings)
        prepare_folder(folder)
        with WriterLock(folder).held():
            rewrite(database, head, [], [])
        return cls(folder)

    def __repr__(self) -> str:
        return f"Index({str(self.path)!r})"

    def __len__(self) -> int:
        return len(self.snapshot())

    # What it is ---------------------------------------------------------------------------------------------------------

    @property
    def head(self) -> Head:
        """Its encoder, type, dimension, settings and counts."""
        return self.snapshot().head

    @property
    def dimension(self) -> int:
        """Length d of a pattern."""
        return self.head.dimension

    @property
    def document_count(self) -> int:
        """How many documents it holds."""
        with self._database.reading() as connection:
            return self._database.count_documents(connection)

    # Reading ------------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """The present state, which a search sees from its start to its end."""
        with self._guard:
            for attempt in range(_OPENINGS):
                try:
                    self._current = Snapshot.load(self._database, self._checked, self._current)
                    break
                except FileNotFoundError as error:
                    # Replaced by another generation between the reading of the head and the opening of the file.
                    if attempt == _OPENINGS - 1:
                        raise RetrievalError(
                            f"{error.filename} is missing; restore it from a copy, or build the index again."
                        ) from error
            assert self._current is not None
            return self._current

    @property
    def patterns(self) -> Patterns:
        """The patterns of all memory sets, those of deleted passages too."""
        return self.snapshot().patterns

    @property
    def passages(self) -> Sequence[Document]:
        """The passages by the number of their memory set, read when they are asked for; a deleted one is an empty document."""
        return self.snapshot().passages

    def fetch(self, numbers: Sequence[int]) -> list[Passage]:
        """The passages of these memory sets, with their windows."""
        return self.snapshot().fetch(numbers)

    def set_spans(self, index: int) -> list[Span]:
        """Where the windows of a passage stand in its text."""
        return self.snapshot().set_spans(index)

    def allowed(self, condition: Filter | None) -> npt.NDArray[np.bool_] | None:
        """(n,), True for the memory sets that are not deleted and meet the condition; None where all do."""
        return self.snapshot().allowed(condition)

    def verify(self) -> None:
        """Read everything and compare it with its checksums.

        Raises:
            RetrievalError: Something is damaged; the message says what.
        """

        def load() -> Snapshot:
            with self._guard:
                self._current, self._checked = None, Checked()
            return self.snapshot()

        verify(self._database, load)

    # Writing ------------------------------------------------------------------------------------------------------------

    def ingest(
        self,
        documents: Iterable[Document],
        encoder: Encoder,
        *,
        replace: bool = False,
        cache: PatternCache | None = None,
        progress: Progress = False,
    ) -> Iterator[Committed]:
        """`add_documents`, or with `replace` `update`, one commit at a time."""
        self.snapshot().check_encoder(encoder)
        with self._lock.held():
            yield from ingest(self._database, documents, encoder, replace=replace, cache=cache, progress=progress)

    def add_documents(
        self,
        documents: Iterable[Document],
        encoder: Encoder,
        *,
        cache: PatternCache | None = None,
        progress: Progress = False,
    ) -> list[str]:
        """Add documents; when this returns they are on the disk.

        A document that is there already, with the same id and content, is passed over, so that a run that was killed can
        be run again. Memory stays bounded by the batch, of up to 256 documents.

        Returns:
            The ids of the documents, in order; those without text are left out.

        Raises:
            InputError: An id or metadata cannot be stored.
            RetrievalError: The encoder is another, an id is there with another content, the documents cannot be encoded, or
                the index cannot be written to. Batches before the one that failed stay.
        """
        done = self.ingest(documents, encoder, cache=cache, progress=progress)
        ids = [identity for batch in done for identity in batch.ids]
        self.keep_up()
        return ids

    def update(
        self,
        documents: Iterable[Document],
        encoder: Encoder,
        *,
        cache: PatternCache | None = None,
        progress: Progress = False,
    ) -> list[str]:
        """`add_documents`, where a document takes the place of the one that has its id."""
        done = self.ingest(documents, encoder, replace=True, cache=cache, progress=progress)
        ids = [identity for batch in done for identity in batch.ids]
        self.beside.forget_words(self.snapshot())
        self.keep_up()
        return ids

    def delete(self, ids: Iterable[str]) -> None:
        """Delete documents: their text at once, their patterns when the index is compacted.

        Raises:
            InputError: There is no such document; nothing is deleted.
        """
        names = list(dict.fromkeys([ids] if isinstance(ids, str) else ids))
        with self._lock.held():
            self._database.check_documents(names)
            if names:
                remove(self._database, names)
                self.beside.forget_words(self.snapshot())

    def compact(self) -> None:
        """Write the index anew without what was deleted; readers go on with what they see."""
        with self._lock.held():
            snapshot = self.snapshot()
            alive = snapshot.alive
            numbers = np.arange(len(snapshot.keys)) if alive is None else np.flatnonzero(alive)
            head = dataclasses.replace(snapshot.head, generation=snapshot.head.generation + 1)
            sets = ((snapshot.keys[part], stored) for part, stored in gathered(snapshot.patterns, numbers))
            rewrite(self._database, head, sets, None)
            # The index is compacted; where readers keep the database busy, its file only stays larger.
            with suppress(RetrievalError):
                self._database.shrink()
            self.beside.compacted(self.snapshot())

    def save_lexical(self) -> bool:
        """Write the lexical index beside the patterns, so that the next process need not read all passages for it.

        `add_documents` does it where there is one and much is missing in it (more than 256 passages and 1 in 200); a
        deletion, an update and `compact` always, so that no word of what was deleted stays. Where it cannot be written, False
        is returned: that costs the next process the time, and nothing else.
        """
        return self.beside.save_lexical(self.snapshot())

    def save_approximate(
        self, settings: ApproximateSettings, *, passage_weight: float = 1.0, progress: Progress = False
    ) -> bool:
        """Bring the graph of the approximate stage up to date and write it beside the patterns.

        Args:
            settings: Of the stage; a graph of other settings is built anew.
            passage_weight: w of the search.
            progress: A bar, a callback or nothing.

        Returns:
            False where it could not be written, which costs the next process the time.

        Raises:
            RetrievalError: usearch is not installed, or the patterns are damaged.
        """
        return self.beside.save_approximate(self.snapshot(), settings, passage_weight=passage_weight, progress=progress)

    def keep_up(self) -> None:
        """After additions: write the words and the graph anew where they are kept and much is missing in them."""
        self.beside.keep_up(self.snapshot())

    def put_settings(self, settings: Mapping[str, Any]) -> None:
        """Keep other settings of a retriever with the index."""
        with self._lock.held(), self._database.writing() as connection:
            head = self._database.head(connection)
            changed = dataclasses.replace(head, settings=dict(settings), commits=head.commits + 1)
            self._database.put_head(connection, changed)
