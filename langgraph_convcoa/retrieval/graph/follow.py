"""Keeps the evidence graph in step with a corpus that changes."""

from __future__ import annotations

from pathlib import Path

from langgraph_convcoa.retrieval.corpus import Numbers, View
from langgraph_convcoa.retrieval.graph.index import GraphIndex
from langgraph_convcoa.retrieval.graph.links import Links
from langgraph_convcoa.retrieval.hybrid.follow import Follower


class GraphFollower(Follower[GraphIndex]):
    """The evidence graph of the passages of a corpus, those that are new since the last search being added first."""

    name = "evidence graph"

    def links(self, view: View) -> tuple[Links, Numbers] | None:
        """The graph of a view, and the number in the view of each of its passages, growing; None where nothing is linked."""
        with self._guard:
            index = self._current(view)
            return None if index.empty else (index.links, self._numbers)

    def _empty(self, source: str) -> GraphIndex:
        return GraphIndex(source=source)

    def _load(self, path: Path) -> GraphIndex:
        index = GraphIndex.load(path)
        index.check()
        return index
