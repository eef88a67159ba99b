"""One search of a corpus: from query states to ranked passages, and to the documents that are returned."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from langchain_core.documents import Document

from langgraph_convcoa.retrieval.corpus import Asked, Corpus, Passage, View
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.filters import Filter
from langgraph_convcoa.retrieval.hybrid.ann import ApproximateSettings, needs_graph
from langgraph_convcoa.retrieval.scoring.patterns import HopfieldWeights
from langgraph_convcoa.retrieval.scoring.topk import Ranking, associate, search

_OF_THE_QUESTION = frozenset({"score", "certified", "quote", "association"})


@dataclass(frozen=True)
class Scoring:
    """How passages are scored and which may be returned; the settings are those of `HopfieldRetriever`."""

    beta: float
    passage_weight: float
    lexical_weight: float
    lexical_history: float
    filter: Filter | None
    approximate: ApproximateSettings | None
    weights: HopfieldWeights | None  # Trained W_Q, W_K, W_V; the identity when None.


class Hit(NamedTuple):
    """A passage that was found, its number in the view, and whether the ranking is certainly the exact one."""

    number: int
    score: float
    passage: Passage
    certified: bool


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


def find(corpus: Corpus, view: View, asked: Asked, scoring: Scoring, threshold: float | None = None) -> list[list[Hit]]:
    """The best passages of a view for each question, those that score below the threshold left out."""
    rankings = _rankings(corpus, view, asked, scoring)
    kept = [[*zip(r.indices.tolist(), r.scores.tolist(), strict=True)] for r in rankings]
    if threshold is not None:
        kept = [[(number, score) for number, score in found if score >= threshold] for found in kept]
    numbers = sorted({number for found in kept for number, _ in found})
    passages = dict(zip(numbers, view.fetch(numbers), strict=True))
    return [
        [Hit(number, score, passages[number], ranking.certified and corpus.complete) for number, score in found]
        for ranking, found in zip(rankings, kept, strict=True)
    ]


def _rankings(corpus: Corpus, view: View, asked: Asked, scoring: Scoring) -> list[Ranking]:
    if not len(view):
        nothing = np.zeros(0, dtype=np.int64)
        return [Ranking(nothing, nothing.astype(np.float64), True, 0) for _ in asked.queries]
    terms: dict[str, Any] = {
        "k": asked.k,
        "beta": scoring.beta,
        "passage_weight": scoring.passage_weight,
        "allowed": view.allowed(scoring.filter),
        "extra": None,
        "weights": scoring.weights,
    }
    if corpus.bm25 is not None and scoring.lexical_weight:
        terms["extra"] = np.float32(scoring.lexical_weight) * corpus.bm25.scores(view, asked.queries)
        if scoring.lexical_history and asked.history_weight and any(asked.turns):
            terms["extra"] += np.float32(scoring.lexical_history) * corpus.bm25.scores(view, asked.queries, asked.turns)
    ann, settings = corpus.ann, scoring.approximate
    if ann is None or settings is None:
        return search(view.patterns, asked.states, **terms)
    if needs_graph(len(view), max(settings.candidates, asked.k)):
        ann.configure(settings, scoring.passage_weight)
        if ann.lags(view):
            # Written too, for the next process.
            ann.save(view, progress=True)
    return ann.rank(view, asked.states, settings, **terms)


def hit_document(view: View, hit: Hit, state: Vectors, scoring: Scoring, *, association: bool) -> Document:
    """A new document of a passage, with its `source`, `score`, `certified` and `quote`, and `association` if it is wanted."""
    passage, spans = hit.passage.document, hit.passage.spans
    patterns = view.patterns_for(np.array([hit.number]))
    shares, products = associate(patterns, hit.number, state, scoring.beta, scoring.weights)
    texts = [passage.page_content[start:end] for start, end in spans]
    metadata = copy.deepcopy(passage.metadata)
    metadata.setdefault("source", str(metadata.get("document_id") or passage.id))
    # By product where weights are equal, as all are at beta = 0.
    best = max(range(len(texts)), key=lambda i: (shares[i], products[i]))
    metadata |= {"score": hit.score, "certified": hit.certified, "quote": texts[best]}
    if association:
        metadata["association"] = [
            {"text": text, "start": start, "end": end, "weight": float(weight)}
            for text, (start, end), weight in zip(texts, spans, shares, strict=True)
        ]
    found = Document(id=passage.id, page_content=passage.page_content)
    # Given to the constructor, it would be copied into a plain dict.
    found.metadata = FoundMetadata(metadata)
    return found
