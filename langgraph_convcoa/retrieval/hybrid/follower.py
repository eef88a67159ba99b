"""Keeps an index, which has an entry for each passage, in step with a corpus that changes, and saves the index."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
from langchain_core.documents import Document

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.files import file_state, remove_remains
from langgraph_convcoa.retrieval.corpus import Numbers, View, read
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.hybrid.bm25 import BM25Index

_LOGGER = logging.getLogger(__name__)
_NONE: Numbers = np.zeros(0, dtype=np.int64)
_GONE = -1


class Followed(Protocol):
    """An index with an entry for each passage."""

    source: str  # The corpus in which the keys are valid.
    keys: Numbers  # The key of each entry's passage.

    def __init__(self, *, source: str) -> None: ...
    def __len__(self) -> int: ...
    def save(self, path: Path, /) -> None: ...
    @classmethod
    def load(cls, path: Path, /) -> Self: ...
    def add(self, passages: Iterable[Document], keys: Numbers, /) -> None: ...
    def select(self, numbers: Numbers, /) -> Self: ...


_Index = TypeVar("_Index", bound=Followed)


def behind(changes: int, total: int) -> bool:
    """True if so many passages changed that the file should be written, or read, again."""
    return changes > max(256, total // 200)


class Follower(Generic[_Index]):
    """Keeps an index in step with the searched state of a corpus: new passages are appended, deleted passages removed.

    Its file, written while `lock` is held, only saves time: if it is missing, damaged or of another version or corpus, the
    index is rebuilt.
    """

    name: ClassVar[str]
    kind: type[_Index]

    def __init__(self, path: Path | None = None, lock: Callable[[], AbstractContextManager[object]] = nullcontext) -> None:
        self.path = path
        # The lock must be taken before the guard.
        self._lock, self._guard = lock, threading.RLock()
        self._opened: tuple[int, ...] | None = None
        self._clear()

    def save(self, view: View) -> bool:
        """Bring the index up to date with a view and write its file; False, with a warning, if that fails."""
        if self.path is None:
            return False
        try:
            with self._lock(), self._guard:
                remove_remains(self.path)
                index = self._current(view)
                index.save(self.path)
                self._saved, self._opened = len(index), file_state(self.path)
        except RetrievalError as error:
            _LOGGER.warning("The %s is not kept: %s", self.name, error)
            return False
        return True

    def keep_up(self, view: View) -> None:
        """After additions: write an existing file again if many passages are missing in it."""
        if file_state(self.path):
            with self._guard:
                self._compare(view)
                late = behind(len(view) - self._saved, len(view))
            if late:
                self.save(view)

    def purge(self, view: View) -> None:
        """After deletions: remove the deleted passages from the file."""
        if file_state(self.path) and not self.save(view):
            self.discard()

    def discard(self) -> None:
        """Forget the index, and remove its file."""
        with self._guard:
            self._clear()
            if self.path is not None:
                with suppress(OSError):
                    self.path.unlink()

    def _clear(self) -> None:
        self._index: _Index | None = None
        self._saved = 0
        self._view: View | None = None
        # Compared with the view: each entry's passage number or _GONE, the new passages, and the entries without a passage.
        self._numbers, self._new, self._gone = _NONE, _NONE, _NONE

    def _fits(self, index: _Index, view: View) -> bool:
        return index.source == view.source and len(index.keys) == len(index)

    def _compare(self, view: View) -> None:
        """Find the new and the deleted passages of a view, compared with the index or its file."""
        if self._index is not None and not self._fits(self._index, view):
            _LOGGER.warning("The %s is of another corpus; it is rebuilt.", self.name)
            self._clear()
        if view is self._view:
            return
        if self._index is None:
            self._open(view)
        self._place(view)
        # Another process may have brought the file up to date.
        if behind(len(self._new) + len(self._gone), len(view)) and self._open(view):
            self._place(view)

    def _place(self, view: View) -> None:
        numbers = view.numbers
        keys, held = view.keys[numbers], _NONE if self._index is None else self._index.keys
        places = np.searchsorted(keys, held)
        there = np.flatnonzero(places < len(keys))
        there = there[keys[places[there]] == held[there]]
        self._numbers = np.full(len(held), _GONE, dtype=np.int64)
        self._numbers[there] = numbers[places[there]]
        self._new = np.setdiff1d(numbers, self._numbers[there], assume_unique=True)
        self._gone = np.flatnonzero(self._numbers == _GONE)
        self._view = view

    def _open(self, view: View) -> bool:
        state = file_state(self.path)
        if self.path is None or state is None or state == self._opened:
            return False
        self._opened = state
        try:
            index = self.kind.load(self.path)
        except RetrievalError as error:
            _LOGGER.warning("The %s is rebuilt: %s", self.name, error)
            return False
        if not self._fits(index, view):
            _LOGGER.warning("%s is of another corpus; it is rebuilt.", self.path)
            return False
        self._index, self._saved = index, len(index)
        return True

    def _current(self, view: View) -> _Index:
        """The index for a view; its entries are the passages of `self._numbers`. The caller holds the guard."""
        self._compare(view)
        if self._index is not None and not len(self._new) and not len(self._gone):
            return self._index
        index = self.kind(source=view.source) if self._index is None else self._index
        # Read the passages first, so that a failure leaves the index unchanged.
        added = [passage.document for passage in read(view, self._new)]
        if len(self._gone):
            index = index.select(np.flatnonzero(self._numbers != _GONE))
        index.add(added, view.keys[self._new])
        self._index = index
        self._place(view)
        return index


class BM25Follower(Follower[BM25Index]):
    """BM25 of the passages of a corpus, updated before each search."""

    name, kind = "BM25 index", BM25Index

    def scores(self, view: View, queries: Sequence[str], turns: Sequence[Sequence[tuple[str, str]]] | None = None) -> Vectors:
        """BM25 of each passage, divided by the query's best score, (q, n); as `BM25Index.scores`."""
        with self._guard:
            index, numbers = self._current(view), self._numbers
            found = index.scores(queries, turns)
        if len(numbers) == len(view.keys) and (numbers == np.arange(len(numbers))).all():
            return found
        result: Vectors = np.zeros((len(found), len(view.keys)), dtype=np.float32)
        result[:, numbers] = found
        return result
