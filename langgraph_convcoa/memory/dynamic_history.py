"""The dynamic history of a conversation: rounds and the search for related ones (Zhang et al. 2025, eq. 3-5 and 11-14)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

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
        return f"{self.query.strip()} {self.response.strip()[:ANSWER_CHARACTERS]}".strip()


@dataclass(frozen=True)
class Recalled:
    """A triple and its relevance: cosine to its pattern plus the share of the question's words that it holds."""

    triple: Triple
    relevance: float


class DynamicHistory:
    """The triples of a conversation, in clusters and in chains, and what they say about a question.

    `capacity` is N of eq. 14, the triples kept; `alpha` weighs relevance against recency (eq. 13).

    Example:
        >>> from langgraph_convcoa.memory.vectors import word_vectors
        >>> history = DynamicHistory()
        >>> for key, (q, r) in enumerate([("Who wrote Faust?", "Goethe."), ("What is BM25?", "A ranking function.")], 1):
        ...     triple = Triple(key, q, r)
        ...     history.update(triple, word_vectors([triple.text])[0])
        >>> history.retrieve("When did Goethe write it?", word_vectors(["Goethe write"])[0], k=1)[0].triple.key
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
        """Of the patterns; 0 before the first."""
        return int(self._patterns.shape[1])

    def update(self, triple: Triple, vector: Vectors) -> None:
        """Add a triple with its text's vector, (d,); beyond the capacity the one with the least weight goes (eq. 11-14)."""
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
        """D_h of eq. 5: what hierarchical matching and chain of thought tracking find, best weight first (algorithm 1).

        The leaves under the best categories and summaries (lines 7-14), the triples most similar to the question with their
        chains (lines 16-20), and the best chain as a whole (eq. 23-24).
        """
        if not self.triples or k < 1:
            return []
        relevance, weights = self.relevances(question, vector), self.weights(question, vector)
        similar = np.argsort(-relevance, kind="stable")[: max(k, _RELATED)]
        best = self.chains.best(vector)
        keys = {*self.clusters.match(vector), *(best.members if best is not None else ())}
        keys.update(key for place in similar for key in self.chains.of(self.triples[int(place)].key))
        places = [place for place, triple in enumerate(self.triples) if triple.key in keys]
        found = sorted(places, key=lambda place: (-float(weights[place]), -place))[:k]
        return [Recalled(self.triples[place], float(relevance[place])) for place in found]


def _unit(vector: Vectors) -> Vectors:
    return np.asarray(vector / max(float(np.linalg.norm(vector)), 1e-9), dtype=np.float32)


@dataclass(eq=False)
class Cluster:
    """Members, by key, and the sum of their vectors, whose direction is the centroid's; a chain keeps its members in order."""

    total: Vectors
    members: list[int] = field(default_factory=list)
    summaries: list[Cluster] = field(default_factory=list)

    @property
    def centroid(self) -> Vectors:
        """(d,), of length one."""
        return _unit(self.total)

    def similarity(self, query: Vectors) -> float:
        """Cosine to the mean of the members (eq. 23)."""
        return float(self.total @ query) / max(float(np.linalg.norm(self.total)), 1e-9)

    def add(self, key: int, vector: Vectors) -> None:
        self.members.append(key)
        self.total = self.total + vector


