"""Pool of documents and questions, and the retrieval methods that rank it; what they share is computed once, when needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from langchain_core.documents import Document

from langgraph_convcoa.datasets.queries import Dataset, Query
from langgraph_convcoa.evaluation.retrieval.denoising import PrunedHistory
from langgraph_convcoa.evaluation.retrieval.methods import HYBRID, PARTS, base_of
from langgraph_convcoa.evaluation.retrieval.rewriting import Seq2Seq, expanded_by_answers, expansions, rewrites
from langgraph_convcoa.evaluation.retrieval.selection import helpful_turns, similar_turns
from langgraph_convcoa.retrieval.corpus import read
from langgraph_convcoa.retrieval.documents.split import document_id, pattern_text
from langgraph_convcoa.retrieval.encoders.base import Encoder, Vectors
from langgraph_convcoa.retrieval.encoders.cache import PatternCache, encode_texts
from langgraph_convcoa.retrieval.encoders.recent import RecentValues
from langgraph_convcoa.retrieval.encoders.wrappers import DelegatingEncoder
from langgraph_convcoa.retrieval.graph.settings import GraphSettings
from langgraph_convcoa.retrieval.hybrid.bm25 import BM25Index
from langgraph_convcoa.retrieval.index.index import Index
from langgraph_convcoa.retrieval.memory_corpus import Memory, MemoryCorpus, build_memory
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.retrieval.query.model import UNTRAINED, RetrieverModel, own_encoder
from langgraph_convcoa.retrieval.query.query_encoder import QueryEncoder
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

_DEPTH = 100
"""How many documents of a ranking count."""

Ranker = Callable[[Sequence[Query]], list[list[str]]]
Reader = Callable[[Sequence[Query]], list[str]]
"""What is read of each question in its conversation: a text that stands for both."""

_STEPS = {"without-walk": 0, "one-step": 1}
_ALIASES = {"hopfield": "hybrid", "dense": "hybrid-dense"}


@dataclass(frozen=True)
class Pool:
    """Documents (`passages`, or those of an `index`), and the queries of which at least one gold passage is among them."""

    name: str
    documents: int
    queries: tuple[Query, ...]
    left_out: int
    passages: tuple[Document, ...] = ()
    index: Index | None = None


def passage_pool(dataset: Dataset, distractors: Iterable[Document] = ()) -> Pool:
    """A data set's passages and distractors; of these those with an id or a text that is there already are not added."""
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
    """The documents of an index; a query's gold passages are looked for among their ids."""
    ids = {document_id(passage.document) for passage in read(index.snapshot())}
    asked = dataset.answerable(ids)
    return Pool(dataset.name, len(ids), asked, len(dataset.queries) - len(asked), index=index)


