"""Keeps the BM25 and ANN indexes in step with a corpus that changes, and saves them."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
from langchain_core.documents import Document

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.files import remove_remains
from langgraph_convcoa.retrieval.corpus import Numbers, View, read
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.hybrid.ann import GONE, ANNIndex, ApproximateSettings, search_candidates
from langgraph_convcoa.retrieval.hybrid.bm25 import BM25Index
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.retrieval.scoring.patterns import HopfieldWeights
from langgraph_convcoa.retrieval.scoring.topk import Ranking

_LOGGER = logging.getLogger(__name__)
_NONE: Numbers = np.zeros(0, dtype=np.int64)


class Followed(Protocol):
    """An index that is kept in step: the key of each of its entries, and the corpus where they are valid."""

    source: str
    keys: Numbers

    def save(self, path: Path, /) -> None:
        """Write it to a file."""


class Listed(Followed, Protocol):
    """One with an entry for each passage, made of its text."""

    def add(self, passages: Iterable[Document], keys: Numbers, /) -> None:
        """Append passages with their keys."""

    def select(self, numbers: Numbers, /) -> Self:
        """A new index of some of the entries."""


_Index = TypeVar("_Index", bound=Followed)
_Listed = TypeVar("_Listed", bound=Listed)


def behind(changes: int, total: int) -> bool:
    """Whether so many of all passages are too many to do without, or to be added by each process again."""
    return changes > max(256, total // 200)


class Follower(ABC, Generic[_Index]):
    """An index over whichever state of a corpus is searched; the keys of passages show which are new and which are gone.

    The file that it is kept in, written while `lock` is held, is never needed: one that is missing, damaged or of another
    version, corpus or settings costs time, as the index is then rebuilt.
    """

    name: ClassVar[str]

    def __init__(self, path: Path | None = None, lock: Callable[[], AbstractContextManager[object]] = nullcontext) -> None:
        self.path = path
        # Where both are taken, the lock is taken first.
        self._lock, self._guard = lock, threading.RLock()
        self._opened: tuple[int, ...] | None = None
        self._clear()

    @abstractmethod
    def _load(self, path: Path) -> _Index:
        """The index of the file; RetrievalError where it cannot be used."""

    @abstractmethod
    def _update(self, view: View, progress: Progress, checkpoint: Callable[[], object] | None = None) -> None:
        """Bring the index up to date with a view."""

    def save(self, view: View, progress: Progress = False) -> bool:
        """Bring the index up to date with a view and write it to its file; False, with a warning, where that fails."""
        if self.path is None:
            return False
        try:
            with self._lock(), self._guard:
                remove_remains(self.path)
                self._update(view, progress, self._write)
                self._write()
        except RetrievalError as error:
            _LOGGER.warning("The %s is not kept: %s", self.name, error)
            return False
        return True

    def keep_up(self, view: View) -> None:
        """After additions: write the file, where there is one, again if many passages are missing in it."""
        if self._kept():
            with self._guard:
                self._compare(view)
                late = behind(len(view) - self._saved, len(view))
            if late:
                self.save(view, progress=True)

    def purge(self, view: View) -> None:
        """After deletions: leave nothing of what was deleted in the file."""
        if self._kept() and not self.save(view):
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
        # The passage of each entry by its number in the view, GONE where it is not there; the passages without an entry; and
        # the entries whose passages are not there any more.
        self._numbers, self._new, self._gone = _NONE, _NONE, _NONE

    def _fits(self, index: _Index, view: View) -> bool:
        return index.source == view.source

    def _compare(self, view: View) -> None:
        """Find out what of a view is new and what is gone, in the index that is there or that of the file."""
        if self._index is not None and not self._fits(self._index, view):
            _LOGGER.warning("The %s is of another corpus or of other settings; it is rebuilt.", self.name)
            self._clear()
        if view is self._view:
            return
        if self._index is None:
            self._open(view)
        self._place(view)
        # Another process may have brought the file up to date.
        if self._lags(view) and self._open(view):
            self._place(view)

    def _place(self, view: View) -> None:
        numbers = view.numbers
        keys, held = view.keys[numbers], _NONE if self._index is None else self._index.keys
        places = np.searchsorted(keys, held)
        there = np.flatnonzero(places < len(keys))
        there = there[keys[places[there]] == held[there]]
        self._numbers = np.full(len(held), GONE, dtype=np.int64)
        self._numbers[there] = numbers[places[there]]
        self._new = np.setdiff1d(numbers, self._numbers[there], assume_unique=True)
        self._gone = np.flatnonzero((self._numbers == GONE) & (held != GONE))
        self._view = view

    def _lags(self, view: View) -> bool:
        return behind(len(self._new) + len(self._gone), len(view))

    def _open(self, view: View) -> bool:
        """Take the index of the file where it is one that fits and is not taken yet."""
        state = _state(self.path)
        if self.path is None or state is None or state == self._opened:
            return False
        self._opened = state
        try:
            index = self._load(self.path)
        except RetrievalError as error:
            _LOGGER.warning("The %s is rebuilt: %s", self.name, error)
            return False
        if not self._fits(index, view):
            _LOGGER.warning("%s is of another corpus or of other settings; it is rebuilt.", self.path)
            return False
        self._index, self._saved = index, len(index.keys)
        return True

    def _write(self) -> None:
        assert self.path is not None
        assert self._index is not None
        self._index.save(self.path)
        self._saved, self._opened = len(self._index.keys), _state(self.path)

    def _kept(self) -> bool:
        return self.path is not None and self.path.is_file()


class PassageFollower(Follower[_Listed], Generic[_Listed]):
    """A follower of an index with an entry for each passage: new passages are appended, and deleted ones leave nothing."""

    @abstractmethod
    def _empty(self, source: str) -> _Listed:
        """An index of nothing."""

    def _current(self, view: View) -> _Listed:
        """The index of a view, whose entries are the passages of `self._numbers`; for the holder of the guard."""
        self._update(view, False)
        assert self._index is not None
        return self._index

    def _update(self, view: View, progress: Progress, checkpoint: Callable[[], object] | None = None) -> None:
        self._compare(view)
        index = self._empty(view.source) if self._index is None else self._index
        if self._index is not None and not len(self._new) and not len(self._gone):
            return
        # Read before anything is changed, so that a failure leaves all as it was.
        added = [passage.document for passage in read(view, self._new)]
        if len(self._gone):
            index = index.select(np.flatnonzero(self._numbers != GONE))
        index.add(added, view.keys[self._new])
        self._index = index
        self._place(view)


class BM25Follower(PassageFollower[BM25Index]):
    """BM25 of the passages of a corpus, those that are new since the last search being added first."""

    name = "BM25 index"

    def scores(self, view: View, queries: Sequence[str], turns: Sequence[Sequence[tuple[str, str]]] | None = None) -> Vectors:
        """BM25 of every passage for each query over the query's best, (q, n); 0 for deleted ones and where nothing matches.

        With `turns` the words of the turns before each query are looked for too (`BM25Index.scores_with_turns`).
        """
        with self._guard:
            index, numbers = self._current(view), self._numbers
            found = index.scores(queries) if turns is None else index.scores_with_turns(queries, turns)
        if len(numbers) == len(view.keys) and (numbers == np.arange(len(numbers))).all():
            return found
        result: Vectors = np.zeros((len(found), len(view.keys)), dtype=np.float32)
        result[:, numbers] = found
        return result

    def _empty(self, source: str) -> BM25Index:
        return BM25Index(source=source)

    def _load(self, path: Path) -> BM25Index:
        index = BM25Index.load(path)
        index.scores(["check"])
        return index

    def _fits(self, index: BM25Index, view: View) -> bool:
        return super()._fits(index, view) and len(index.keys) == len(index)


class ANNFollower(Follower[ANNIndex]):
    """An ANN index over the passages of a corpus.

    A few passages that are new stand among the candidates of every query until they are linked, and deleted ones are passed
    over, so that each search is of the present corpus. When they are many, the index is brought up to date.
    """

    name = "ANN index"

    _settings, _weight = ApproximateSettings(), 1.0

    def configure(self, settings: ApproximateSettings, passage_weight: float) -> None:
        """The settings that the index is to have, and w of its vectors if it is built; an index of others is rebuilt."""
        self._settings, self._weight = settings, passage_weight

    def lags(self, view: View) -> bool:
        """Whether so much of a corpus is not linked that a search would do that first."""
        with self._guard:
            self._compare(view)
            return self._lags(view)

    def build(self, view: View, progress: Progress = False) -> None:
        """Link everything."""
        with self._guard:
            self._update(view, progress)

    def rank(
        self,
        view: View,
        states: Vectors,
        settings: ApproximateSettings,
        *,
        passage_weight: float,
        weights: HopfieldWeights | None = None,
        **terms: Any,
    ) -> list[Ranking]:
        """The best of the candidates for each query state; see `search_candidates`."""

        def candidates(states: Vectors, count: int) -> list[Numbers]:
            with self._guard:
                self.configure(settings, passage_weight)
                self._compare(view)
                if self._index is None or self._lags(view):
                    self._update(view, progress=True)
                assert self._index is not None
                # Trained weights read the windows with another vector than the state.
                asked = states if weights is None or settings.over != "windows" else weights.readout(states)
                # The deleted ones that are still linked take places.
                found = self._index.candidates(asked, count + min(len(self._gone), count))
                named = [self._numbers[entries] for entries in found]
                return [np.concatenate([numbers[numbers != GONE], self._new]) for numbers in named]

        return search_candidates(
            view.patterns_for(_NONE),
            states,
            candidates,
            count=settings.candidates,
            check=lambda sets: view.patterns if sets is None else view.patterns_for(sets),
            passage_weight=passage_weight,
            weights=weights,
            **terms,
        )

    def purge(self, view: View) -> None:
        """After deletions that are to leave no vector either: build the index again, and its file."""
        with self._guard:
            self._compare(view)
            if self._index is not None and not len(self._gone) and (self._index.keys != GONE).all():
                return
            kept = self._kept()
            self.discard()
        if kept:
            self.save(view, progress=True)

    def copy_to(self, other: ANNFollower, view: View, keys: Numbers, source: str) -> None:
        """Link everything and write it to the file of another corpus, where the passages of the view have these keys."""
        assert other.path is not None
        try:
            with other._lock(), self._guard:
                self._update(view, progress=True)
                assert self._index is not None
                there = self._numbers != GONE
                named = np.full(len(there), GONE, dtype=np.int64)
                named[there] = keys[self._numbers[there]]
                self._index.save(other.path, keys=named, source=source)
        except RetrievalError as error:
            _LOGGER.warning("The %s is not kept: %s", self.name, error)

    def _load(self, path: Path) -> ANNIndex:
        index = ANNIndex.load(path)
        len(index)
        return index

    def _fits(self, index: ANNIndex, view: View) -> bool:
        built = index.settings.model_copy(update={"candidates": self._settings.candidates})
        return super()._fits(index, view) and (index.dimension, built) == (view.dimension, self._settings)

    def _update(self, view: View, progress: Progress, checkpoint: Callable[[], object] | None = None) -> None:
        self._compare(view)
        if self._index is None:
            self._index = ANNIndex(view.dimension, self._settings, passage_weight=self._weight, source=view.source)
        self._index.remove(self._gone)
        new = self._new
        # Compared again after an interruption.
        self._view = None
        if len(new):
            self._index.add(view.patterns_for(new), new, view.keys[new], progress=progress, checkpoint=checkpoint)
        self._place(view)


def _state(path: Path | None) -> tuple[int, ...] | None:
    """Time, size and inode of a file, which change when it is replaced; None where there is none."""
    try:
        found = path.stat() if path is not None else None
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_size, found.st_ino)