class ClusterTree:
    """Categories, the summaries of each, and in these the queries: three levels that grow query by query (eq. 15-20).

    A query joins the nearest category when its cosine to the centroid suffices, else it opens one; then the nearest summary in
    it, more strictly. Above `most` categories (or summaries of one) the two nearest are merged, so that the cost of matching
    does not grow with the history.
    """

    def __init__(self, category_similarity: float = 0.35, summary_similarity: float = 0.6, most: int = 32) -> None:
        self.categories: list[Cluster] = []
        self._least = category_similarity, summary_similarity
        self._most = most

    def add(self, key: int, vector: Vectors) -> None:
        """UpdateClusters of algorithm 1 (eq. 15)."""
        category = _join(self.categories, key, vector, self._least[0], self._most)
        _join(category.summaries, key, vector, self._least[1], self._most)

    def remove(self, key: int, vector: Vectors) -> None:
        for category in list(self.categories):
            if key in category.members:
                _leave(category.summaries, key, vector)
        _leave(self.categories, key, vector)

    def match(self, query: Vectors, categories: int = 3, summaries: int = 3) -> list[int]:
        """Keys under the best categories and the best summaries of each, in no order (eq. 18-20; eq. 18 and 19 take one)."""
        nearest = _nearest(self.categories, query, categories)
        return [key for category in nearest for s in _nearest(category.summaries, query, summaries) for key in s.members]


class ThoughtChains:
    """The chains of a conversation: a triple continues the chain that it is related to, else it begins one (eq. 21-24).

    Related is what is similar enough to a chain's mean, the present chain's by `inertia` less. Beyond `most` chains the one
    that rested longest is given up; its triples stay in the memory.
    """

    def __init__(self, similarity: float = 0.4, inertia: float = 0.1, most: int = 32) -> None:
        self.chains: list[Cluster] = []
        self._similarity, self._inertia, self._most = similarity, inertia, most

    def add(self, key: int, vector: Vectors) -> None:
        """Continue the most related chain, or begin one. The chain that was continued last stands last."""
        best, score = None, -np.inf
        for n, chain in enumerate(self.chains):
            found = chain.similarity(vector) + (self._inertia if n == len(self.chains) - 1 else 0.0)
            if found >= self._similarity and found > score:
                best, score = chain, found
        if best is None:
            best = Cluster(np.zeros_like(vector))
        else:
            self.chains.remove(best)
        best.add(key, vector)
        self.chains.append(best)
        del self.chains[: max(0, len(self.chains) - self._most)]

    def remove(self, key: int, vector: Vectors) -> None:
        _leave(self.chains, key, vector)

    def best(self, query: Vectors) -> Cluster | None:
        """T* of eq. 23; None where there is no chain."""
        return max(self.chains, key=lambda chain: chain.similarity(query), default=None)

    def of(self, key: int) -> list[int]:
        """ExtractCoT of algorithm 1: the triples of the chain that holds one, itself among them."""
        return next((list(chain.members) for chain in self.chains if key in chain.members), [key])


def _nearest(clusters: Sequence[Cluster], query: Vectors, count: int) -> list[Cluster]:
    if not clusters:
        return []
    similarities = np.stack([cluster.centroid for cluster in clusters]) @ query
    return [clusters[n] for n in np.argsort(-similarities, kind="stable")[:count]]


def _join(clusters: list[Cluster], key: int, vector: Vectors, least: float, most: int) -> Cluster:
    nearest = _nearest(clusters, vector, 1)
    if nearest and float(nearest[0].centroid @ vector) >= least:
        nearest[0].add(key, vector)
        return nearest[0]
    clusters.append(Cluster(vector.copy(), [key]))
    if len(clusters) <= most:
        return clusters[-1]
    centroids = np.stack([cluster.centroid for cluster in clusters])
    similarities = centroids @ centroids.T
    np.fill_diagonal(similarities, -np.inf)
    first, second = sorted(int(n) for n in np.unravel_index(int(similarities.argmax()), similarities.shape))
    gone, kept = clusters.pop(second), clusters[first]
    kept.total = kept.total + gone.total
    kept.members += gone.members
    kept.summaries += gone.summaries
    return next(cluster for cluster in clusters if key in cluster.members)


def _leave(clusters: list[Cluster], key: int, vector: Vectors) -> None:
    for cluster in list(clusters):
        if key in cluster.members:
            cluster.members.remove(key)
            cluster.total = cluster.total - vector
            if not cluster.members:
                clusters.remove(cluster)
