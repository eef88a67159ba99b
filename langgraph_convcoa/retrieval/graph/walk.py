"""The walk along an evidence graph: personalised PageRank from the first passages and the question's names (Page et al. 1999).

What a question needs beyond the first passages often shares no word with it: it is named in them. The walk begins at the
passages that the search found, by their scores, and at the names in the question; its mass ranks the passages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document

from langgraph_convcoa.retrieval.documents.split import document_id, passage_title
from langgraph_convcoa.retrieval.graph.names import given_names, name_hash, names_in
from langgraph_convcoa.retrieval.graph.settings import GraphSettings

if TYPE_CHECKING:
    from langgraph_convcoa.retrieval.graph.links import Links

Mass = npt.NDArray[np.float64]

# How many passages the walk begins at, and how many nodes a path tells.
FIRST = 100
_LONGEST = 5


@dataclass(frozen=True, eq=False)
class Walk:
    """Where a walk began and where it came to: the mass of each of the n + m nodes of a graph."""

    links: Links
    question: str
    damping: float
    start: Mass
    mass: Mass

    @property
    def passages(self) -> Mass:
        """(n,), of each passage."""
        return self.mass[: self.links.passages]

    def trail(self, passage: int) -> list[int]:
        """The nodes by which most of a passage's mass came, each once, the passage last."""
        trail, transitions = [passage], self.links.transitions
        while len(trail) < _LONGEST:
            node = trail[0]
            row = slice(transitions.indptr[node], transitions.indptr[node + 1])
            came = transitions.indices[row]
            flows = np.where(np.isin(came, trail), 0, transitions.data[row] * self.mass[came])
            if not len(came) or self.damping * flows.max() <= (1 - self.damping) * self.start[node] or not flows.max():
                break
            trail.insert(0, int(came[flows.argmax()]))
        return trail


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
    start = np.zeros(len(links.entities) + links.passages)
    if len(first):
        shares = np.exp((scores[:FIRST] - scores[0]) / settings.temperature)
        start[first[:FIRST]] = shares / shares.sum()
    named = np.unique([name.hash for name in names_in(question, links.entities)]).astype(np.int64)
    if len(named):
        places = np.searchsorted(links.entities, named)
        weights = 1 / np.log1p(1 + links.common[places])
        start[links.passages + places] = settings.names * weights / weights.sum()
    start /= start.sum() or 1
    mass = start.copy()
    for _ in range(settings.steps):
        mass = (1 - settings.damping) * start + settings.damping * (links.transitions @ mass)
    return Walk(links, question, settings.damping, start, mass)


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
