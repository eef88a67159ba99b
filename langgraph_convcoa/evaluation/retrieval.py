"""Retrieval methods compared on one pool of passages: `convcoa evaluate retrieval`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from time import perf_counter
from typing import Any

import numpy as np
from langchain_core.documents import Document
from rich.table import Table

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.datasets import Dataset, Query
from langgraph_convcoa.evaluation.metrics import ndcg, recall, reciprocal_rank
from langgraph_convcoa.retrieval.cache import PatternCache, encode_patterns
from langgraph_convcoa.retrieval.encoder import Encoder, Vectors, as_encoder
from langgraph_convcoa.retrieval.lexical import LexicalIndex
from langgraph_convcoa.retrieval.memory import Memory, build_memory
from langgraph_convcoa.retrieval.passages import document_id, pattern_text
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

METHODS = ("bm25", "question", "question-parts", "two-turns", "history", "rewrite", "dense", "hybrid")
"""bm25: BM25 on the question. question: the plain encoder, one vector a passage (what is too long for it is cut off), on the
question as it was put; two-turns, history, rewrite: the same on the question with the user turn before it, on the question
with all turns before it (latest first), on its rewrite. question-parts: `question` over the parts that long passages are split
into for `hybrid`: what the split gives, without the retriever. hybrid (or hopfield): `HopfieldRetriever` with its settings,
untrained; dense: the same without its lexical channel."""

_ALIASES = {"hopfield": "hybrid"}

_DEPTH = 100
_METRICS: dict[str, Callable[[Sequence[str], Sequence[str]], float]] = {
    "MRR": reciprocal_rank,
    "Recall@1": lambda ranking, gold: recall(ranking, gold, 1),
    "Recall@5": lambda ranking, gold: recall(ranking, gold, 5),
    "Recall@10": lambda ranking, gold: recall(ranking, gold, 10),
    "Recall@100": lambda ranking, gold: recall(ranking, gold, 100),
    "nDCG@10": lambda ranking, gold: ndcg(ranking, gold, 10),
}

Ranker = Callable[[Sequence[Query]], list[list[str]]]


@dataclass(frozen=True)
class MethodResult:
    """What one method reached: the means of its measures over `queries` queries, and the seconds that all of them took."""

    queries: int
    metrics: dict[str, float]
    seconds: float


@dataclass(frozen=True)
class RetrievalReport:
    """The measures of each method over one pool.

    Attributes:
        dataset: Its name.
        documents: How many were searched, distractors included.
        queries: How many were asked.
        left_out: How many were not, since none of their gold passages is in the pool.
        methods: By name; MRR is of the first 100 documents.
    """

    dataset: str
    documents: int
    queries: int
    left_out: int
    methods: dict[str, MethodResult]

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {
            "dataset": self.dataset,
            "documents": self.documents,
            "queries": self.queries,
            "left_out": self.left_out,
            "methods": {
                name: {"queries": result.queries, **result.metrics, "seconds": round(result.seconds, 3)}
                for name, result in self.methods.items()
            },
        }

    def __rich__(self) -> Table:
        left_out = f", {self.left_out} left out (no gold passage in the pool)" if self.left_out else ""
        table = Table(title=f"{self.dataset}: {self.queries} queries, {self.documents} documents{left_out}")
        table.add_column("method")
        for name in (*_METRICS, "queries"):
            table.add_column(name, justify="right")
        for name, result in self.methods.items():
            table.add_row(name, *(f"{result.metrics[metric]:.3f}" for metric in _METRICS), str(result.queries))
        return table


def evaluate_retrieval(
    dataset: Dataset,
    *,
    methods: Sequence[str] = METHODS,
    distractors: Iterable[Document] = (),
    encoder: Encoder | str | None = None,
    cache: PatternCache | None = None,
    progress: Progress = False,
    settings: Mapping[str, Any] | None = None,
) -> RetrievalReport:
    """Rank the passages of a pool for each query by several methods.

    Where a passage is searched in parts, it ranks by its best part. Queries of which no gold passage is in
    the pool are left out and counted. A method that needs a rewrite ranks the queries that have one.

    Args:
        dataset: Queries and passages.
        methods: Names out of `METHODS`.
        distractors: More passages for the pool; those with an id or a text that is there already are not added.
        encoder: An encoder or the name of a model; all-MiniLM-L6-v2 when None.
        cache: Where encoded passages are kept between runs.
        progress: A bar, a callback or nothing while encoding.
        settings: Settings of the `HopfieldRetriever`, such as `beta`.

    Raises:
        InputError: A method is unknown, or no query has a gold passage in the pool.
        RetrievalError: The passages cannot be encoded.
    """
    unknown = [method for method in methods if _ALIASES.get(method, method) not in METHODS]
    if unknown or not methods:
        raise InputError(f"Unknown retrieval method {', '.join(map(repr, unknown)) or '(none)'}; known: {', '.join(METHODS)}.")
    pool = _pool(dataset.corpus, distractors)
    ids = {document.id for document in pool}
    queries = [query for query in dataset.queries if any(identity in ids for identity in query.gold)]
    if not queries:
        raise InputError(f"No query of {dataset.name} has a gold passage in its corpus.")
    rankers = _Rankers(pool, as_encoder(encoder), cache, progress, dict(settings or {}))
    results = {method: _measure(rankers.of(method), method, queries) for method in dict.fromkeys(methods)}
    return RetrievalReport(dataset.name, len(pool), len(queries), len(dataset.queries) - len(queries), results)


def _measure(ranker: Ranker, method: str, queries: Sequence[Query]) -> MethodResult:
    asked = [query for query in queries if method != "rewrite" or query.rewrite]
    if not asked:
        return MethodResult(0, dict.fromkeys(_METRICS, 0.0), 0.0)
    begin = perf_counter()
    rankings = ranker(asked)
    seconds = perf_counter() - begin
    metrics = {
        name: float(np.mean([measure(ranking, query.gold) for ranking, query in zip(rankings, asked, strict=True)]))
        for name, measure in _METRICS.items()
    }
    return MethodResult(len(asked), metrics, seconds)


def _pool(corpus: Sequence[Document], distractors: Iterable[Document]) -> list[Document]:
    pool = [document for document in corpus if document.page_content.strip()]
    ids, texts = {document.id for document in pool}, {document.page_content for document in pool}
    for document in distractors:
        if document.id not in ids and document.page_content not in texts and document.page_content.strip():
            ids.add(document.id)
            texts.add(document.page_content)
            pool.append(document)
    return pool


class _Rankers:
    """The methods over one pool; what they share is made once, when it is first needed."""

    def __init__(
        self,
        pool: list[Document],
        encoder: Encoder,
        cache: PatternCache | None,
        progress: Progress,
        settings: dict[str, Any],
    ) -> None:
        self._pool = pool
        self._encoder = encoder
        self._cache = cache
        self._progress = progress
        self._settings = settings
        self._memory: Memory | None = None
        self._whole: Vectors | None = None

    def of(self, method: str) -> Ranker:
        if method == "bm25":
            return self._bm25()
        if method == "dense":
            return self._hopfield(self._build(), lexical_weight=0.0)
        if _ALIASES.get(method, method) == "hybrid":
            return self._hopfield(self._build())
        if method == "question-parts":
            memory = self._build()
            whole = memory.patterns.take(memory.patterns.offsets[:-1])
            return self._dense(whole, [document_id(passage) for passage in memory.passages], method)
        if self._whole is None:
            texts = [pattern_text(document) for document in self._pool]
            self._whole = encode_patterns(self._encoder, texts, self._cache, self._progress)
        return self._dense(self._whole, [str(document.id) for document in self._pool], method)

    def _build(self) -> Memory:
        if self._memory is None:
            self._memory = build_memory(self._pool, self._encoder, cache=self._cache, progress=self._progress)
        return self._memory

    def _bm25(self) -> Ranker:
        index = LexicalIndex(self._pool)

        def rank(queries: Sequence[Query]) -> list[list[str]]:
            rankings = []
            for query in queries:
                scores = index.scores([query.question])[0]
                best = np.argsort(-scores, kind="stable")[:_DEPTH]
                rankings.append([str(self._pool[i].id) for i in best if scores[i] > 0])
            return rankings

        return rank

    def _dense(self, patterns: Vectors, owners: Sequence[str], method: str) -> Ranker:
        def rank(queries: Sequence[Query]) -> list[list[str]]:
            states = self._encoder.encode_queries([_query_text(query, method) for query in queries])
            return [_documents(owners[i] for i in np.argsort(-(patterns @ state), kind="stable")) for state in states]

        return rank

    def _hopfield(self, memory: Memory, **settings: Any) -> Ranker:
        retriever = HopfieldRetriever(memory=memory, encoder=self._encoder, **(self._settings | settings))
        owners = {str(passage.id): document_id(passage) for passage in memory.passages}

        def rank(queries: Sequence[Query]) -> list[list[str]]:
            k = 2 * _DEPTH
            while True:
                found = retriever.search_batch([query.question for query in queries], [query.history for query in queries], k)
                rankings = [_documents(owners[identity] for identity, _ in hits) for hits in found]
                if k >= len(memory) or all(len(ranking) >= _DEPTH for ranking in rankings):
                    return rankings
                k *= 2

        return rank


def _query_text(query: Query, method: str) -> str:
    match method:
        case "two-turns":
            return " ".join([*(question for question, _ in query.history[-1:]), query.question])
        case "history":
            # Latest first, since the encoder cuts off the end of what is too long.
            earlier = [part for turn in reversed(query.history) for part in turn if part]
            return " ".join([query.question, *earlier])
        case "rewrite":
            return query.rewrite
        case _:
            return query.question


def _documents(ids: Iterable[str]) -> list[str]:
    """The first ids, each once."""
    return list(islice(dict.fromkeys(ids), _DEPTH))
