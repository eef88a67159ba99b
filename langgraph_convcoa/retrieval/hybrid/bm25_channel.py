"""The lexical index of a memory that changes: brought up to date when it is asked."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.corpus import View, read
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.hybrid.bm25 import LexicalIndex

_LOGGER = logging.getLogger(__name__)


class LexicalChannel:
    """BM25 scores of whatever memory is being searched, passages that are new since the last search being added first.

    Args:
        path: Where the lexical index of an index on disk was saved with `save`. One that is missing, damaged or of another
            index is made anew, at about a quarter of a millisecond a passage.

    Example:
        >>> from langchain_core.documents import Document
        >>> from langgraph_convcoa.retrieval.scoring.patterns import Patterns
        >>> patterns = Patterns(np.zeros((4, 1), dtype=np.float32), np.array([0, 2, 4]))
        >>> passages = [Document("A Hopfield network."), Document("BM25 counts words.")]
        >>> from langgraph_convcoa.retrieval.memory import Memory
        >>> memory = Memory(passages, patterns, np.zeros((2, 2), dtype=np.int64))
        >>> LexicalChannel().scores(memory, ["What are words?"]).tolist()
        [[0.0, 1.0]]
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self._lock = threading.Lock()
        self._path = None if path is None else Path(path)
        self._view: View | None = None
        self._index = LexicalIndex()
        # A key is valid in one corpus.
        self._keys: list[tuple[str, int]] = []
        self._columns: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def scores(self, view: View, queries: Sequence[str]) -> Vectors:
        """BM25 of every memory set for each query over the query's best, (q, n); 0 for deleted ones and where nothing matches.

        Raises:
            RetrievalError: The passages cannot be read.
            StaleSnapshot: The index has changed since the snapshot; search again.
        """
        with self._lock:
            self._follow(view)
            found = self._index.scores(queries)
            sets = len(view.keys)
            if len(self._columns) == sets and (self._columns == np.arange(sets)).all():
                return found
            result: Vectors = np.zeros((len(queries), sets), dtype=np.float32)
            result[:, self._columns] = found
            return result

    def save(self, view: View, path: str | Path) -> None:
        """Bring the lexical index up to date with an index on disk, and save it.

        Raises:
            RetrievalError: The passages cannot be read, or the file cannot be written.
        """
        with self._lock:
            self._follow(view)
            self._index.save(path, keys=view.keys[self._columns], source=view.source)

    def _follow(self, view: View) -> None:
        if view is self._view:
            return
        if self._path is not None:
            self._open(view.source)
        numbers = view.numbers
        keys = [(view.source, key) for key in view.keys[numbers].tolist()]
        known = {key: place for place, key in enumerate(self._keys)}
        old = [place for place, key in enumerate(keys) if key in known]
        new = [place for place, key in enumerate(keys) if key not in known]
        kept = [known[keys[place]] for place in old]
        # Made beside the old one, so that a failure half-way leaves that as it was.
        index = self._index if kept == list(range(len(self._index))) else self._index.select(kept)
        index.add([passage.document for passage in read(view, numbers[np.array(new, dtype=np.int64)])])
        self._index, self._view = index, view
        self._keys = [keys[place] for place in (*old, *new)]
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
