"""One search of a corpus: from query states to ranked passages, and to the documents that are returned."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document

from langgraph_convcoa.retrieval.corpus import Asked, Corpus, Numbers, Passage, View
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.filters import Filter
from langgraph_convcoa.retrieval.graph.links import Links
from langgraph_convcoa.retrieval.graph.settings import GraphSettings
from langgraph_convcoa.retrieval.graph.walk import FIRST, Walk, told, walk
from langgraph_convcoa.retrieval.scoring.topk import Ranking, associate, search

_OF_THE_QUESTION = frozenset({"score", "certified", "quote", "association", "graph_path"})


@dataclass(frozen=True)
class Scoring:
    """How passages are scored and which may be returned; the settings are those of `HopfieldRetriever`."""

    beta: float
    passage_weight: float
    lexical_weight: float
    lexical_history: float
    filter: Filter | None
    graph: GraphSettings | None = None


class Hit(NamedTuple):
    """A passage that was found, its number in the view, and whether the ranking is certainly the exact one."""

    number: int
    score: float
    passage: Passage
    certified: bool
    path: Sequence[str] = ()  # From the question along the evidence graph, where that raised the passage.


class FoundMetadata(dict[str, Any]):
    """Metadata of a passage that was found, which is compared without what the question made of it.

    LangChain tells documents apart by `==` where it unites the results of several questions. Copies and pickles are plain.

    Example:
        >>> one, other = FoundMetadata(source="a", score=0.5), FoundMetadata(source="a", score=0.7)
        >>> one == other, one == {"source": "b", "score": 0.5}
        (True, False)
    """

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, dict):
            return NotImplemented
        return _lasting(self) == _lasting(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


def _lasting(metadata: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metadata.items() if name not in _OF_THE_QUESTION}


def find(
    corpus: Corpus, view: View, asked: Asked, scoring: Scoring, threshold: float | None = None, *, paths: bool = False
) -> list[list[Hit]]:
    """The best passages of a view for each question, those that score below the threshold left out, with `paths` if wanted."""
    extra = _lexical(corpus, view, asked, scoring)
    along = [_Along()] * len(asked.queries)
    graph = corpus.graph.links(view) if scoring.graph and corpus.graph is not None and len(view) else None
    if scoring.graph is None or graph is None:
        rankings = _rankings(view, asked, scoring, extra)
    else:
        rankings, along = _walked(view, asked, scoring, scoring.graph, *graph, extra)
    kept = [[*zip(r.indices.tolist(), r.scores.tolist(), strict=True)] for r in rankings]
    if threshold is not None:
        kept = [[(number, score) for number, score in found if score >= threshold] for found in kept]
    trails = [{number: one.trail(number) for number, _ in found if paths} for one, found in zip(along, kept, strict=True)]
    wanted = {number for found in kept for number, _ in found}
    wanted |= {
        number for one, ways in zip(along, trails, strict=True) for way in ways.values() for number in one.passages(way)
    }
    numbers = sorted(wanted)
    passages = dict(zip(numbers, view.fetch(numbers), strict=True))
    return [
        [
            Hit(number, score, passages[number], ranking.certified and corpus.complete, one.told(ways.get(number), passages))
            for number, score in found
        ]
        for ranking, found, one, ways in zip(rankings, kept, along, trails, strict=True)
    ]


def _lexical(corpus: Corpus, view: View, asked: Asked, scoring: Scoring) -> Vectors | None:
    """What BM25 adds to the scores, (q, n); None where words do not count."""
    if not len(view) or corpus.bm25 is None or not scoring.lexical_weight:
        return None
    extra: Vectors = np.float32(scoring.lexical_weight) * corpus.bm25.scores(view, asked.queries)
    if scoring.lexical_history and asked.history_weight and any(asked.turns):
        extra += np.float32(scoring.lexical_history) * corpus.bm25.scores(view, asked.queries, asked.turns)
    return extra


@dataclass(frozen=True)
class _Along:
    """A walk by the numbers of a view; without one there are no paths."""

    walk: Walk | None = None
    numbers: Numbers | None = None  # Of the walk's passages.

    def trail(self, number: int) -> list[int]:
        """The walk's nodes on the way to a passage that it raised."""
        if self.walk is None or self.numbers is None:
            return []
        return self.walk.trail(int(np.searchsorted(self.numbers, number)))

    def passages(self, trail: Sequence[int]) -> list[int]:
        """The passages among them."""
        return [] if self.numbers is None else [int(self.numbers[node]) for node in trail if node < len(self.numbers)]

    def told(self, trail: list[int] | None, passages: dict[int, Passage]) -> list[str]:
        """The way in words."""
        if self.walk is None or self.numbers is None or not trail:
            return []
        there = {node: passages[int(self.numbers[node])].document for node in trail if node < len(self.numbers)}
        return told(self.walk, trail, there)


