"""What a search is asked with, and the search itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from langchain_core.documents import Document
from pydantic import ConfigDict, PrivateAttr

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.filters import Filter
from langgraph_convcoa.retrieval.hits import Hit, best_sets, hit_document
from langgraph_convcoa.retrieval.hybrid.ann import ApproximateSettings, approximate_settings
from langgraph_convcoa.retrieval.hybrid.ann_channel import ApproximateChannel, patterns_of
from langgraph_convcoa.retrieval.hybrid.ann_search import needs_graph
from langgraph_convcoa.retrieval.index.index import Index
from langgraph_convcoa.retrieval.index.snapshot import StaleSnapshot
from langgraph_convcoa.retrieval.query.conversation_state import History, StateEncoder, Turn, history_pairs
from langgraph_convcoa.retrieval.query.model import RetrieverModel
from langgraph_convcoa.retrieval.retriever_inputs import query_text
from langgraph_convcoa.retrieval.retriever_memory import MemoryRetriever, View, allowed, fetch
from langgraph_convcoa.retrieval.scoring.topk import Ranking, check_settings, search
from langgraph_convcoa.retrieval.scoring.weights import HopfieldWeights

_SEARCHES = 5


class SearchingRetriever(MemoryRetriever):
    """A memory, the settings of a search, which `HopfieldRetriever` describes, and the search itself."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    k: int = 5
    beta: float = 10.0
    passage_weight: float = 1.0
    lexical_weight: float = 0.1
    history_weight: float = 0.6
    history_beta: float = 1.0
    score_threshold: float | None = None
    filter: Filter | None = None
    return_association: bool = False
    approximate: bool | ApproximateSettings | None = None

    _states: StateEncoder = PrivateAttr()

    def _check(self, k: int) -> None:
        """Raise InputError for settings that cannot be searched with."""
        check_settings(k, self.beta, self.passage_weight)
        if not 0 <= self.history_weight < math.inf:
            raise InputError(f"history_weight must be a number of at least 0, not {self.history_weight}.")
        if not 0 <= self.lexical_weight < math.inf:
            raise InputError(f"lexical_weight must be a number of at least 0, not {self.lexical_weight}.")
        if math.isnan(self.history_beta) or self.history_beta < 0:
            raise InputError(f"history_beta must be from 0 to infinity, not {self.history_beta}.")
        if self.score_threshold is not None and math.isnan(self.score_threshold):
            raise InputError("score_threshold must be a number or None, not nan.")
        approximate_settings(self.approximate)

    def _asked(self, query: str, k: int | None, history: History | None) -> tuple[int, list[Turn], Vectors]:
        """How many passages are wanted, the earlier turns and the query states, (1, d)."""
        limit = self.k if k is None else k
        self._check(limit)
        turns = history_pairs(history)
        return limit, turns, self._encode([query], [turns])

    def _asked_many(
        self, queries: Sequence[str], histories: Sequence[History | None] | None, k: int | None
    ) -> tuple[int, list[list[Turn]], Vectors]:
        """`_asked` of many queries."""
        if isinstance(queries, str):
            raise InputError("The queries are one string; give a list of questions.")
        limit = self.k if k is None else k
        self._check(limit)
        turns = [history_pairs(history) for history in histories] if histories is not None else [[] for _ in queries]
        if len(turns) != len(queries):
            raise InputError(f"There are {len(queries)} queries and {len(turns)} histories; give one of each.")
        return limit, turns, self._encode(queries, turns)

    def _encode(self, queries: Sequence[str], histories: Sequence[list[Turn]]) -> Vectors:
        texts = [query_text(query) for query in queries]
        # An app that appends the new question to its messages first hands it over twice.
        turns = [
            history[:-1] if history and history[-1] == (text, "") else history
            for text, history in zip(texts, histories, strict=True)
        ]
        return self._states.states(texts, turns, history_weight=self.history_weight, history_beta=self.history_beta)

    def _search(
        self, queries: Sequence[str], states: Vectors, k: int, threshold: float | None = None
    ) -> tuple[View, list[list[Hit]]]:
        """The best passages for each query state, and the memory as it was searched."""
        for _ in range(_SEARCHES - 1):
            view = self._view()
            with suppress(StaleSnapshot):
                return view, self._hits(view, queries, states, k, threshold)
        view = self._view()
        return view, self._hits(view, queries, states, k, threshold)

    def _hits(
        self, view: View, queries: Sequence[str], states: Vectors, k: int, threshold: float | None = None
    ) -> list[list[Hit]]:
        rankings = self._rankings(view, queries, states, k)
        kept = [best_sets(ranking, threshold) for ranking in rankings]
        numbers = sorted({number for hits in kept for number, _ in hits})
        passages = dict(zip(numbers, fetch(view, numbers), strict=True))
        return [
            [Hit(number, score, passages[number], ranking.certified) for number, score in hits]
            for ranking, hits in zip(rankings, kept, strict=True)
        ]

    def _rankings(self, view: View, queries: Sequence[str], states: Vectors, k: int) -> list[Ranking]:
        if not len(view):
            nothing = np.zeros(0, dtype=np.int64)
            return [Ranking(nothing, nothing.astype(np.float64), True, 0) for _ in states]
        settings = approximate_settings(self.approximate)
        terms: dict[str, Any] = {
            "k": k,
            "beta": self.beta,
            "passage_weight": self.passage_weight,
            "allowed": allowed(view, self.filter),
            "extra": self._lexical_scores(view, queries),
            "weights": self._weights,
        }
        if settings is None:
            return search(view.patterns, states, **terms)
        return self._linked(view, settings).rank(view, states, settings, **terms)

    def _lexical_scores(self, view: View, queries: Sequence[str]) -> Vectors | None:
        """What words add to the scores, (q, n)."""
        if not self.lexical_weight:
            return None
        scores: Vectors = np.float32(self.lexical_weight) * self._lexical().scores(view, queries)
        return scores

    def _linked(self, view: View, settings: ApproximateSettings) -> ApproximateChannel:
        """The approximate stage; one that an index would have to link much for is kept for the next process."""
        if not isinstance(self.memory, Index):
            return self.linked
        channel = self.memory.beside.approximate
        if needs_graph(len(view), max(settings.candidates, self.k)) and channel.lags(view, settings):
            self.memory.save_approximate(settings, passage_weight=self.passage_weight, progress=True)
        return channel

    def _document(self, view: View, hit: Hit, state: Vectors) -> Document:
        patterns = patterns_of(view, np.array([hit.number]))
        return hit_document(patterns, hit, state, beta=self.beta, association=self.return_association, weights=self._weights)

    @property
    def _weights(self) -> HopfieldWeights | None:
        return self.model.weights if isinstance(self.model, RetrieverModel) else None
