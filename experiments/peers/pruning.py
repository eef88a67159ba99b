"""Questions with the most important words of their history, after LeCoRE (Mao et al. 2023).

LeCoRE weighs every word of a session with SPLADE, trained on the weights of people's rewrites, and gives unimportant words and
turns no weight. Only the idea of a pruned session is used here, without SPLADE, training or rewrites. A word's weight is its
rarity in the pool times the similarity of its turn to the question. The encoder reads the words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from langchain_core.documents import Document

from experiments.peers.selection import turn_likeness
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.retrieval.documents.split import pattern_text
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.hybrid.bm25 import idf
from langgraph_convcoa.text.words import content_tokens, content_words

KEPT = 16
"""Number of words of a history that are kept. Mean MRR on 200 training questions each of abg_coqa, or_sharc and quac_dev:
0.698 with 4 words, 0.736 with 8, 0.753 with 16 and with 32, 0.772 with the whole history, 0.364 without history."""


class PrunedHistory:
    """Prunes histories by how rare their words are in a pool."""

    def __init__(self, passages: Iterable[Document], kept: int = KEPT) -> None:
        self._kept, self._passages = kept, 0
        self._found: Counter[str] = Counter()
        for passage in passages:
            self._passages += 1
            self._found.update(set(content_words(pattern_text(passage))))

    def texts(self, encoder: Encoder, queries: Sequence[Query]) -> list[str]:
        """Each question, followed by the kept words, latest turn first."""
        pairs = zip(queries, turn_likeness(encoder, queries), strict=True)
        return [" ".join([query.question, *self._words(query.question, *turns)]) for query, turns in pairs]

    def _words(self, question: str, turns: Sequence[str], likeness: Sequence[float]) -> list[str]:
        asked = set(content_words(question))
        weights: dict[str, float] = {}
        written: dict[str, str] = {}
        for turn, near in reversed(list(zip(turns, likeness, strict=True))):
            for raw, word in content_tokens(turn):
                if word not in asked:
                    written.setdefault(word, raw)
                    weights[word] = max(weights.get(word, 0.0), max(near, 0.0) * self._rarity(word))
        best = set(sorted(weights, key=lambda word: -weights[word])[: self._kept])
        return [raw for word, raw in written.items() if word in best and weights[word] > 0]

    def _rarity(self, word: str) -> float:
        """The inverse document frequency of BM25; 0 for a word that is in no passage, since it can match nothing."""
        found = self._found[word]
        return float(idf(self._passages, found)) if found else 0.0
