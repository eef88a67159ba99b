"""One search of a corpus: from query states to ranked passages and returned documents."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from langchain_core.documents import Document

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.corpus import Corpus, Numbers, Passage, Query, View
from langgraph_convcoa.retrieval.documents.split import pattern_text
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.graph.index import Links
from langgraph_convcoa.retrieval.graph.walk import FIRST, Walk, walk
from langgraph_convcoa.retrieval.reranker import TrainedReranker, conversation_text
from langgraph_convcoa.retrieval.scoring.patterns import Mask
from langgraph_convcoa.retrieval.scoring.topk import Ranking, Scores, associate, score, search
from langgraph_convcoa.text.words import is_english

_LONGEST_GAP = 20  # Two parts of a document are neighbours if at most this many characters of white space are between them.
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
    """For each question, the best passages of a view that reach the threshold; with `paths`, also their graph paths."""
    if not len(view):
        return [[] for _ in query.questions]
    extra = _lexical(corpus, view, query)
    graph = corpus.graph.links(view) if query.graph is not None and corpus.graph is not None else None
    first = max(query.k, query.rerank, 0 if graph is None else FIRST)
    # Computed once: a filter may read all metadata.
    allowed = view.allowed(query.filter)
    found: list[list[Hit]] = []
    weights = {"beta": query.beta, "passage_weight": query.passage_weight}
    for row, ranking in enumerate(search(view.patterns, query.states, k=first, allowed=allowed, extra=extra, **weights)):
        one = query.one(row)
        ranking, scores = _reranked(view, one, ranking)
        if graph is None:
            hits = _hits(corpus, view, one, replace(ranking, scores=scores))
            found.append(hits[: query.k])
            continue
        ranking, walked = _walked(view, one, ranking, graph, None if extra is None else extra[row], allowed)
        hits = _hits(corpus, view, one, ranking)
        found.append(_with_paths(view, hits, walked, graph[1]) if paths else hits)
    return found


def _reranked(view: View, query: Query, ranking: Ranking) -> tuple[Ranking, Scores]:
    """Rank by score + weight * logit. Returns a ranking with these sums, and the search's scores in the same order.

    A passage that the reranker does not read has the lowest logit of those that it reads.
    """
    reranker, count = query.reranker, min(query.rerank, len(ranking.indices))
    if reranker is None or count < 2:
        return ranking, ranking.scores
    texts = [pattern_text(passage.document) for passage in view.fetch(ranking.indices[:count].tolist())]
    # The trained reranker reads English.
    if isinstance(reranker, TrainedReranker) and not is_english(query.questions[0], texts[0]):
        return ranking, ranking.scores
    logits = np.asarray(reranker.logits(conversation_text(query.questions[0], query.turns[0]), texts), dtype=np.float64)
    if logits.shape != (count,) or not np.isfinite(logits).all():
        raise RetrievalError(f"The reranker must give one finite number for each of {count} passages; use another one.")
    sums = ranking.scores + reranker.weight * np.pad(logits, (0, len(ranking.indices) - count), constant_values=logits.min())
    order = np.argsort(-sums, kind="stable")
    return replace(ranking, indices=ranking.indices[order], scores=sums[order]), ranking.scores[order]


def _hits(corpus: Corpus, view: View, query: Query, ranking: Ranking) -> list[Hit]:
    """The passages of a ranking that reach the threshold."""
    least = -np.inf if query.score_threshold is None else float(query.score_threshold)
    kept = ranking.scores >= least
    numbers, certified = ranking.indices[kept].tolist(), ranking.certified and corpus.complete
    found = zip(numbers, ranking.scores[kept].tolist(), view.fetch(numbers), strict=True)
    return [Hit(number, score, passage, certified) for number, score, passage in found]


def _with_paths(view: View, hits: list[Hit], walked: Walk, numbers: Numbers) -> list[Hit]:
    """Add the path of the walk to each hit; `numbers` has the view's number of each passage of the walk."""

    @cache
    def document(node: int) -> Document:
        return view.fetch([int(numbers[node])])[0].document

    return [hit._replace(path=walked.path(int(np.searchsorted(numbers, hit.number)), document)) for hit in hits]


def _lexical(corpus: Corpus, view: View, query: Query) -> Vectors | None:
    """BM25 scores times their weights, (q, n); None without BM25."""
    if corpus.bm25 is None or not query.lexical_weight:
        return None
    extra: Vectors = np.float32(query.lexical_weight) * corpus.bm25.scores(view, query.questions)
    if query.lexical_history and query.history_weight and any(query.turns):
        extra += np.float32(query.lexical_history) * corpus.bm25.scores(view, query.questions, query.turns)
    return extra


