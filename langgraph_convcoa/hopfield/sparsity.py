"""Sparsity maps: how similarities become association weights."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def sparsemax(scores: Tensor, *, beta: float = 1.0, mask: Tensor | None = None, dim: int = -1) -> Tensor:
    """The Euclidean projection of `beta * scores` on the simplex (Martins & Astudillo 2016; Pan et al. 2024b, section 4).

    Args:
        scores: Any shape, floating point.
        beta: Inverse temperature, 0 to infinity. At 0 the weights are uniform, at infinity uniform over the largest scores.
        mask: Of a shape that broadcasts to that of `scores`, True where an entry may have weight. All entries when None.
        dim: The dimension whose weights add up to one.

    Returns:
        Weights of the shape of `scores`; a row without an unmasked entry is all zero.

    Example:
        >>> sparsemax(torch.tensor([1.0, 0.5, -0.5])).tolist()
        [0.75, 0.25, 0.0]
        >>> sparsemax(torch.tensor([1.0, 1.0, 0.5]), beta=float("inf")).tolist()
        [0.5, 0.5, 0.0]
    """
    if math.isnan(beta) or beta < 0:
        raise ValueError(f"beta must be from 0 to infinity, not {beta}.")
    allowed = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask.to(torch.bool).expand_as(scores)
    scores, allowed = scores.transpose(dim, -1), allowed.transpose(dim, -1)
    if scores.shape[-1] == 0:
        return scores.transpose(dim, -1).clone()
    filled = scores.masked_fill(~allowed, -math.inf)
    top = filled.amax(dim=-1, keepdim=True)
    # A shift of all scores changes nothing, and keeps the largest exact however large beta is.
    shifted = (filled - top.masked_fill(top == -math.inf, 0.0)).masked_fill(~allowed, -math.inf)
    if math.isinf(beta):
        weights = _uniform(shifted == 0, scores.dtype)
    elif beta == 0:
        weights = _uniform(allowed, scores.dtype)
    else:
        weights = _project((beta * shifted).masked_fill(~allowed, -math.inf)) * allowed
    return weights.transpose(dim, -1)


def _uniform(chosen: Tensor, dtype: torch.dtype) -> Tensor:
    return chosen.to(dtype) / chosen.sum(dim=-1, keepdim=True).clamp(min=1)


def _project(z: Tensor) -> Tensor:
    """Sparsemax over the last dimension of scores whose largest is 0; masked ones are -inf."""
    # No score more than 1 below the largest has weight, so that -inf may stand in as -2 and the sums stay finite.
    z = z.clamp(min=-2.0)
    ordered = z.sort(dim=-1, descending=True).values
    sums = ordered.cumsum(dim=-1)
    ranks = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype, device=z.device)
    support = (1 + ranks * ordered > sums).sum(dim=-1, keepdim=True).clamp(min=1)
    threshold = (sums.gather(-1, support - 1) - 1) / support.to(z.dtype)
    return (z - threshold).clamp(min=0)
