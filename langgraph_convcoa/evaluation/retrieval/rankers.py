"""The pool of documents and questions, and the methods that rank the documents for a question."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

from langgraph_convcoa.datasets.queries import Dataset, Query
from langgraph_convcoa.evaluation.methods.registry import DENSE, retrieval_kind
from langgraph_convcoa.retrieval.corpus import read
from langgraph_convcoa.retrieval.documents.split import document_id, pattern_text
from langgraph_convcoa.retrieval.encoders.base import Encoder, RecentEncoder, Vectors
from langgraph_convcoa.retrieval.encoders.cache import PatternCache, encode_texts
from langgraph_convcoa.retrieval.hybrid.bm25 import BM25Index
from langgraph_convcoa.retrieval.index.index import Index
from langgraph_convcoa.retrieval.memory_corpus import Memory, MemoryCorpus, build_memory
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.retrieval.query.model import UNTRAINED, RetrieverModel
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

_DEPTH = 100  # Number of documents in a ranking.
Ranker = Callable[[Sequence[Query]], list[list[str]]]  # Ranks documents for each query: their ids, best first.
_QUERIES = 1_000_000  # Queries whose vectors are kept, since all methods ask the same questions.
_TEXTS: dict[str, Callable[[Query], str]] = {
    "question": lambda query: query.question,
    "two-turns": lambda query: query.two_turns,
    # The latest turn comes first, since the encoder cuts off the end of a long text.
    "history": lambda query: " ".join([query.question, *(part for turn in reversed(query.history) for part in turn if part)]),
    "rewrite": lambda query: query.rewrite,
}


@dataclass(frozen=True)
class Pool:
    """Documents (`passages`, or those of an `index`), and the queries that have a gold passage among the documents."""

    name: str
    documents: int
    queries: tuple[Query, ...]
    left_out: int
    passages: tuple[Document, ...] = ()
    index: Index | None = None


def passage_pool(dataset: Dataset, distractors: Iterable[Document] = ()) -> Pool:
    """A data set's passages, and the distractors whose id and text are new."""
    pool = [document for document in dataset.corpus if document.page_content.strip()]
    ids, texts = {document.id for document in pool}, {document.page_content for document in pool}
    for document in distractors:
        if document.id not in ids and document.page_content not in texts and document.page_content.strip():
            ids.add(document.id)
            texts.add(document.page_content)
            pool.append(document)
    asked = dataset.answerable({str(identity) for identity in ids})
    return Pool(dataset.name, len(pool), asked, len(dataset.queries) - len(asked), tuple(pool))


def index_pool(dataset: Dataset, index: Index) -> Pool:
    """The documents of an index. Gold ids are compared with the ids of documents, not of their parts."""
    ids = {document_id(passage.document) for passage in read(index.snapshot())}
    asked = dataset.answerable(ids)
    return Pool(dataset.name, len(ids), asked, len(dataset.queries) - len(asked), index=index)


def as_ranker(method: BaseRetriever | Ranker) -> Ranker:
    """Make a ranker of a retriever; a ranker is returned unchanged. LangChain retrievers get the question alone."""
    if isinstance(method, HopfieldRetriever):
        return hopfield_ranker(method)
    if not isinstance(method, BaseRetriever):
        return method

    def rank(queries: Sequence[Query]) -> list[list[str]]:
        found = method.batch([query.question for query in queries])
        return [_first(document_id(document) for document in documents) for documents in found]

    return rank


def hopfield_ranker(retriever: HopfieldRetriever) -> Ranker:
    """Make a ranker of a HopfieldRetriever, which gets the question and its history. A document ranks by its best part."""
    passages = (passage.document for passage in read(retriever.corpus.snapshot()))
    owners = {str(passage.id): document_id(passage) for passage in passages}

    def rank(queries: Sequence[Query]) -> list[list[str]]:
        k = 2 * _DEPTH
        while True:
            found = retriever.search_batch([query.question for query in queries], [query.history for query in queries], k)
            rankings = [_first(owners[identity] for identity, _ in hits) for hits in found]
            if k >= len(owners) or all(len(ranking) >= _DEPTH for ranking in rankings):
                return rankings
            k *= 2

    return rank


@dataclass
class Rankers:
    """The rankers of this library's methods over one pool. Vectors that several methods need are computed once."""

    pool: Pool
    encoder: Encoder
    model: RetrieverModel | None = None
    cache: PatternCache | None = None
    progress: Progress = False
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.encoder = RecentEncoder(self.encoder, _QUERIES)
        self._retrievers: dict[str, HopfieldRetriever] = {}

    def of(self, method: str) -> Ranker:
        """Return the ranker of a method. Its passages are encoded before this returns."""
        kind = retrieval_kind(method)
        if kind == "bm25":
            return self._bm25()
        if kind in _TEXTS:
            return self._one_vector(_TEXTS[kind])
        retriever = self._retriever("hybrid" if kind in ("graph", "reranked") else kind)
        # A copy shares the encoded passages.
        if kind in ("graph", "reranked"):
            retriever = retriever.model_copy(update={"graph": True, "rerank": 20 if kind == "reranked" else 0})
        elif method == "dense" or method.endswith(DENSE):
            retriever = retriever.model_copy(update={"lexical_weight": 0.0})
        return hopfield_ranker(retriever)

    def _retriever(self, kind: str) -> HopfieldRetriever:
        if kind not in self._retrievers:
            settings = {**self.settings, "graph": None, "encoder": self.encoder}
            model: RetrieverModel | str | None = {"hybrid": None, "untrained": UNTRAINED}.get(kind, self.model)
            corpus = self.pool.index or MemoryCorpus(self._memory)
            self._retrievers[kind] = HopfieldRetriever(corpus=corpus, model=model, **settings)
        return self._retrievers[kind]

    @cached_property
    def _memory(self) -> Memory:
        return build_memory(self.pool.passages, self.encoder, cache=self.cache, progress=self.progress)

    @cached_property
    def _whole(self) -> Vectors:
        """One vector for each passage. The encoder cuts off the end of a long passage."""
        texts = [pattern_text(document) for document in self.pool.passages]
        return encode_texts(self.encoder, texts, self.cache, self.progress)

    def _bm25(self) -> Ranker:
        index = BM25Index(self.pool.passages)

        def rank(queries: Sequence[Query]) -> list[list[str]]:
            rankings = []
            for query in queries:
                scores = index.scores([query.question])[0]
                best = np.argsort(-scores, kind="stable")[:_DEPTH]
                rankings.append([str(self.pool.passages[i].id) for i in best if scores[i] > 0])
            return rankings

        return rank

    def _one_vector(self, text: Callable[[Query], str]) -> Ranker:
        patterns, ids = self._whole, [str(document.id) for document in self.pool.passages]

        def rank(queries: Sequence[Query]) -> list[list[str]]:
            found = self.encoder.encode_queries([text(query) for query in queries])
            return [_first(ids[i] for i in np.argsort(-(patterns @ state), kind="stable")) for state in found]

        return rank


def _first(ids: Iterable[str]) -> list[str]:
    return list(islice(dict.fromkeys(ids), _DEPTH))
