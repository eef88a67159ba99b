"""Softmax with masks and any inverse temperature, and softmax_1, which may give weight to nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from langgraph_convcoa.hopfield.scaling import scaled


def softmax(scores: Tensor, *, beta: float | Tensor = 1.0, mask: Tensor | None = None) -> Tensor:
    """Softmax over the last dimension, the dense counterpart of sparsemax (Ramsauer et al. 2021).

    Args:
        scores: (..., n), floating point.
        beta: Inverse temperature, 0 to infinity: a number, or a tensor that broadcasts to (..., 1). At 0 the weights are
            uniform, at infinity uniform over the largest scores.
        mask: Broadcasts to (..., n), True where an entry may have weight. All entries when None.

    Returns:
        Weights (..., n); a row without an unmasked entry is all zero.

    Example:
        >>> softmax(torch.zeros(3), mask=torch.tensor([True, True, False])).tolist()
        [0.5, 0.5, 0.0]
    """
    z, allowed = scaled(scores, beta, mask)
    return (torch.softmax(z, dim=-1) * allowed).to(scores.dtype)


def softmax_1(scores: Tensor, *, beta: float | Tensor = 1.0, mask: Tensor | None = None) -> Tensor:
    """exp(beta x_i) / (1 + sum_j exp(beta x_j)) over the last dimension (OutEffHop, Hu et al. 2024).

    It is softmax with one more entry of score 0, whose weight is left out: where all scores are far below 0, nothing is
    retrieved. The shift is by max(0, max x), so no score overflows.

    Args:
        scores: (..., n), floating point.
        beta: Inverse temperature, 0 to infinity: a number, or a tensor that broadcasts to (..., 1). At 0 each weight is
            1 / (1 + n), at infinity the largest scores share the weight if they are above 0.
        mask: Broadcasts to (..., n), True where an entry may have weight. All entries when None.

    Returns:
        Weights (..., n) that add up to less than one, or to one in the limit; a row without an unmasked entry is all zero.

    Example:
        >>> softmax_1(torch.tensor([0.0, 0.0, 0.0])).tolist()
        [0.25, 0.25, 0.25]
        >>> softmax_1(torch.tensor([-1000.0, 1000.0])).tolist()
        [0.0, 1.0]
    """
    nothing = torch.zeros_like(scores[..., :1]) if scores.shape[-1] else scores.new_zeros(*scores.shape[:-1], 1)
    if mask is not None:
        mask = mask.expand_as(scores)
        mask = torch.cat([mask, torch.ones_like(nothing, dtype=mask.dtype)], dim=-1)
    return softmax(torch.cat([scores, nothing], dim=-1), beta=beta, mask=mask)[..., :-1]