def _walked(
    view: View, query: Query, ranking: Ranking, graph: tuple[Links, Numbers], extra: Vectors | None, allowed: Mask
) -> tuple[Ranking, Walk]:
    """Rank the passages that a walk reached, by mass, before the others. The scores stay those of the search."""
    assert query.graph is not None
    links, numbers = graph
    walked = walk(links, query.questions[0], np.searchsorted(numbers, ranking.indices), ranking.scores, query.graph)
    mass = walked.passages if allowed is None else np.where(allowed[numbers], walked.passages, 0)
    reached = np.flatnonzero(mass)
    # Passages with equal mass stay in the order of their numbers.
    chosen = numbers[reached[np.argsort(-mass[reached], kind="stable")][: query.k]]
    others = ranking.indices[~np.isin(ranking.indices, chosen)]
    chosen = np.concatenate([chosen, others])[: query.k]
    weights = {"beta": query.beta, "passage_weight": query.passage_weight}
    scores = score(view.patterns, query.states[0], chosen, extra=extra, **weights)
    certified = ranking.certified and np.array_equal(ranking.indices[: query.k], chosen)
    return Ranking(chosen, scores, certified, ranking.scored), walked


def hit_document(view: View, hit: Hit, query: Query, *, association: bool) -> Document:
    """A found passage as a document with `source`, `score`, `certified`, `quote`, `graph_path` and `association`."""
    passage, spans = hit.passage.document, hit.passage.spans
    shares, products = associate(view.patterns, hit.number, query.states[0], query.beta)
    texts = [passage.page_content[start:end] for start, end in spans]
    metadata = copy.deepcopy(passage.metadata)
    metadata.setdefault("source", str(metadata.get("document_id") or passage.id))
    # If weights are equal, as at beta = 0, the product decides.
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


def surroundings(corpus: Corpus, view: View, hits: Sequence[Hit], neighbours: int) -> Iterator[list[Passage]]:
    """Each hit with up to `neighbours` parts of its document on either side, in order; no part comes twice."""
    taken = {hit.passage.document.id for hit in hits}
    for hit in hits:
        if not _is_part(hit.passage):
            yield [hit.passage]
            continue
        left, right = (_run(hit.passage, part, taken) for part in corpus.beside(view, hit.number, neighbours))
        taken |= {passage.document.id for passage in (*left, *right)}
        yield [*reversed(left), hit.passage, *right]


def joined(document: Document, parts: Sequence[Passage]) -> Document:
    """A found document with the parts around it; its metadata has `part`, [start, end] of the found part in the text."""
    if len(parts) == 1:
        return document
    text, place = parts[0].document.page_content, 0
    for previous, passage in itertools.pairwise(parts):
        gap = _gap(previous.document, passage.document)
        if passage.document.id == document.id:
            place = len(text) + (gap > 0)
        text += ("\n" if gap else "") + passage.document.page_content
    # Keep the metadata's type: a copy would be a plain dict, which also compares scores.
    wider = document.model_copy(update={"page_content": text, "metadata": type(document.metadata)(document.metadata)})
    wider.metadata["start"] = parts[0].document.metadata["start"]
    wider.metadata["part"] = [place, place + len(document.page_content)]
    if windows := document.metadata.get("association"):
        moved = [{**window, "start": window["start"] + place, "end": window["end"] + place} for window in windows]
        wider.metadata["association"] = moved
    return wider


def _is_part(passage: Passage) -> bool:
    return "document_id" in passage.document.metadata and isinstance(passage.document.metadata.get("start"), int)


def _run(found: Passage, beside: Sequence[Passage], taken: set[str | None]) -> list[Passage]:
    """The passages of `beside`, nearest first, until one is in `taken` or does not adjoin the passage before it."""
    run = [found]
    for passage in beside:
        if passage.document.id in taken or not _goes_on(run[-1], passage):
            break
        run.append(passage)
    return run[1:]


def _goes_on(one: Passage, other: Passage) -> bool:
    """True if two passages are neighbouring parts of one document."""
    if not _is_part(other) or one.document.metadata["document_id"] != other.document.metadata["document_id"]:
        return False
    return min(abs(_gap(one.document, other.document)), abs(_gap(other.document, one.document))) <= _LONGEST_GAP


def _gap(first: Document, second: Document) -> int:
    """Characters between two parts of a document; negative if the second begins before the first ends."""
    return int(second.metadata["start"]) - int(first.metadata["start"]) - len(first.page_content)
