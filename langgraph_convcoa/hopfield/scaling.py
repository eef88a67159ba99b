"""What every activation does first: mask, shift and scale the scores, for an inverse temperature from 0 to infinity."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def scaled(scores: Tensor, beta: float | Tensor = 1.0, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """`beta * (scores - largest score)` over the last dimension, and which entries may have weight.

    The shift changes nothing for an activation that a common shift leaves alone, and keeps the largest exact however large
    beta is. Half precision is scaled in float32.

    Args:
        scores: (..., n), floating point. A score of -inf counts as masked.
        beta: Inverse temperature, 0 to infinity: a number, or a tensor that broadcasts to (..., 1), such as (heads, 1, 1).
        mask: Broadcasts to (..., n), True where an entry may have weight. All entries when None.

    Returns:
        The scaled scores (..., n): the largest is 0, a masked entry -inf, a row without an unmasked entry all 0. And the mask
        (..., n).

    Raises:
        ValueError: beta is negative or not a number, or the mask is an additive one.

    Example:
        >>> scaled(torch.tensor([3.0, 1.0, 7.0]), 2.0, torch.tensor([True, True, False]))[0].tolist()
        [0.0, -4.0, -inf]
    """
    _check_beta(beta)
    allowed = _allowed(scores, mask)
    if scores.dtype in (torch.float16, torch.bfloat16):
        scores = scores.float()
    if scores.shape[-1] == 0:
        return scores, allowed
    top = scores.detach().masked_fill(~allowed, -math.inf).amax(dim=-1, keepdim=True)
    empty = top == -math.inf
    # Masked entries stand in as 0 until they are scaled: 0 * -inf is NaN, at beta = 0 and in the gradient of beta.
    shifted = (scores - top.masked_fill(empty, 0.0)).masked_fill(~allowed, 0.0)
    return _scale(shifted, beta).masked_fill(~allowed & ~empty, -math.inf), allowed


def _scale(shifted: Tensor, beta: float | Tensor) -> Tensor:
    """`beta * shifted`, where an infinite beta keeps the largest, which are 0, and sends all others to -inf."""
    if not isinstance(beta, Tensor):
        return _hard(shifted) if math.isinf(beta) else beta * shifted
    infinite = torch.isinf(beta)
    soft = beta.to(shifted.dtype).masked_fill(infinite, 1.0) * shifted
    return torch.where(infinite, _hard(shifted), soft)


def _hard(shifted: Tensor) -> Tensor:
    return torch.zeros_like(shifted).masked_fill(shifted < 0, -math.inf)


def _check_beta(beta: float | Tensor) -> None:
    bad = bool((~(beta >= 0)).any()) if isinstance(beta, Tensor) else not beta >= 0
    if bad:
        raise ValueError(f"beta must be from 0 to infinity, not {beta.tolist() if isinstance(beta, Tensor) else beta}.")


def _allowed(scores: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return scores != -math.inf
    if mask.is_floating_point():
        raise ValueError(
            "The mask must be boolean, True where an entry may have weight; this one holds floats: pass `mask == 0`."
        )
    return mask.to(torch.bool) & (scores != -math.inf)
