"""Integration of static and dynamic results by attention (Zhang et al. 2025, eq. 6-7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.memory.vectors import Vectors


@dataclass(frozen=True)
class Attention:
    """w_i = softmax(q^T W d_i) over what was retrieved from the documents and from the history.

    Attributes:
        weights: W, (d, d); the identity when None.
        scale: What the product is multiplied with. Unit vectors differ by so little that a bare softmax is nearly even.

    Example:
        >>> d = np.eye(2, dtype=np.float32)
        >>> Attention().over(d[0], d).round(2).tolist()
        [1.0, 0.0]
    """

    weights: Vectors | None = None
    scale: float = 20.0

    def over(self, query: Vectors, elements: Vectors) -> Vectors:
        """The weights w of the elements (eq. 6).

        Args:
            query: q, (d,).
            elements: The d_i, (n, d): from the documents, from hierarchical matching, from chain of thought tracking.

        Returns:
            (n,), summing to one; empty for no element.

        Raises:
            InputError: W is not (d, d).
        """
        if len(elements) == 0:
            return np.zeros(0, dtype=np.float32)
        projected = query
        if self.weights is not None:
            if self.weights.shape != (len(query), elements.shape[1]):
                wanted = (len(query), elements.shape[1])
                raise InputError(f"The attention's W has shape {self.weights.shape}, and {wanted} is needed: train it anew.")
            projected = query @ self.weights
        logits = self.scale * (elements @ projected)
        exponentials = np.exp(logits - logits.max())
        return np.asarray(exponentials / exponentials.sum(), dtype=np.float32)

    def context(self, query: Vectors, elements: Vectors) -> Vectors:
        """C = sum_i w_i d_i (eq. 7), (d,); zeros for no element."""
        if len(elements) == 0:
            return np.zeros_like(query)
        return np.asarray(self.over(query, elements) @ elements, dtype=np.float32)


def train_attention(
    queries: Vectors,
    elements: Sequence[Vectors],
    gold: Sequence[int],
    *,
    scale: float = 20.0,
    epochs: int = 50,
    rate: float = 0.05,
    decay: float = 0.01,
) -> Attention:
    """Learn W from questions whose right element is known: gradient descent on -log w_gold, from the identity.

    Args:
        queries: (m, d).
        elements: For each question what was retrieved, (n_i, d).
        gold: For each question the index of its right element.
        scale: As in `Attention`.
        epochs: Passes over the questions.
        rate: Step size.
        decay: Pull back to the identity, for few questions teach little.

    Raises:
        InputError: The three do not have the same length, or there is nothing to learn from.
    """
    if not len(queries) == len(elements) == len(gold) or len(queries) == 0:
        raise InputError("Training an attention needs as many queries as lists of elements and gold indexes, at least one.")
    identity = np.eye(queries.shape[1], dtype=np.float32)
    w = identity.copy()
    for _ in range(epochs):
        slope = decay * (w - identity)
        for query, found, right in zip(queries, elements, gold, strict=True):
            error = Attention(w, scale).over(query, found)
            error[right] -= 1.0
            slope += scale * np.outer(query, error @ found) / len(queries)
        w -= rate * slope
    return Attention(w, scale)