class Rankers:
    """The methods over one pool; the arguments are those of `evaluate_retrieval`."""

    def __init__(
        self,
        pool: Pool,
        encoder: Encoder,
        *,
        model: RetrieverModel | None = None,
        cache: PatternCache | None = None,
        progress: Progress = False,
        settings: Mapping[str, Any] | None = None,
        rewriter: Seq2Seq | None = None,
        answerer: Seq2Seq | None = None,
        dual: QueryEncoder | None = None,
    ) -> None:
        self._pool = pool
        self._encoder = _RememberingEncoder(encoder)
        self._model = model
        self._cache = cache
        self._progress = progress
        self._settings = {**(settings or {}), "graph": None}
        self._memories: dict[str, Memory] = {}
        self._retrievers: dict[str, HopfieldRetriever] = {}
        self._whole: Vectors | None = None
        self._rewriter, self._answerer, self._dual = rewriter, answerer, dual
        self._readers: dict[str, Reader] = {}

    def of(self, method: str) -> Ranker:
        """The method of this name; its passages are encoded before this returns."""
        name = _ALIASES.get(method, method)
        if name == "bm25":
            return self._bm25()
        kind, _, channel = name.partition("-")
        if kind == "graph":
            settings = GraphSettings(steps=_STEPS[channel]) if channel else True
            return self._search(self._retriever("hybrid").model_copy(update={"graph": settings}))
        if kind in ("hybrid", "untrained", "trained"):
            retriever = self._retriever(kind)
            # The copy shares what has been encoded.
            return self._search(retriever.model_copy(update={"lexical_weight": 0.0}) if channel else retriever)
        if name == "dual-question":
            assert self._dual is not None
            return self._dense(*self._parts(), partial(_dual_states, self._dual))
        base = base_of(name)
        reader = self._reader(base)
        if name == base + HYBRID:
            return self._search(self._retriever("untrained"), reader)
        vectors, owners = self._parts() if name == base + PARTS else self._passages()
        return self._dense(vectors, owners, lambda queries: self._encoder.encode_queries(reader(queries)))

    def _passages(self) -> tuple[Vectors, list[str]]:
        """One vector a passage, of as much of it as the encoder reads, and the passages' ids."""
        if self._whole is None:
            texts = [pattern_text(document) for document in self._pool.passages]
            self._whole = encode_texts(self._encoder, texts, self._cache, self._progress)
        return self._whole, [str(document.id) for document in self._pool.passages]

    def _parts(self) -> tuple[Vectors, list[str]]:
        """One vector a part that is searched, and the id of the passage that it is of."""
        memory = self._memory(self._encoder)
        whole = memory.patterns.take(memory.patterns.offsets[:-1])
        return whole, [document_id(passage) for passage in memory.passages]

    def _reader(self, method: str) -> Reader:
        """The reader of a method; what it read of a question is kept for the next method that asks."""
        if method not in self._readers:
            read, kept = self._new_reader(method), RecentValues[int, str](len(self._pool.queries))

            def remembering(queries: Sequence[Query]) -> list[str]:
                # By identity: the pool has the questions as long as this is there, and some have no id of their own.
                by_id = {id(query): query for query in queries}
                found = kept.of(by_id, lambda new: read([by_id[number] for number in new]))
                return [found[id(query)] for query in queries]

            self._readers[method] = remembering
        return self._readers[method]

    def _new_reader(self, method: str) -> Reader:
        if method == "t5qr":
            assert self._rewriter is not None
            return partial(rewrites, self._rewriter)
        if method == "convgqr":
            assert self._rewriter is not None
            assert self._answerer is not None
            return partial(expansions, self._rewriter, self._answerer)
        if method == "lecore-like":
            return partial(PrunedHistory(self._pool.passages).texts, self._encoder)
        if method == "haconvdr-like":
            return partial(similar_turns, self._encoder)
        if method == "haconvdr-oracle":
            return partial(helpful_turns, self._encoder, *self._parts())
        text = _TEXTS[method]
        return lambda queries: [text(query) for query in queries]

    def _memory(self, encoder: Encoder) -> Memory:
        if encoder.name not in self._memories:
            memory = build_memory(self._pool.passages, encoder, cache=self._cache, progress=self._progress)
            self._memories[encoder.name] = memory
        return self._memories[encoder.name]

    def _retriever(self, kind: str) -> HopfieldRetriever:
        if kind not in self._retrievers:
            encoder: Encoder = self._encoder
            model: RetrieverModel | str | None = {"hybrid": None, "untrained": UNTRAINED}.get(kind, self._model)
            own = own_encoder(self._model) if kind == "trained" else None
            if own is not None:
                # Trained along with the model: it encodes the passages again.
                encoder = _RememberingEncoder(own)
            corpus = self._pool.index or MemoryCorpus(self._memory(encoder))
            self._retrievers[kind] = HopfieldRetriever(corpus=corpus, encoder=encoder, model=model, **self._settings)
        return self._retrievers[kind]

    def _bm25(self) -> Ranker:
        passages = self._pool.passages
        index = BM25Index(passages)

        def rank(queries: Sequence[Query]) -> list[list[str]]:
            rankings = []
            for query in queries:
                scores = index.scores([query.question])[0]
                best = np.argsort(-scores, kind="stable")[:_DEPTH]
                rankings.append([str(passages[i].id) for i in best if scores[i] > 0])
            return rankings

        return rank

    def _dense(self, patterns: Vectors, owners: Sequence[str], states: Callable[[Sequence[Query]], Vectors]) -> Ranker:
        def rank(queries: Sequence[Query]) -> list[list[str]]:
            found = states(queries)
            return [_documents(owners[i] for i in np.argsort(-(patterns @ state), kind="stable")) for state in found]

        return rank

    def _search(self, retriever: HopfieldRetriever, reader: Reader | None = None) -> Ranker:
        """The retriever on questions with their histories, or on what a reader makes of them."""
        passages = (passage.document for passage in read(retriever.corpus.snapshot()))
        owners = {str(passage.id): document_id(passage) for passage in passages}

        def rank(queries: Sequence[Query]) -> list[list[str]]:
            k = 2 * _DEPTH
            asked = [query.question for query in queries] if reader is None else reader(queries)
            histories = [query.history if reader is None else () for query in queries]
            while True:
                found = retriever.search_batch(asked, histories, k)
                rankings = [_documents(owners[identity] for identity, _ in hits) for hits in found]
                if k >= len(owners) or all(len(ranking) >= _DEPTH for ranking in rankings):
                    return rankings
                k *= 2

        return rank


class _RememberingEncoder(DelegatingEncoder):
    """An encoder that encodes each query text once, since every method asks the same questions."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(encoder)
        self._known: dict[str, Vectors] = {}

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        if new:
            self._known.update(zip(new, self.encoder.encode_queries(new), strict=True))
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        return np.stack([self._known[text] for text in texts])


_TEXTS: dict[str, Callable[[Query], str]] = {
    "question": lambda query: query.question,
    "two-turns": lambda query: query.two_turns,
    # Latest first, since the encoder cuts off the end of what is too long.
    "history": lambda query: " ".join([query.question, *(part for turn in reversed(query.history) for part in turn if part)]),
    "rewrite": lambda query: query.rewrite,
    "convgqr-like": expanded_by_answers,
}
"""What the plain encoder reads of a query."""


def _dual_states(encoder: QueryEncoder, queries: Sequence[Query]) -> Vectors:
    turns = [[(question.strip(), answer.strip()) for question, answer in query.history] for query in queries]
    return encoder.encode([query.question.strip() for query in queries], turns)


def _documents(ids: Iterable[str]) -> list[str]:
    """The first ids, each once."""
    return list(islice(dict.fromkeys(ids), _DEPTH))