def _walked(
    view: View,
    asked: Asked,
    scoring: Scoring,
    settings: GraphSettings,
    links: Links,
    numbers: Numbers,
    extra: Vectors | None,
) -> tuple[list[Ranking], list[_Along]]:
    """Rankings by what a walk brought to passages, behind it those that it did not reach; the scores are the search's."""
    first = _rankings(view, asked._replace(k=max(asked.k, FIRST)), scoring, extra)
    allowed = view.allowed(scoring.filter)
    rankings, along = [], []
    for row, (question, ranking) in enumerate(zip(asked.queries, first, strict=True)):
        walked = walk(links, question, np.searchsorted(numbers, ranking.indices), ranking.scores, settings)
        mass = walked.passages if allowed is None else np.where(allowed[numbers], walked.passages, 0)
        chosen = numbers[_best(mass, asked.k)]
        others = ranking.indices[~np.isin(ranking.indices, chosen)]
        chosen = np.concatenate([chosen, others])[: asked.k] if len(chosen) < asked.k else chosen
        scores = dict(zip(ranking.indices.tolist(), ranking.scores.tolist(), strict=True))
        missing = np.setdiff1d(chosen, ranking.indices)
        if len(missing):
            mask = np.zeros(len(view.keys), dtype=np.bool_)
            mask[missing] = True
            [rest] = search(
                view.patterns_for(missing),
                asked.states[row : row + 1],
                k=len(missing),
                beta=scoring.beta,
                passage_weight=scoring.passage_weight,
                allowed=mask,
                extra=None if extra is None else extra[row : row + 1],
            )
            scores |= dict(zip(rest.indices.tolist(), rest.scores.tolist(), strict=True))
        certified = ranking.certified and np.array_equal(ranking.indices[: asked.k], chosen)
        found = np.array([scores[number] for number in chosen.tolist()], dtype=np.float64)
        rankings.append(Ranking(chosen, found, certified, ranking.scored))
        along.append(_Along(walked, numbers))
    return rankings, along


def _best(mass: npt.NDArray[np.float64], k: int) -> Numbers:
    """The k greatest above 0, in order; equal ones in the order of their places."""
    # More than k, so that of equal ones the first are kept.
    bound = np.partition(mass, len(mass) - k)[len(mass) - k] if k < len(mass) else 0.0
    there = np.flatnonzero((mass >= bound) & (mass > 0))
    return there[np.argsort(-mass[there], kind="stable")][:k]


def _rankings(view: View, asked: Asked, scoring: Scoring, extra: Vectors | None) -> list[Ranking]:
    if not len(view):
        nothing = np.zeros(0, dtype=np.int64)
        return [Ranking(nothing, nothing.astype(np.float64), True, 0) for _ in asked.queries]
    return search(
        view.patterns,
        asked.states,
        k=asked.k,
        beta=scoring.beta,
        passage_weight=scoring.passage_weight,
        allowed=view.allowed(scoring.filter),
        extra=extra,
    )


def hit_document(view: View, hit: Hit, state: Vectors, scoring: Scoring, *, association: bool) -> Document:
    """A new document of a passage, with `source`, `score`, `certified`, `quote`, `graph_path` and `association` if wanted."""
    passage, spans = hit.passage.document, hit.passage.spans
    patterns = view.patterns_for(np.array([hit.number]))
    shares, products = associate(patterns, hit.number, state, scoring.beta)
    texts = [passage.page_content[start:end] for start, end in spans]
    metadata = copy.deepcopy(passage.metadata)
    metadata.setdefault("source", str(metadata.get("document_id") or passage.id))
    # By product where weights are equal, as all are at beta = 0.
    best = max(range(len(texts)), key=lambda i: (shares[i], products[i]))
    metadata |= {"score": hit.score, "certified": hit.certified, "quote": texts[best]}
    if hit.path:
        metadata["graph_path"] = list(hit.path)
    if association:
        metadata["association"] = [
            {"text": text, "start": start, "end": end, "weight": float(weight)}
            for text, (start, end), weight in zip(texts, spans, shares, strict=True)
        ]
    found = Document(id=passage.id, page_content=passage.page_content)
    # Given to the constructor, it would be copied into a plain dict.
    found.metadata = FoundMetadata(metadata)
    return found
