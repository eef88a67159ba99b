"""The approximate stage of a memory that changes: what is new is linked, what is gone is passed over."""

from __future__ import annotations

import importlib.util
import logging
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.corpus import View
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.hybrid.ann import ApproximateSettings, ApproximateStage
from langgraph_convcoa.retrieval.hybrid.ann_search import Sets, search_candidates
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.retrieval.scoring.topk import Ranking
from langgraph_convcoa.retrieval.scoring.weights import HopfieldWeights

_LOGGER = logging.getLogger(__name__)
_GONE = -1
_AT_ONCE = 2_048
# A build that is killed goes on from the last of these.
_CHECKPOINT = 32_768


def behind(new: int, total: int) -> bool:
    """Whether so many of all memory sets are too many to go without the graph, or to be linked by each process anew."""
    return new > max(256, total // 200)


class ApproximateChannel:
    """An `ApproximateStage` over whatever memory is being searched.

    A few memory sets that are new stand among the candidates of every query until they are linked, and deleted ones are passed
    over, so that each search is of the present memory. When they are many, the graph is brought up to date.

    Args:
        path: Where the graph of an index on disk was saved with `save`. One that is missing, damaged, of another index or of
            other settings is built anew.
    """

    _stage: ApproximateStage | None
    _source: str
    _view: View | None
    # By key of the stage: what the memory set is known by, and its number in the view.
    _names: npt.NDArray[np.int64]
    _sets: Sets
    # Numbers of the view's sets that are not linked, and how many are linked that are not in it.
    _missing: Sets
    _gone: int

    def __init__(self, path: str | Path | None = None) -> None:
        self._lock = threading.RLock()
        self._path = None if path is None else Path(path)
        self._opened: tuple[int, ...] | None = None
        self._begin()

    def rank(
        self,
        view: View,
        states: Vectors,
        settings: ApproximateSettings,
        *,
        k: int,
        beta: float,
        passage_weight: float,
        allowed: npt.NDArray[np.bool_] | None = None,
        extra: Vectors | None = None,
        weights: HopfieldWeights | None = None,
    ) -> list[Ranking]:
        """The best of the candidates for each query state; see `search_candidates`.

        Raises:
            InputError: k, beta or the weight is out of range.
            RetrievalError: usearch is not installed, or the patterns are damaged.
        """

        def candidates(states: Vectors, count: int) -> list[Sets]:
            with self._lock:
                self.follow(view, settings, passage_weight=passage_weight, progress=True)
                assert self._stage is not None
                # Trained weights read the windows with another vector than the state.
                asked = states if weights is None or settings.over != "windows" else weights.readout(states)
                # The deleted ones that are still linked take places.
                found = self._stage.candidates(asked, count + min(self._gone, count))
                sets = [self._sets[keys] for keys in found]
                return [np.concatenate([named[named != _GONE], self._missing]) for named in sets]

        return search_candidates(
            view.patterns_for(np.zeros(0, dtype=np.int64)),
            states,
            candidates,
            k=k,
            count=settings.candidates,
            allowed=allowed,
            extra=extra,
            check=lambda sets: view.patterns if sets is None else view.patterns_for(sets),
            beta=beta,
            passage_weight=passage_weight,
            weights=weights,
        )

    def lags(self, view: View, settings: ApproximateSettings) -> bool:
        """Whether so much of a memory is not linked that a search would do that first."""
        with self._lock:
            self._compare(view, settings)
            return self._lagging()

    def follow(
        self,
        view: View,
        settings: ApproximateSettings,
        *,
        passage_weight: float = 1.0,
        progress: Progress = False,
        everything: bool = False,
        checkpoint: Callable[[], object] | None = None,
    ) -> None:
        """Bring the graph up to date with a memory where it is far behind.

        Args:
            view: The memory.
            settings: Of a graph that is built anew.
            passage_weight: w of the vectors of a graph that is built anew.
            progress: A bar, a callback or nothing.
            everything: However little is missing.
            checkpoint: Called now and then while the graph grows, so that it can be saved.

        Raises:
            RetrievalError: usearch is not installed, or the patterns are damaged.
        """
        with self._lock:
            if not self.lags(view, settings) and not everything and self._stage is not None:
                return
            if self._stage is None:
                made = settings.model_dump(exclude={"candidates"})
                self._stage = ApproximateStage(view.dimension, passage_weight=passage_weight, **made)
                self._source = view.source
            self._unlink(np.flatnonzero((self._sets == _GONE) & (self._names != _GONE)))
            missing, names = self._missing, view.keys
            # Compared anew after an interruption.
            self._view = None
            with track(progress, len(missing), "Linking") as advance:
                for start in range(0, len(missing), _AT_ONCE):
                    part = missing[start : start + _AT_ONCE]
                    keys = len(self._names) + np.arange(len(part))
                    self._stage.add(view.patterns_for(part).select(part), keys)
                    self._names = np.concatenate([self._names, names[part]])
                    advance(len(part))
                    if checkpoint is not None and (start + _AT_ONCE) % _CHECKPOINT == 0 and start + _AT_ONCE < len(missing):
                        checkpoint()
            self._place(view)

    def save(self, path: str | Path, *, keys: npt.NDArray[np.int64] | None = None, source: str | None = None) -> None:
        """Save the graph as it is.

        Args:
            path: The file.
            keys: (n,), what each memory set of the view that was followed last is called in another index, -1 where it is not
                there; None for the index itself.
            source: That other index.

        Raises:
            RetrievalError: The file cannot be written.
        """
        with self._lock:
            if self._stage is None:
                return
            names = self._names if keys is None else np.where(self._sets == _GONE, _GONE, keys[self._sets])
            self._stage.save(path, names=names, source=self._source if source is None else source)
            if self._path is not None and Path(path) == self._path:
                self._opened = _state(self._path)

    def holds_deleted(self, view: View, settings: ApproximateSettings) -> bool:
        """Whether vectors of deleted memory sets may be left in the graph."""
        with self._lock:
            self._compare(view, settings)
            return self._stage is None or self._gone > 0 or bool((self._names == _GONE).any())

    def forget_deleted(self) -> None:
        """Begin anew, without the file; OSError where it cannot be removed."""
        with self._lock:
            self._begin()
            if self._path is not None:
                self._path.unlink(missing_ok=True)

    def _begin(self) -> None:
        self._stage, self._source, self._view = None, "", None
        self._names, self._sets, self._missing = (np.zeros(0, dtype=np.int64) for _ in range(3))
        self._gone = 0

    def _lagging(self) -> bool:
        return behind(len(self._missing) + self._gone, len(self._sets) - self._gone + len(self._missing))

    def _unlink(self, keys: Sets) -> None:
        if len(keys):
            assert self._stage is not None
            self._stage.remove(keys.tolist())
            self._names[keys] = _GONE

    def _compare(self, view: View, settings: ApproximateSettings) -> None:
        """Find which memory sets of a view are linked, in a graph of these settings."""
        if self._stage is not None and not _fits(self._stage, self._source, view, settings):
            _LOGGER.warning("The approximate stage is of another memory or of other settings; it is built anew.")
            self._begin()
        if view is self._view:
            return
        if self._stage is None:
            self._open(view, settings)
        self._place(view)
        # Another process may have brought the file up to date.
        if self._lagging() and self._open(view, settings):
            self._place(view)

    def _place(self, view: View) -> None:
        numbers = view.numbers
        names = view.keys[numbers]
        order = np.argsort(names, kind="stable")
        places = np.searchsorted(names, self._names, sorter=order)
        known = np.flatnonzero(places < len(names))
        known = known[names[order[places[known]]] == self._names[known]]
        self._sets = np.full(len(self._names), _GONE, dtype=np.int64)
        self._sets[known] = numbers[order[places[known]]]
        self._missing = np.setdiff1d(numbers, self._sets[known])
        self._gone = int(((self._sets == _GONE) & (self._names != _GONE)).sum())
        self._view = view

    def _open(self, view: View, settings: ApproximateSettings) -> bool:
        """Take the graph of the file where it has one that fits and is not taken yet."""
        if self._path is None:
            return False
        state = _state(self._path)
        if state is None or state == self._opened:
            return False
        self._opened = state
        try:
            stage = ApproximateStage.load(self._path)
            len(stage)
        except RetrievalError as error:
            if importlib.util.find_spec("usearch") is None:
                raise
            _LOGGER.warning("The approximate stage is built anew: %s", error)
            return False
        if not _fits(stage, stage.source, view, settings):
            _LOGGER.warning("%s is of another index or of other settings; it is built anew.", self._path)
            return False
        self._stage, self._source, self._names = stage, stage.source, np.array(stage.names)
        return True


def _fits(stage: ApproximateStage, source: str, view: View, settings: ApproximateSettings) -> bool:
    built = (stage.dimension, stage.over, stage.connectivity, stage.expansion_add, source)
    return built == (view.dimension, settings.over, settings.connectivity, settings.expansion_add, view.source)


def _state(path: Path) -> tuple[int, ...] | None:
    """What tells a file from the one that replaces it."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
