"""The texts that the peers make of a question and its conversation, and the search with these texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from experiments.peers.pruning import PrunedHistory
from experiments.peers.selection import helpful_turns, similar_turns
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.evaluation.retrieval.rankers import Pool, Ranker
from langgraph_convcoa.retrieval.documents.split import document_id
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.memory_corpus import MemoryCorpus, build_memory
from langgraph_convcoa.retrieval.query.model import UNTRAINED
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

Reader = Callable[[Sequence[Query]], list[str]]
_DEPTH = 100


def peer_rankers(pool: Pool, encoder: Encoder, cache: PatternCache | None = None) -> Mapping[str, Ranker]:
    """Two rankers for each text: one vector for each part of a passage, and the untrained retriever with BM25 (`NAME-hybrid`).

    convgqr-like expands the question by earlier answers (Mo et al. 2023), lecore-like by weighted words (Mao et al. 2023),
    haconvdr-like by similar turns (Mo et al. 2024). haconvdr-oracle sees the gold passages, to show how far the idea can go.
    """
    memory = build_memory(pool.passages, encoder, cache=cache, progress=True)
    parts = memory.patterns.take(memory.patterns.offsets[:-1])
    owners = [document_id(passage) for passage in memory.passages]
    retriever = HopfieldRetriever(corpus=MemoryCorpus(memory), encoder=encoder, model=UNTRAINED, graph=None)
    names = {str(passage.id): document_id(passage) for passage in memory.passages}

    def dense(reader: Reader) -> Ranker:
        def rank(queries: Sequence[Query]) -> list[list[str]]:
            found = encoder.encode_queries(reader(queries))
            return [_first([owners[i] for i in np.argsort(-(parts @ state), kind="stable")]) for state in found]

        return rank

    def hybrid(reader: Reader) -> Ranker:
        def rank(queries: Sequence[Query]) -> list[list[str]]:
            found = retriever.search_batch(reader(queries), [()] * len(queries), min(4 * _DEPTH, len(owners)))
            return [_first([names[identity] for identity, _ in hits]) for hits in found]

        return rank

    readers: dict[str, Reader] = {
        "question": lambda queries: [query.question for query in queries],
        "two-turns": lambda queries: [query.two_turns for query in queries],
        "history": lambda queries: [
            _joined(query, [part for turn in reversed(query.history) for part in turn]) for query in queries
        ],
        "convgqr-like": lambda queries: [
            _joined(query, [answer for _, answer in reversed(query.history)]) for query in queries
        ],
        "lecore-like": lambda queries: pruned.texts(encoder, queries),
        "haconvdr-like": lambda queries: similar_turns(encoder, queries),
        "haconvdr-oracle": lambda queries: helpful_turns(encoder, parts, owners, queries),
    }
    if all(query.rewrite for query in pool.queries):
        readers["rewrite"] = lambda queries: [query.rewrite for query in queries]
    pruned = PrunedHistory(pool.passages)
    found = {name: dense(reader) for name, reader in readers.items()}
    return found | {f"{name}-hybrid": hybrid(reader) for name, reader in readers.items()}


def _joined(query: Query, texts: Sequence[str]) -> str:
    return " ".join([query.question, *(text for text in texts if text.strip())])


def _first(ids: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(ids))[:_DEPTH]
