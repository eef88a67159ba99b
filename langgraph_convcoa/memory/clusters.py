"""Historical query clustering with hierarchical matching, and chain of thought tracking (Zhang et al. 2025, eq. 15-24)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from langgraph_convcoa.memory.vectors import Vectors


@dataclass(eq=False)
class Cluster:
    """Members, by key, and the sum of their vectors, whose direction is the centroid's; a chain keeps its members in order."""

    total: Vectors
    members: list[int] = field(default_factory=list)
    summaries: list[Cluster] = field(default_factory=list)

    @property
    def centroid(self) -> Vectors:
        """(d,), of length one."""
        return self.total / max(float(np.linalg.norm(self.total)), 1e-9)

    def similarity(self, query: Vectors) -> float:
        """Cosine to the mean of the members (eq. 23)."""
        return float(self.total @ query) / max(float(np.linalg.norm(self.total)), 1e-9)

    def add(self, key: int, vector: Vectors) -> None:
        """Take a member in."""
        self.members.append(key)
        self.total = self.total + vector


class ClusterTree:
    """Categories, the summaries of each, and in these the queries: three levels that grow query by query.

    A query joins the nearest category when it is similar enough, else it opens one; in its category the nearest summary, more
    strictly. At the most categories the two nearest become one, so that matching costs the same however long the history is.

    Args:
        category_similarity: Least cosine to a category's centroid.
        summary_similarity: Least cosine to a summary's centroid.
        most: Categories, and summaries of a category, at most.

    Example:
        >>> tree = ClusterTree()
        >>> for key, vector in enumerate(np.eye(3, dtype=np.float32)[[0, 0, 1]]):
        ...     tree.add(key, vector)
        >>> [sorted(category.members) for category in tree.categories]
        [[0, 1], [2]]
        >>> tree.match(np.array([0, 1, 0.1], dtype=np.float32), categories=1)
        [2]
    """

    def __init__(self, category_similarity: float = 0.35, summary_similarity: float = 0.6, most: int = 32) -> None:
        self.categories: list[Cluster] = []
        self._category_similarity = category_similarity
        self._summary_similarity = summary_similarity
        self._most = most

    def add(self, key: int, vector: Vectors) -> None:
        """UpdateClusters of algorithm 1: a query takes its place (eq. 15)."""
        category = _join(self.categories, key, vector, self._category_similarity, self._most)
        _join(category.summaries, key, vector, self._summary_similarity, self._most)

    def remove(self, key: int, vector: Vectors) -> None:
        """Take a query out that the memory gives up."""
        for category in list(self.categories):
            if key in category.members:
                _leave(category.summaries, key, vector)
        _leave(self.categories, key, vector)

    def match(self, query: Vectors, categories: int = 3, summaries: int = 3) -> list[int]:
        """From the root down to the leaves: the best categories, the best summaries of each, their queries (eq. 18-20).

        Args:
            query: (d,).
            categories: The set S_c of algorithm 1: how many categories are followed; 1 is eq. 18.
            summaries: Of each, how many summaries are followed; 1 is eq. 19.

        Returns:
            The keys of the leaves, in no order.
        """
        found: list[int] = []
        for category in _nearest(self.categories, query, categories):
            for summary in _nearest(category.summaries, query, summaries):
                found += summary.members
        return found


class ThoughtChains:
    """The chains of a conversation. A triple continues the chain that it is related to, else it begins one.

    Related is what is similar enough to a chain's mean, the present chain's a little less so: topics have inertia.

    Args:
        similarity: Least cosine to continue a chain.
        inertia: So much less for the chain of the triple before.
        most: Chains at most; beyond, the one that rested longest is given up (its triples stay in the memory).

    Example:
        >>> chains, vectors = ThoughtChains(), np.eye(2, dtype=np.float32)
        >>> for key, topic in enumerate([0, 0, 1, 0]):
        ...     chains.add(key, vectors[topic])
        >>> [chain.members for chain in chains.chains]
        [[2], [0, 1, 3]]
        >>> chains.best(vectors[1]).members
        [2]
    """

    def __init__(self, similarity: float = 0.4, inertia: float = 0.1, most: int = 32) -> None:
        self.chains: list[Cluster] = []
        self._similarity = similarity
        self._inertia = inertia
        self._most = most

    def add(self, key: int, vector: Vectors) -> None:
        """Continue the most related chain, or begin one. The chain that was continued last stands last."""
        best, score = None, -np.inf
        for n, chain in enumerate(self.chains):
            present = n == len(self.chains) - 1
            found = chain.similarity(vector) + (self._inertia if present else 0.0)
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
        """Take a triple out that the memory gives up."""
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
    own = Cluster(vector.copy(), [key])
    clusters.append(own)
    if len(clusters) > most:
        _merge_nearest(clusters)
        own = next(cluster for cluster in clusters if key in cluster.members)
    return own


def _merge_nearest(clusters: list[Cluster]) -> None:
    centroids = np.stack([cluster.centroid for cluster in clusters])
    similarities = centroids @ centroids.T
    np.fill_diagonal(similarities, -np.inf)
    first, second = sorted(int(n) for n in np.unravel_index(int(similarities.argmax()), similarities.shape))
    gone = clusters.pop(second)
    kept = clusters[first]
    kept.total = kept.total + gone.total
    kept.members += gone.members
    kept.summaries += gone.summaries


def _leave(clusters: list[Cluster], key: int, vector: Vectors) -> None:
    for cluster in list(clusters):
        if key in cluster.members:
            cluster.members.remove(key)
            cluster.total = cluster.total - vector
            if not cluster.members:
                clusters.remove(cluster)
