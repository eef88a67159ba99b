"""Sparsemax from the few largest scores of each row: the same weights as by sorting, and faster on long rows."""

from __future__ import annotations

import torch
from torch import Tensor

from langgraph_convcoa.hopfield.scaling import scaled


def sparsemax_topk(scores: Tensor, *, beta: float | Tensor = 1.0, mask: Tensor | None = None, k: int = 32) -> Tensor:
    """Sparsemax over the last dimension, from partial sorts (Martins & Astudillo 2016; Peters et al. 2019).

    Weights reach only a few of many scores. The `k` largest settle a row unless all of them have weight; such rows are done
    again with twice as many, so the result is exact for every `k`.

    Args:
        scores: (..., n), floating point.
        beta: Inverse temperature, 0 to infinity: a number, or a tensor that broadcasts to (..., 1).
        mask: Broadcasts to (..., n), True where an entry may have weight. All entries when None.
        k: How many of the largest to look at first, 1 or more.

    Returns:
        Weights (..., n) that add up to one; a row without an unmasked entry is all zero.

    Example:
        >>> sparsemax_topk(torch.tensor([1.0, 0.5, -0.5]), k=1).tolist()
        [0.75, 0.25, 0.0]
    """
    if k < 1:
        raise ValueError(f"k must be 1 or more, not {k}.")
    z, allowed = scaled(scores, beta, mask)
    if z.shape[-1] == 0:
        return scores.clone()
    # No score more than 1 below the largest, which is 0, has weight: -2 may stand in for -inf, and the sums stay finite.
    z = z.clamp(min=-2.0)
    support = (z.detach() >= _smallest(z.detach(), k)) & allowed
    # With the support known, threshold and gradient have a closed form.
    size = support.sum(dim=-1, keepdim=True).clamp(min=1).to(z.dtype)
    threshold = ((z * support).sum(dim=-1, keepdim=True) - 1) / size
    return ((z - threshold).clamp(min=0) * support).to(scores.dtype)


def _smallest(z: Tensor, k: int) -> Tensor:
    """The smallest score of each row that has weight: (..., n) -> (..., 1)."""
    n = z.shape[-1]
    rows = z.reshape(-1, n)
    found = torch.empty(len(rows), 1, dtype=z.dtype, device=z.device)
    todo = torch.arange(len(rows), device=z.device)
    while len(todo):
        k = min(k, n)
        top = rows[todo].topk(k, dim=-1).values
        ranks = torch.arange(1, k + 1, dtype=z.dtype, device=z.device)
        size = (1 + ranks * top > top.cumsum(dim=-1)).sum(dim=-1, keepdim=True).clamp(min=1)
        found[todo] = top.gather(-1, size - 1)
        todo = todo[(size.squeeze(-1) == k) & (k < n)]
        k *= 2
    return found.reshape(*z.shape[:-1], 1)
