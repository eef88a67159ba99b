"""Entmax with alpha = 1.5: sparse like sparsemax, and smooth like softmax."""

from __future__ import annotations

import torch
from torch import Tensor

from langgraph_convcoa.hopfield.scaling import scaled


def entmax15(scores: Tensor, *, beta: float | Tensor = 1.0, mask: Tensor | None = None) -> Tensor:
    """1.5-entmax over the last dimension, exact by sorting (Peters, Niculae & Martins 2019, algorithm 2).

    The weights are `max(beta * scores / 2 - tau, 0) ** 2`, with the one tau at which they add up to one.

    Args:
        scores: (..., n), floating point.
        beta: Inverse temperature, 0 to infinity: a number, or a tensor that broadcasts to (..., 1). At 0 the weights are
            uniform, at infinity uniform over the largest scores.
        mask: Broadcasts to (..., n), True where an entry may have weight. All entries when None.

    Returns:
        Weights (..., n); a row without an unmasked entry is all zero.

    Example:
        >>> entmax15(torch.tensor([2.0, 0.0])).tolist()
        [1.0, 0.0]
        >>> entmax15(torch.tensor([0.0, 0.0, -9.0]), beta=float("inf")).round(decimals=3).tolist()
        [0.5, 0.5, 0.0]
    """
    z, allowed = scaled(scores, beta, mask)
    if z.shape[-1] == 0:
        return scores.clone()
    # No half score more than 1 below the largest, which is 0, has weight: -2 may stand in for -inf, and the sums stay finite.
    z = (z / 2).clamp(min=-2.0)
    support = (z.detach() >= _smallest(z.detach())) & allowed
    # With the support known, threshold and gradient have a closed form.
    size = support.sum(dim=-1, keepdim=True).clamp(min=1).to(z.dtype)
    mean = (z * support).sum(dim=-1, keepdim=True) / size
    spread = ((z - mean).square() * support).sum(dim=-1, keepdim=True)
    # Roots of weights that add up to one have a sum of at least one, so mean - tau >= 1 / size: no root of 0 or less.
    threshold = mean - torch.maximum((1 - spread) / size, size**-2).sqrt()
    return (((z - threshold).clamp(min=0) * support).square()).to(scores.dtype)


def _smallest(z: Tensor) -> Tensor:
    """The smallest half score of each row that has weight: (..., n) -> (..., 1)."""
    ordered = z.sort(dim=-1, descending=True).values
    ranks = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype, device=z.device)
    mean = ordered.cumsum(dim=-1) / ranks
    variance = ordered.square().cumsum(dim=-1) / ranks - mean.square()
    thresholds = mean - (1 / ranks - variance).clamp(min=0).sqrt()
    size = (thresholds <= ordered).sum(dim=-1, keepdim=True).clamp(min=1)
    return ordered.gather(-1, size - 1)
