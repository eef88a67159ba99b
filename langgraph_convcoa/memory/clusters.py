"""Historical query clustering and hierarchical matching (Zhang et al. 2025, eq. 15-20)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from langgraph_convcoa.memory.vectors import Vectors


@dataclass(eq=False)
class Cluster:
    """Members and the sum of their vectors; its direction is the centroid's."""

    total: Vectors
    members: list[int] = field(default_factory=list)
    summaries: list[Cluster] = field(default_factory=list)

    @property
    def centroid(self) -> Vectors:
        """(d,), of length one."""
        return self.total / max(float(np.linalg.norm(self.total)), 1e-9)


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


def _nearest(clusters: Sequence[Cluster], query: Vectors, count: int) -> list[Cluster]:
    if not clusters:
        return []
    similarities = np.stack([cluster.centroid for cluster in clusters]) @ query
    return [clusters[n] for n in np.argsort(-similarities, kind="stable")[:count]]


def _join(clusters: list[Cluster], key: int, vector: Vectors, least: float, most: int) -> Cluster:
    nearest = _nearest(clusters, vector, 1)
    if nearest and float(nearest[0].centroid @ vector) >= least:
        own = nearest[0]
        own.total = own.total + vector
        own.members.append(key)
        return own
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
