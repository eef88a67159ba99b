"""The lexical index of a memory that changes: brought up to date when it is asked."""

from __future__ import annotations

import logging
import threading
from collections.abc import Hashable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.hybrid.bm25 import LexicalIndex
from langgraph_convcoa.retrieval.index.snapshot import Snapshot
from langgraph_convcoa.retrieval.memory import Memory

_LOGGER = logging.getLogger(__name__)
_READ_AT_ONCE = 1000


class LexicalChannel:
    """BM25 scores of whatever memory is being searched, passages that are new since the last search being added first.

    Args:
        path: Where the lexical index of an index on disk was saved with `save`. One that is missing, damaged or of another
            index is made anew, at about a quarter of a millisecond a passage.

    Example:
        >>> from langgraph_convcoa.retrieval.scoring.patterns import Patterns
        >>> patterns = Patterns(np.zeros((4, 1), dtype=np.float32), np.array([0, 2, 4]))
        >>> passages = [Document("A Hopfield network."), Document("BM25 counts words.")]
        >>> memory = Memory(passages, patterns, np.zeros((2, 2), dtype=np.int64))
        >>> LexicalChannel().scores(memory, ["What are words?"]).tolist()
        [[0.0, 1.0]]
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self._lock = threading.Lock()
        self._path = None if path is None else Path(path)
        self._view: Memory | Snapshot | None = None
        self._index = LexicalIndex()
        self._keys: list[Hashable] = []
        # Passages in memory are known by what they are: held here, so that no other can take the place of one.
        self._held: list[Document] = []
        self._columns: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def scores(self, view: Memory | Snapshot, queries: Sequence[str]) -> Vectors:
        """BM25 of every memory set for each query over the query's best, (q, n); 0 for deleted ones and where nothing matches.

        Raises:
            RetrievalError: The passages cannot be read.
            StaleSnapshot: The index has changed since the snapshot; search again.
        """
        with self._lock:
            self._follow(view)
            found = self._index.scores(queries)
            sets = view.patterns.n if isinstance(view, Memory) else len(view.keys)
            if len(self._columns) == sets and (self._columns == np.arange(sets)).all():
                return found
            result: Vectors = np.zeros((len(queries), sets), dtype=np.float32)
            result[:, self._columns] = found
            return result

    def save(self, view: Snapshot, path: str | Path) -> None:
        """Bring the lexical index up to date with an index on disk, and save it.

        Raises:
            RetrievalError: The passages cannot be read, or the file cannot be written.
        """
        with self._lock:
            self._follow(view)
            self._index.save(path, keys=view.keys[self._columns], source=view.head.index)

    def _follow(self, view: Memory | Snapshot) -> None:
        if view is self._view:
            return
        if self._path is not None and isinstance(view, Snapshot):
            self._open(view.head.index)
        numbers, keys = _keys(view)
        known = {key: place for place, key in enumerate(self._keys)}
        old = [place for place, key in enumerate(keys) if key in known]
        new = [place for place, key in enumerate(keys) if key not in known]
        kept = [known[keys[place]] for place in old]
        # Made beside the old one, so that a failure half-way leaves that as it was.
        index = self._index if kept == list(range(len(self._index))) else self._index.select(kept)
        added: list[Document] = []
        for start in range(0, len(new), _READ_AT_ONCE):
            added += _read(view, [int(numbers[place]) for place in new[start : start + _READ_AT_ONCE]])
        index.add(added)
        self._index, self._view = index, view
        self._keys = [keys[place] for place in (*old, *new)]
        self._held = list(view.passages) if isinstance(view, Memory) else []
        self._columns = numbers[np.array([*old, *new], dtype=np.int64)]

    def _open(self, source: str) -> None:
        path, self._path = self._path, None
        if path is None or not path.exists():
            return
        try:
            index = LexicalIndex.load(path)
            index.scores(["check"])
        except RetrievalError as error:
            _LOGGER.warning("The lexical index is made anew: %s", error)
            return
        if index.source == source and len(index.keys) == len(index):
            self._index, self._keys = index, [(source, key) for key in index.keys.tolist()]


def _keys(view: Memory | Snapshot) -> tuple[npt.NDArray[np.int64], list[Hashable]]:
    """The numbers of the memory sets that are there, and what each is known by."""
    if isinstance(view, Memory):
        return np.arange(len(view.passages)), [id(passage) for passage in view.passages]
    numbers = np.arange(len(view.keys)) if view.alive is None else np.flatnonzero(view.alive)
    return numbers, [(view.head.index, key) for key in view.keys[numbers].tolist()]


def _read(view: Memory | Snapshot, numbers: list[int]) -> list[Document]:
    if isinstance(view, Memory):
        return [view.passages[number] for number in numbers]
    return [passage.document for passage in view.fetch(numbers)]
