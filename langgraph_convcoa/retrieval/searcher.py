"""One search of a corpus: from query states to ranked passages and returned documents."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document

from langgraph_convcoa.retrieval.corpus import Corpus, Numbers, Passage, Query, View
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.graph.links import Links
from langgraph_convcoa.retrieval.graph.walk import FIRST, Walk, walk
from langgraph_convcoa.retrieval.scoring.patterns import Patterns
from langgraph_convcoa.retrieval.scoring.topk import Ranking, associate, search

_OF_THE_QUESTION = frozenset({"score", "certified", "quote", "association", "graph_path"})


class Hit(NamedTuple):
    """A found passage."""

    number: int  # Number in the view.
    score: float
    passage: Passage
    certified: bool  # True if the ranking is proved to be exact.
    path: Sequence[str] = ()  # Way from the question along the evidence graph, if the graph raised the passage.


class FoundMetadata(dict[str, Any]):
    """Metadata of a found passage, compared without `score` and the other entries that depend on the question.

    LangChain compares documents by `==` when it unites results of several questions. Copies and pickles are plain dicts.
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


def find(corpus: Corpus, view: View, query: Query, *, paths: bool = False) -> list[list[Hit]]:
    """The best passages of a view for each question that reach the threshold, with their `paths` if wanted."""
    if not len(view):
        return [[] for _ in query.questions]
    extra = _lexical(corpus, view, query)
    graph = corpus.graph.links(view) if query.graph is not None and corpus.graph is not None else None
    first = query if graph is None else replace(query, k=max(query.k, FIRST))
    # Computed once: a filter may read all metadata.
    allowed = view.allowed(query.filter)
    found: list[list[Hit]] = []
    for row, ranking in enumerate(_search(view.patterns, first, extra, allowed)):
        walked = None
        if graph is not None:
            part = None if extra is None else extra[row : row + 1]
            ranking, walked = _walked(view, query.one(row), ranking, *graph, part, allowed)
        hits = _hits(view, query, ranking, certified=ranking.certified and corpus.complete)
        if paths and graph is not None and walked is not None:
            hits = _with_paths(view, hits, walked, graph[1])
        found.append(hits)
    return found


def _hits(view: View, query: Query, ranking: Ranking, *, certified: bool) -> list[Hit]:
    """The passages of a ranking that reach the threshold."""
    least = -np.inf if query.score_threshold is None else query.score_threshold
    ranked = zip(ranking.indices.tolist(), ranking.scores.tolist(), strict=True)
    kept = {number: score for number, score in ranked if score >= least}
    passages = view.fetch([*kept])
    return [Hit(number, score, passage, certified) for (number, score), passage in zip(kept.items(), passages, strict=True)]


def _with_paths(view: View, hits: list[Hit], walked: Walk, numbers: Numbers) -> list[Hit]:
    """Hits with their ways along a walk; `numbers` has the number in the view of each passage of the walk."""
    known = {hit.number: hit.passage for hit in hits}

    def document(node: int) -> Document:
        number = int(numbers[node])
        if number not in known:
            [known[number]] = view.fetch([number])
        return known[number].document

    return [hit._replace(path=walked.path(int(np.searchsorted(numbers, hit.number)), document)) for hit in hits]


def _lexical(corpus: Corpus, view: View, query: Query) -> Vectors | None:
    """BM25 times its weights, (q, n); None without BM25."""
    if corpus.bm25 is None or not query.lexical_weight:
        return None
    extra: Vectors = np.float32(query.lexical_weight) * corpus.bm25.scores(view, query.questions)
    if query.lexical_history and query.history_weight and any(query.turns):
        extra += np.float32(query.lexical_history) * corpus.bm25.scores(view, query.questions, query.turns)
    return extra


def _walked(
    view: View,
    query: Query,
    ranking: Ranking,
    links: Links,
    numbers: Numbers,
    extra: Vectors | None,
    allowed: npt.NDArray[np.bool_] | None,
) -> tuple[Ranking, Walk]:
    """The passages that a walk reached, by their mass, then the others. The scores are those of the search."""
    assert query.graph is not None
    walked = walk(links, query.questions[0], np.searchsorted(numbers, ranking.indices), ranking.scores, query.graph)
    mass = walked.passages if allowed is None else np.where(allowed[numbers], walked.passages, 0)
    chosen = numbers[_best(mass, query.k)]
    others = ranking.indices[~np.isin(ranking.indices, chosen)]
    chosen = np.concatenate([chosen, others])[: query.k]
    scores = dict(zip(ranking.indices.tolist(), ranking.scores.tolist(), strict=True))
    missing = np.setdiff1d(chosen, ranking.indices)
    if len(missing):
        mask = np.zeros(len(view.keys), dtype=np.bool_)
        mask[missing] = True
        [rest] = _search(view.patterns_for(missing), replace(query, k=len(missing)), extra, mask)
        scores |= dict(zip(rest.indices.tolist(), rest.scores.tolist(), strict=True))
    certified = ranking.certified and np.array_equal(ranking.indices[: query.k], chosen)
    found = np.array([scores[number] for number in chosen.tolist()], dtype=np.float64)
    return Ranking(chosen, found, certified, ranking.scored), walked


def _search(patterns: Patterns, query: Query, extra: Vectors | None, allowed: npt.NDArray[np.bool_] | None) -> list[Ranking]:
    weights = {"beta": query.beta, "passage_weight": query.passage_weight}
    return search(patterns, query.states, k=query.k, allowed=allowed, extra=extra, **weights)


def _best(mass: npt.NDArray[np.float64], k: int) -> Numbers:
    """The places of the k greatest values above 0, greatest first; equal values in the order of their places."""
    bound = np.partition(mass, len(mass) - k)[len(mass) - k] if k < len(mass) else 0.0
    there = np.flatnonzero((mass >= bound) & (mass > 0))
    return there[np.argsort(-mass[there], kind="stable")][:k]


def hit_document(view: View, hit: Hit, query: Query, *, association: bool) -> Document:
    """A found passage as a document with `source`, `score`, `certified`, `quote`, `graph_path` and `association`."""
    passage, spans = hit.passage.document, hit.passage.spans
    patterns = view.patterns_for(np.array([hit.number]))
    shares, products = associate(patterns, hit.number, query.states[0], query.beta)
    texts = [passage.page_content[start:end] for start, end in spans]
    metadata = copy.deepcopy(passage.metadata)
    metadata.setdefault("source", str(metadata.get("document_id") or passage.id))
    # Equal weights, as at beta = 0, are decided by the product.
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
    # The constructor would copy the metadata into a plain dict.
    found.metadata = FoundMetadata(metadata)
    return found
