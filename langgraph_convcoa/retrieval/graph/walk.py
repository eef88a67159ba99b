"""The walk along an evidence graph, from the first passages and the names in the question to linked passages.

The mass of the found passages (by score) and of the question's names moves along the links for a few steps. Unlike in
personalised PageRank (Page et al. 1999), mass never flows straight back, and a passage without links keeps its mass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document
from scipy.sparse import csr_array

from langgraph_convcoa.retrieval.documents.split import document_id, passage_title
from langgraph_convcoa.retrieval.graph.index import Links
from langgraph_convcoa.retrieval.graph.names import given_names, name_hash, names_in
from langgraph_convcoa.retrieval.graph.settings import GraphSettings

Mass = npt.NDArray[np.float64]

FIRST = 100  # Number of passages from which the walk starts, and from which each step continues.


@dataclass(frozen=True, eq=False)
class Walk:
    """The result of a walk: the mass of each passage at each step."""

    links: Links
    question: str
    named: Mass  # (m,), mass of each entity at the start.
    steps: Sequence[Mass]  # (n,) each, mass of each passage: at the start, after one step, and so on.
    passages: Mass  # (n,), the sum of each passage's mass over the steps.

    def path(self, passage: int, document: Callable[[int], Document]) -> list[str]:
        """The way that brought a passage the most mass: "question", then titles of passages and, in quotation marks, names.

        Empty if links did not raise the passage. A name is stored as a hash; its text is taken from a neighbour in the path.
        """
        n, trail = self.links.passages, self._trail(passage)
        path = ["question"]
        for place, node in enumerate(trail):
            if node < n:
                found = document(node)
                path.append(passage_title(found) or document_id(found))
            else:
                beside = (*trail[place + 1 : place + 2], *trail[max(place - 1, 0) : place])
                texts = [document(other) for other in beside if other < n]
                path.append(f'"{_written(int(self.links.entities[node - n]), self.question, texts)}"')
        return path if trail else []

    def _trail(self, passage: int) -> list[int]:
        """The nodes on the heaviest way to a passage, the passage last. Empty if links did not raise the passage."""
        # Node i < n is a passage, node n + e is entity e.
        first, came = self.steps[0], self.passages
        if np.count_nonzero(first > first[passage]) <= np.count_nonzero(came > came[passage]):
            return []
        links, trail = self.links, [passage]
        for before in range(int(np.argmax([step[passage] for step in self.steps[1:]])), -1, -1):
            entities = links.shares[[trail[0]]].indices
            # The mass that each entity gets from the question, and from each other passage.
            named = self.named[entities] * (before == 0)
            sources = [links.parts[[entity]].indices for entity in entities.tolist()]
            flows = [
                np.where(passages == trail[0], 0, _column(links.shares[passages], entity) * self.steps[before][passages])
                for entity, passages in zip(entities.tolist(), sources, strict=True)
            ]
            parts = _column(links.parts[entities], trail[0])
            best = int(np.argmax(parts * (named + [flow.sum() for flow in flows])))
            entity, source = links.passages + int(entities[best]), int(sources[best][flows[best].argmax()])
            if named[best] >= flows[best].max():
                return [entity, *trail]
            if source in trail:
                break
            trail = [source, entity, *trail]
        return trail


def _column(rows: csr_array, column: int) -> Mass:
    return np.asarray(rows[:, [column]].toarray()[:, 0], dtype=np.float64)


def walk(
    links: Links, question: str, first: npt.NDArray[np.int64], scores: npt.NDArray[np.float64], settings: GraphSettings
) -> Walk:
    """Walk from the first 100 passages (their numbers and scores, best first) and from the names in a question."""
    start, named = np.zeros(links.passages), np.zeros(len(links.entities))
    if len(first):
        shares = np.exp((scores[:FIRST] - scores[0]) / settings.temperature)
        start[first[:FIRST]] = shares / shares.sum()
    names = np.unique([name.hash for name in names_in(question, links.names)]).astype(np.int64)
    if len(names):
        places = np.searchsorted(links.entities, names)
        weights = 1 / np.log1p(1 + links.common[places])
        named[places] = settings.names * weights / weights.sum()
    steps = [start]
    for step in range(settings.steps):
        here = _greatest(steps[-1])
        there = _moved(here, links.shares) + (named if step == 0 else 0)
        # Mass that would flow back to the passage that it came from is subtracted.
        steps.append(settings.damping * np.maximum(_moved(there, links.parts) - links.back * here, 0))
    return Walk(links, question, named, steps, np.sum(steps, axis=0))


def _moved(amounts: Mass, links: csr_array) -> Mass:
    return np.asarray((csr_array(amounts[None]) @ links).toarray()[0], dtype=np.float64)


def _greatest(amounts: Mass) -> Mass:
    """Keep the greatest amounts and set the others to 0, so that the time does not grow with the number of passages."""
    if np.count_nonzero(amounts) <= FIRST:
        return amounts
    return np.where(amounts >= np.partition(amounts, -FIRST)[-FIRST], amounts, 0)


def _written(hashed: int, question: str, passages: list[Document]) -> str:
    known = np.array([hashed], dtype=np.int64)
    for text in [text for one in passages for text in (passage_title(one), one.page_content)] + [question]:
        if found := names_in(text, known):
            return found[0].text
    given = (name for passage in passages for name in given_names(passage.metadata) if name_hash(name) == hashed)
    return next(given, "")
