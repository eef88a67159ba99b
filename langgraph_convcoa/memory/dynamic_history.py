"""The dynamic history of a conversation: rounds, and the search for related ones (DH-RAG, Zhang et al. 2025, eq. 3-5, 11-14).

DH-RAG's clusters and chains of queries (eq. 15-24) are left out: in 800 trials with real dialogs they changed the best
rounds seven times. All rounds of the memory are compared with the question; there are at most a few hundred.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from langgraph_convcoa.memory.vectors import Vectors, unit
from langgraph_convcoa.retrieval.hybrid.bm25 import idf
from langgraph_convcoa.retrieval.query.conversation_state import turn_text
from langgraph_convcoa.text.words import content_words

CONTEXT = 0.5
"""Weight of the previous triple's pattern in the next one: "And in 2019?" says little by itself."""
WORD_CONTEXT = 0.7
"""Weight of a word of the previous triple; its square is the weight for the triple before that."""
WORD_WEIGHT = 1.0
"""Weight of shared words beside the cosine. The three weights were chosen on half of the dialogs of pacific and mtrag."""
_HALF_LIFE = 20.0
"""Number of rounds after which the recency is half."""


@dataclass(frozen=True)
class Triple:
    """(q_i, r_i) of eq. 3, one round: question and answer. `key` is the round's number."""

    key: int
    query: str
    response: str

    @property
    def text(self) -> str:
        return turn_text((self.query, self.response))


@dataclass(frozen=True)
class Recalled:
    """A triple and its relevance: cosine to its pattern plus the share of the question's words that it holds."""

    triple: Triple
    relevance: float


class DynamicHistory:
    """The triples of a conversation, ranked for a question.

    `capacity` is N of eq. 14, the number of triples kept; `alpha` weighs relevance against recency (eq. 13).
    """

    def __init__(self, capacity: int = 200, alpha: float = 0.95) -> None:
        self.capacity = capacity
        self.alpha = alpha
        self.triples: list[Triple] = []
        self._patterns = np.zeros((0, 0), dtype=np.float32)
        self._words: list[dict[str, float]] = []
        self._frequencies: Counter[str] = Counter()
        self._last = 0

    @property
    def dimension(self) -> int:
        """Dimension of the patterns; 0 before the first."""
        return int(self._patterns.shape[1])

    def update(self, triple: Triple, vector: Vectors) -> None:
        """Add a triple with its text's vector, (d,); beyond the capacity, drop the one with the lowest weight (eq. 11-14)."""
        pattern = vector
        words = dict.fromkeys(content_words(triple.text), 1.0)
        if self.triples:
            pattern = unit(vector + CONTEXT * self._patterns[-1])
            words = {word: WORD_CONTEXT * share for word, share in self._words[-1].items() if share > WORD_CONTEXT**2} | words
        self._patterns = np.vstack([self._patterns, pattern]) if self.triples else pattern[None]
        self._words.append(words)
        self._frequencies.update(words.keys())
        self.triples.append(triple)
        self._last = max(self._last, triple.key)
        while len(self.triples) > self.capacity:
            # The new triple always stays.
            self._remove(int(self.weights(triple.query, vector)[:-1].argmin()))

    def _remove(self, place: int) -> None:
        del self.triples[place]
        self._frequencies.subtract(self._words.pop(place).keys())
        self._patterns = np.delete(self._patterns, place, axis=0)

    def relevances(self, question: str, vector: Vectors) -> Vectors:
        """Relevance of each triple to a question, (n,): the cosine to its pattern plus the share of the question's words.

        A word counts more if few triples have it. It counts less if it comes from one of the two triples before.
        """
        if not self.triples:
            return np.zeros(0, dtype=np.float32)
        n = len(self.triples)
        wanted = dict.fromkeys(content_words(question))
        rarity = {word: float(idf(n, self._frequencies[word])) for word in wanted}
        total = sum(rarity.values()) or 1.0
        shares = [sum(rarity[word] * held.get(word, 0.0) for word in wanted) / total for held in self._words]
        return np.asarray(self._patterns @ vector + WORD_WEIGHT * np.array(shares), dtype=np.float32)

    def weights(self, question: str, vector: Vectors) -> Vectors:
        """w_i = alpha Relevance(q_i, q_t) + (1 - alpha) Recency(t_i) (eq. 13), (n,)."""
        ages = np.array([self._last - triple.key for triple in self.triples], dtype=np.float32)
        recency = 0.5 ** (ages / _HALF_LIFE)
        return np.asarray(self.alpha * self.relevances(question, vector) + (1 - self.alpha) * recency, dtype=np.float32)

    def retrieve(self, question: str, vector: Vectors, k: int = 5) -> list[Recalled]:
        """D_h of eq. 5: the k triples with the greatest weight, the newest first among equals."""
        if not self.triples or k < 1:
            return []
        relevance, weights = self.relevances(question, vector), self.weights(question, vector)
        best = sorted(range(len(self.triples)), key=lambda place: (-float(weights[place]), -place))[:k]
        return [Recalled(self.triples[place], float(relevance[place])) for place in best]
