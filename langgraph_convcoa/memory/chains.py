"""Chain of thought tracking (Zhang et al. 2025, eq. 22-24): runs of related query-passage-response triples."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from langgraph_convcoa.memory.vectors import Vectors


@dataclass(eq=False)
class ThoughtChain:
    """T of eq. 22: the keys of its triples in order, and the sum of their vectors."""

    total: Vectors
    members: list[int] = field(default_factory=list)

    def similarity(self, query: Vectors) -> float:
        """sim(q, T) of eq. 23: cosine to the mean of the chain's triples."""
        return float(self.total @ query) / max(float(np.linalg.norm(self.total)), 1e-9)


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
        self.chains: list[ThoughtChain] = []
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
            best = ThoughtChain(np.zeros_like(vector))
        else:
            self.chains.remove(best)
        best.members.append(key)
        best.total = best.total + vector
        self.chains.append(best)
        del self.chains[: max(0, len(self.chains) - self._most)]

    def remove(self, key: int, vector: Vectors) -> None:
        """Take a triple out that the memory gives up."""
        for chain in list(self.chains):
            if key in chain.members:
                chain.members.remove(key)
                chain.total = chain.total - vector
                if not chain.members:
                    self.chains.remove(chain)

    def best(self, query: Vectors) -> ThoughtChain | None:
        """T* of eq. 23; None where there is no chain."""
        return max(self.chains, key=lambda chain: chain.similarity(query), default=None)

    def of(self, key: int) -> list[int]:
        """ExtractCoT of algorithm 1: the triples of the chain that holds one, itself among them."""
        return next((list(chain.members) for chain in self.chains if key in chain.members), [key])
