"""The weights W_Q, W_K, W_V of a trained Hopfield retriever."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.encoders.base import Vectors


@dataclass(frozen=True, eq=False)
class HopfieldWeights:
    """Trained weights of the association (Pan et al. 2024b, section 4).

    z = sparsemax(beta x W_Q W_K^T Y^T) Y W_K W_V. Both products fall on the query's side, so that stored patterns stay as they
    are: a_j = <x W_Q W_K^T, y_j> and b_j = <x (W_K W_V)^T, y_j>. RetrievalError where shapes do not fit or are not finite.

    Example:
        >>> eye = np.eye(2, dtype=np.float32)
        >>> weights = HopfieldWeights(eye, 2 * eye, eye)
        >>> weights.association(np.array([[1.0, 0.0]], dtype=np.float32)).tolist()
        [[2.0, 0.0]]
    """

    query: Vectors  # W_Q, (d, h).
    key: Vectors  # W_K, (d, h).
    value: Vectors  # W_V, (h, d).

    def __post_init__(self) -> None:
        shapes = self.query.shape, self.key.shape, self.value.shape
        if self.query.ndim != 2 or shapes[1] != shapes[0] or shapes[2] != shapes[0][::-1]:
            raise RetrievalError(f"The weights W_Q, W_K, W_V have shapes {shapes}; they must be (d, h), (d, h) and (h, d).")
        if not all(np.isfinite(matrix).all() for matrix in (self.query, self.key, self.value)):
            raise RetrievalError("A weight of the retriever is NaN or infinite; train again or load another.")

    @property
    def dimension(self) -> int:
        """Length d of the patterns that the weights are for."""
        return int(self.query.shape[0])

    def association(self, states: Vectors) -> Vectors:
        """X W_Q W_K^T of states (q, d): its products with the windows are a."""
        return np.ascontiguousarray(states @ self.query @ self.key.T, dtype=np.float32)

    def readout(self, states: Vectors) -> Vectors:
        """X (W_K W_V)^T of states (q, d): its products with the windows are b."""
        return np.ascontiguousarray(states @ (self.key @ self.value).T, dtype=np.float32)
