"""What lies beside the patterns of an index so that the next process need not make it: words, and the approximate stage."""

from __future__ import annotations

import logging
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.array_file import remove_remains
from langgraph_convcoa.retrieval.hybrid.ann import ApproximateSettings, approximate_settings
from langgraph_convcoa.retrieval.hybrid.ann_channel import ApproximateChannel, behind
from langgraph_convcoa.retrieval.hybrid.bm25 import LexicalIndex
from langgraph_convcoa.retrieval.hybrid.bm25_channel import LexicalChannel
from langgraph_convcoa.retrieval.index.snapshot import Snapshot
from langgraph_convcoa.retrieval.index.writer import WriterLock
from langgraph_convcoa.retrieval.progress import Progress

_LOGGER = logging.getLogger(__name__)

LEXICAL_FILE = "lexical.safetensors"
"""The words of the passages. What is missing there is read from the passages at the first query that asks for it."""
APPROXIMATE_FILE = "approximate.safetensors"
"""The graph of the approximate stage. What is missing there is linked by the first approximate search where it is much."""


class Beside:
    """The files beside the patterns. None is needed: what is missing, damaged or out of date costs time and nothing else.

    Args:
        folder: Of the index.
        lock: Of its writer.

    Attributes:
        lexical: The lexical channel.
        approximate: The approximate stage.
    """

    def __init__(self, folder: Path, lock: WriterLock) -> None:
        self._words, self._graph, self._lock = folder / LEXICAL_FILE, folder / APPROXIMATE_FILE, lock
        self.lexical = LexicalChannel(self._words)
        self.approximate = ApproximateChannel(self._graph)

    def save_lexical(self, view: Snapshot) -> bool:
        """Write the words of a snapshot's passages; False where that cannot be done."""
        try:
            with self._lock.held():
                remove_remains(self._words)
                self.lexical.save(view, self._words)
        except RetrievalError as error:
            _LOGGER.warning("The lexical index is not kept: %s", error)
            return False
        return True

    def forget_words(self, view: Snapshot) -> None:
        """Let the words of what was deleted go from the disk too."""
        if self._words.is_file() and not self.save_lexical(view):
            with suppress(OSError):
                self._words.unlink()

    def save_approximate(
        self, view: Snapshot, settings: ApproximateSettings, *, passage_weight: float, progress: Progress
    ) -> bool:
        """Link what is not, and write the graph, now and then before the end too; False where it cannot be written.

        Raises:
            RetrievalError: usearch is not installed, or the patterns are damaged.
        """
        with ExitStack() as stack:
            try:
                stack.enter_context(self._lock.held())
                remove_remains(self._graph)
                kept = True
            except RetrievalError as error:
                _LOGGER.warning("The approximate stage is not kept: %s", error)
                kept = False
            self.approximate.follow(
                view,
                settings,
                passage_weight=passage_weight,
                progress=progress,
                everything=True,
                checkpoint=self._write if kept else None,
            )
            return kept and self._write()

    def keep_up(self, view: Snapshot) -> None:
        """After an addition: write what is there anew where too much of the index is missing in it."""
        if self._words.is_file() and behind(len(view) - LexicalIndex.saved(self._words), len(view)):
            self.save_lexical(view)
        settings = approximate_settings(view.head.settings.get("approximate"))
        if settings is not None and self._graph.is_file() and self.approximate.lags(view, settings):
            self.save_approximate(view, settings, passage_weight=_weight(view), progress=True)

    def compacted(self, view: Snapshot) -> None:
        """After a compaction: leave nothing of what was deleted."""
        self.forget_words(view)
        settings = approximate_settings(view.head.settings.get("approximate"))
        if not self._graph.is_file():
            return
        if settings is not None and not self.approximate.holds_deleted(view, settings):
            return
        with suppress(OSError):
            self.approximate.forget_deleted()
        if settings is not None:
            self.save_approximate(view, settings, passage_weight=_weight(view), progress=True)

    def adopt(self, graph: ApproximateChannel, keys: npt.NDArray[np.int64], source: str) -> None:
        """Write the graph of another memory, whose sets have these keys here."""
        try:
            with self._lock.held():
                remove_remains(self._graph)
                graph.save(self._graph, keys=keys, source=source)
        except RetrievalError as error:
            _LOGGER.warning("The approximate stage is not kept: %s", error)

    def _write(self) -> bool:
        try:
            self.approximate.save(self._graph)
        except RetrievalError as error:
            _LOGGER.warning("The approximate stage is not kept: %s", error)
            return False
        return True


def _weight(view: Snapshot) -> float:
    return float(view.head.settings.get("passage_weight", 1.0))
