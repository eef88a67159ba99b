"""Retrieval of stored patterns by queries: the function behind all Hopfield layers (Pan et al. 2024b, appendix F)."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor
from torch.nn.functional import pad

from langgraph_convcoa.hopfield.energy import converge
from langgraph_convcoa.hopfield.sparsity import Activation, associate


class Retrieved(NamedTuple):
    """The retrieved `state` (..., m, d), and the `weights` (..., m, n) of the stored patterns in it."""

    state: Tensor
    weights: Tensor


def retrieve(
    query: Tensor,
    stored: Tensor,
    *,
    beta: float | Tensor = 1.0,
    activation: Activation = "sparsemax",
    mask: Tensor | None = None,
    update_steps: int = 1,
    eps: float = 1e-4,
) -> Retrieved:
    """Q_new = act(beta Q K^T) K, `update_steps` times: equation 1 of Pan et al. 2024b, appendix F before W_V.

    This is memory retrieval, the first of the four configurations of appendix F. All steps use the stored patterns. A
    projection such as W_V is applied once, after the last step.

    Args:
        query: Q, (..., m, d).
        stored: K, (..., n, d). The leading dimensions of both broadcast.
        beta: Inverse temperature, 0 to infinity: a number, or a tensor that broadcasts to (..., m, 1).
        activation: "sparsemax", "entmax15", "softmax" or "softmax_1".
        mask: Broadcasts to (..., m, n), True where the query may retrieve the pattern. All pairs when None.
        update_steps: 1 or more.
        eps: If a step moves a query by at most this (Euclidean), only the last step follows.

    Returns:
        The retrieved states and the weights of the last step; both are 0 for a query that may retrieve nothing.

    Example:
        >>> import torch
        >>> found = retrieve(torch.tensor([[0.9, 0.1]]), torch.eye(2), beta=4.0)
        >>> found.state.tolist(), found.weights.tolist()
        ([[1.0, 0.0]], [[1.0, 0.0]])
    """
    if update_steps < 1:
        raise ValueError(f"update_steps must be 1 or more, not {update_steps}.")

    def weights(state: Tensor) -> Tensor:
        return associate(state @ stored.transpose(-1, -2), activation=activation, beta=beta, mask=mask)

    if update_steps > 1:
        query = converge(lambda state: weights(state) @ stored, query, max_steps=update_steps - 1, eps=eps).state
    last = weights(query)
    return Retrieved(last @ stored, last)


def split(stored: Tensor, chunks: int, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Cut stored patterns into equal parts; masked patterns fill up the end (Pan et al. 2024b, sec. 4.2).

    `retrieve(query.unsqueeze(-3), parts, mask=mask)` makes k retrievals, each from one part.

    Patterns (..., n, d) become (..., k, c, d), with k = `chunks`, 1 or more, and c = ceil(n / k); a mask (..., m, n) or
    (..., 1, n) becomes (..., k, m, c).
    """
    if chunks < 1:
        raise ValueError(f"chunks must be 1 or more, not {chunks}.")
    n = stored.shape[-2]
    size = -(-n // chunks)
    missing = chunks * size - n
    if mask is None:
        mask = stored.new_ones(1, n).bool()
    parts = pad(stored, (0, 0, 0, missing)).reshape(*stored.shape[:-2], chunks, size, stored.shape[-1])
    allowed = pad(mask.bool(), (0, missing))
    return parts, allowed.reshape(*allowed.shape[:-1], chunks, size).movedim(-2, -3)
