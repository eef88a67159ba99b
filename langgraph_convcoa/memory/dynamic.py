"""The dynamic historical information database H of a conversation (Zhang et al. 2025, eq. 3, 4-5, 11-14)."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from langgraph_convcoa.memory.clusters import ClusterTree, ThoughtChains
from langgraph_convcoa.memory.vectors import Vectors
from langgraph_convcoa.text.words import content_words

CONTEXT = 0.5
"""How much of the previous triple's pattern is carried into the next one: "And in 2019?" says little by itself."""
WORD_CONTEXT = 0.7
"""What a word of the triple before counts for the next one; of the one before that the square."""
WORD_WEIGHT = 1.0
"""Weight of shared words beside the cosine. The three were chosen on half of the dialogs of pacific and mtrag."""
ANSWER_CHARACTERS = 300
"""So much of a response is compared."""
_HALF_LIFE = 20.0
_RELATED = 5


@dataclass(frozen=True)
class Triple:
    """(q_i, r_i) of eq. 3, one round: question and answer. `key` is the round's number."""

    key: int
    query: str
    response: str

    @property
    def text(self) -> str:
        """What is encoded: the question and the start of the response."""
        return f"{self.query.strip()} {self.response.strip()[:ANSWER_CHARACTERS]}".strip()


@dataclass(frozen=True)
class Recalled:
    """A triple that was found for a question.

    Attributes:
        triple: The triple.
        relevance: Cosine to its pattern plus the share of the question's words that it holds.
    """

    triple: Triple
    relevance: float


class DynamicHistory:
    """The triples of a conversation, in clusters and in chains, and what they say about a question.

    Args:
        capacity: N of eq. 14: triples kept.
        alpha: Weight of relevance against recency (eq. 13).

    Example:
        >>> from langgraph_convcoa.memory.vectors import word_vectors
        >>> history = DynamicHistory()
        >>> for key, (q, r) in enumerate([("Who wrote Faust?", "Goethe."), ("What is BM25?", "A ranking function.")], 1):
        ...     triple = Triple(key, q, r)
        ...     history.update(triple, word_vectors([triple.text])[0])
        >>> found = history.retrieve("When did Goethe write it?", word_vectors(["Goethe write"])[0], k=1)
        >>> found[0].triple.key
        1
    """

    def __init__(self, capacity: int = 200, alpha: float = 0.95) -> None:
        self.capacity = capacity
        self.alpha = alpha
        self.triples: list[Triple] = []
        self.clusters = ClusterTree()
        self.chains = ThoughtChains()
        self._patterns = np.zeros((0, 0), dtype=np.float32)
        self._words: list[dict[str, float]] = []
        self._frequencies: Counter[str] = Counter()
        self._last = 0

    def __len__(self) -> int:
        return len(self.triples)

    @property
    def dimension(self) -> int:
        """Of the patterns, d; 0 before the first."""
        return int(self._patterns.shape[1])

    def update(self, triple: Triple, vector: Vectors) -> None:
        """Take a triple in; beyond the capacity the one with the least weight goes (eq. 11-14).

        Args:
            triple: The round that has ended.
            vector: Of its text, (d,).
        """
        pattern = vector
        words = dict.fromkeys(content_words(triple.text), 1.0)
        if self.triples:
            pattern = _unit(vector + CONTEXT * self._patterns[-1])
            words = {word: WORD_CONTEXT * share for word, share in self._words[-1].items() if share > WORD_CONTEXT**2} | words
        self._patterns = np.vstack([self._patterns, pattern]) if self.triples else pattern[None]
        self._words.append(words)
        self._frequencies.update(words.keys())
        self.triples.append(triple)
        self._last = max(self._last, triple.key)
        self.clusters.add(triple.key, pattern)
        self.chains.add(triple.key, pattern)
        while len(self.triples) > self.capacity:
            # The triple itself is the newest and the most relevant to itself; it stays.
            self._remove(int(self.weights(triple.query, vector)[:-1].argmin()))

    def _remove(self, place: int) -> None:
        key, pattern = self.triples.pop(place).key, self._patterns[place]
        self.clusters.remove(key, pattern)
        self.chains.remove(key, pattern)
        self._frequencies.subtract(self._words.pop(place).keys())
        self._patterns = np.delete(self._patterns, place, axis=0)

    def relevances(self, question: str, vector: Vectors) -> Vectors:
        """How far each triple is about a question, (n,): the cosine to its pattern, plus the share of the question's words.

        A word counts by how few triples hold it, and for less where only the triples just before held it.
        """
        if not self.triples:
            return np.zeros(0, dtype=np.float32)
        n = len(self.triples)
        wanted = dict.fromkeys(content_words(question))
        rarity = {word: math.log(1 + (n - self._frequencies[word] + 0.5) / (self._frequencies[word] + 0.5)) for word in wanted}
        total = sum(rarity.values()) or 1.0
        shares = [sum(rarity[word] * held.get(word, 0.0) for word in wanted) / total for held in self._words]
        return np.asarray(self._patterns @ vector + WORD_WEIGHT * np.array(shares), dtype=np.float32)

    def weights(self, question: str, vector: Vectors) -> Vectors:
        """w_i = alpha Relevance(q_i, q_t) + (1 - alpha) Recency(t_i) (eq. 13), (n,). Recency halves every twenty rounds."""
        ages = np.array([self._last - triple.key for triple in self.triples], dtype=np.float32)
        recency = 0.5 ** (ages / _HALF_LIFE)
        return np.asarray(self.alpha * self.relevances(question, vector) + (1 - self.alpha) * recency, dtype=np.float32)

    def retrieve(self, question: str, vector: Vectors, k: int = 5) -> list[Recalled]:
        """D_h of eq. 5: what hierarchical matching and chain of thought tracking find, best weight first.

        Algorithm 1: the leaves under the best categories and summaries (lines 7-14), the triples most similar to the question
        with the chains that they belong to (lines 16-20), and the best chain as a whole (eq. 23-24).

        Args:
            question: The question.
            vector: Of the question, (d,).
            k: How many triples.
        """
        if not self.triples or k < 1:
            return []
        relevance, weights = self.relevances(question, vector), self.weights(question, vector)
        similar = np.argsort(-relevance, kind="stable")[: max(k, _RELATED)]
        best = self.chains.best(vector)
        keys = {
            *self.clusters.match(vector),
            *(key for place in similar for key in self.chains.of(self.triples[int(place)].key)),
            *(best.members if best is not None else ()),
        }
        places = [place for place, triple in enumerate(self.triples) if triple.key in keys]
        found = sorted(places, key=lambda place: (-float(weights[place]), -place))[:k]
        return [Recalled(self.triples[place], float(relevance[place])) for place in found]


def _unit(vector: Vectors) -> Vectors:
    return np.asarray(vector / max(float(np.linalg.norm(vector)), 1e-9), dtype=np.float32)
