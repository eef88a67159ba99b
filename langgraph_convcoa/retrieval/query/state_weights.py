"""The weights of a trained conversation state."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.hopfield.sparsity import sparsemax
from langgraph_convcoa.retrieval.encoders.base import Vectors


@dataclass(frozen=True, eq=False)
class StateWeights:
    """What training adds to the conversation state.

    normalise(x W_x + lambda g r W_h), where r = sparsemax(beta_h x W_a H^T) H is what the earlier turns H give back to the
    question x, and the gate g = 2 sigmoid(u [x, r, x * r, <x, r>, 1]), from 0 to 2, says how much of it the question needs.
    Identity matrices and u = 0 are the untrained state. A question without a history is left as it is.

    Attributes:
        direct: W_x, (d, d).
        association: W_a, (d, d).
        history: W_h, (d, d).
        gate: u, (3 d + 2,).

    Raises:
        RetrievalError: The shapes do not fit together, or a weight is not finite.

    Example:
        >>> weights = StateWeights.untrained(2)
        >>> x, h = np.array([1, 0], dtype=np.float32), np.array([[0, 1]], dtype=np.float32)
        >>> weights.state(x, h, 1.0, 1.0).round(3).tolist()
        [0.7070000171661377, 0.7070000171661377]
    """

    direct: Vectors
    association: Vectors
    history: Vectors
    gate: npt.NDArray[np.float32]

    def __post_init__(self) -> None:
        d = len(self.direct)
        shapes = self.direct.shape, self.association.shape, self.history.shape
        if shapes != ((d, d),) * 3 or self.gate.shape != (3 * d + 2,):
            raise RetrievalError(
                f"The weights of the conversation state have shapes {shapes} and {self.gate.shape}; they must be three times "
                "(d, d), and (3 d + 2,)."
            )
        if not all(np.isfinite(weight).all() for weight in (self.direct, self.association, self.history, self.gate)):
            raise RetrievalError("A weight of the conversation state is NaN or infinite; train again or load another.")

    @classmethod
    def untrained(cls, dimension: int) -> StateWeights:
        """Those with which the state is the untrained one."""
        eye = np.eye(dimension, dtype=np.float32)
        return cls(eye, eye, eye, np.zeros(3 * dimension + 2, dtype=np.float32))

    @property
    def dimension(self) -> int:
        """Length d of the vectors that the weights are for."""
        return len(self.direct)

    def state(self, query: Vectors, history: Vectors, history_weight: float, history_beta: float) -> Vectors:
        """The state of a question in its conversation.

        Args:
            query: x, (d,).
            history: H, (t, d), one vector an earlier turn; may be empty.
            history_weight: lambda, at least 0.
            history_beta: beta_h, 0 to infinity.

        Returns:
            (d,), of length one.
        """
        state = query
        if len(history) and history_weight:
            likeness = torch.from_numpy(history @ (query @ self.association))
            recalled = sparsemax(likeness, beta=history_beta).numpy() @ history
            features = np.concatenate([query, recalled, query * recalled, [query @ recalled, 1.0]])
            gate = 2 / (1 + np.exp(-np.clip(self.gate @ features, -50, 50)))
            state = query @ self.direct + history_weight * gate * (recalled @ self.history)
        length = np.linalg.norm(state)
        return np.asarray(state / length if length else state, dtype=np.float32)
