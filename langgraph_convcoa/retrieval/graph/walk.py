"""The walk along an evidence graph, from the first passages and the question's names to what these name.

What a question needs beyond the first passages often shares no word with it: it is named in them. What the passages that the
search found have by their scores, and the names in the question, is shared out along the links for a few steps, and nothing
goes straight back to where it came from, as it does in personalised PageRank (Page et al. 1999): a passage without links loses
nothing beside one that has many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document
from scipy.sparse import csr_array

from langgraph_convcoa.retrieval.documents.split import document_id, passage_title
from langgraph_convcoa.retrieval.graph.links import Links
from langgraph_convcoa.retrieval.graph.names import given_names, name_hash, names_in
from langgraph_convcoa.retrieval.graph.settings import GraphSettings

Mass = npt.NDArray[np.float64]

FIRST = 100
"""How many passages the walk begins at, and goes on from at each step."""


@dataclass(frozen=True, eq=False)
class Walk:
    """Where a walk began, and what came to each passage at each step."""

    links: Links
    question: str
    named: Mass  # (m,), of each entity at first.
    steps: Sequence[Mass]  # (n,) each, of each passage: at first, after one step, and so on.

    @cached_property
    def passages(self) -> Mass:
        """(n,), what came to each passage altogether."""
        came: Mass = np.sum(self.steps, axis=0)
        return came

    def trail(self, passage: int) -> list[int]:
        """The nodes by which most came to a passage that links raised above others, itself the last; none where they did not.

        Node i < n is a passage, n + e an entity.
        """
        first, came = self.steps[0], self.passages
        if np.count_nonzero(first > first[passage]) <= np.count_nonzero(came > came[passage]):
            return []
        links, trail = self.links, [passage]
        for before in range(int(np.argmax([step[passage] for step in self.steps[1:]])), -1, -1):
            entities = links.shares[[trail[0]]].indices
            # What each of the entities had of the question itself, and of each passage but this one.
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
    """Walk from passages with their scores and from the names in a question.

    Args:
        links: The graph.
        question: As it was put.
        first: Numbers of passages; the best 100 count.
        scores: Of each, best first.
        settings: The walk's.
    """
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
        there = links.to_entities(here) + (named if step == 0 else 0)
        # Without what would come back to the passage that it is from.
        steps.append(settings.damping * np.maximum(links.to_passages(there) - links.back * here, 0))
    return Walk(links, question, named, steps)


def _greatest(amounts: Mass) -> Mass:
    """Those that the walk goes on from, so that its time does not grow with the passages; 0 for the others."""
    if np.count_nonzero(amounts) <= FIRST:
        return amounts
    return np.where(amounts >= np.partition(amounts, -FIRST)[-FIRST], amounts, 0)


def told(walked: Walk, trail: list[int], passages: dict[int, Document]) -> list[str]:
    """A trail in words, from the question to the passage: titles of passages, and names in quotation marks.

    `passages` are those of the trail. A hash is no name: that is looked up in the texts beside it.
    """
    n, entities = walked.links.passages, walked.links.entities
    path = ["question"]
    for place, node in enumerate(trail):
        if node < n:
            path.append(_title(passages[node]))
        else:
            beside = [
                passages[other] for other in (*trail[place + 1 : place + 2], *trail[max(place - 1, 0) : place]) if other < n
            ]
            path.append(f'"{_written(int(entities[node - n]), walked.question, beside)}"')
    return path


def _title(passage: Document) -> str:
    return passage_title(passage) or document_id(passage)


def _written(hashed: int, question: str, passages: list[Document]) -> str:
    known = np.array([hashed], dtype=np.int64)
    for text in [text for one in passages for text in (passage_title(one), one.page_content)] + [question]:
        if found := names_in(text, known):
            return found[0].text
    given = (name for passage in passages for name in given_names(passage.metadata) if name_hash(name) == hashed)
    return next(given, "")
