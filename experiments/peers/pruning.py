"""A question with the words of its history that weigh most, after LeCoRE (Mao et al. 2023).

LeCoRE weighs every word of a session with SPLADE, trained to have the weights of people's rewrites, and zeroes those of words
and turns that do not matter. Kept is the idea, a pruned session of weighted words; a word's weight is its rarity in the pool
times the likeness of its turn to the question, without SPLADE, training or rewrites, and the encoder reads the words.
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
"""Words of a history that are kept. On 200 questions each of the training parts of abg_coqa, or_sharc and quac_dev the mean
MRR was 0.698 with 4, 0.736 with 8 and 0.753 with 16 and 32; 0.772 with the whole history, 0.364 without."""


class PrunedHistory:
    """Prunes histories by how rare their words are in a pool."""

    def __init__(self, passages: Iterable[Document], kept: int = KEPT) -> None:
        self._kept, self._passages = kept, 0
        self._found: Counter[str] = Counter()
        for passage in passages:
            self._passages += 1
            self._found.update(set(content_words(pattern_text(passage))))

    def texts(self, encoder: Encoder, queries: Sequence[Query]) -> list[str]:
        """Each question, and behind it the kept words in the order of the turns, latest turn first."""
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
        """The inverse document frequency of BM25; 0 of a word that no passage has, since none can match it."""
        found = self._found[word]
        return float(idf(self._passages, found)) if found else 0.0
