"""Sparsity maps: how the scores of a query against stored patterns become association weights."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

Activation = Literal["sparsemax", "entmax15", "softmax", "softmax_1"]

_NONE = -2.0
"""Replaces -inf, so that sums stay finite. The largest score is 0, and a score more than 1 below it has no weight."""


def associate(
    scores: Tensor,
    *,
    activation: Activation = "sparsemax",
    beta: float | Tensor = 1.0,
    mask: Tensor | None = None,
) -> Tensor:
    """Association weights over the last dimension.

    Args:
        scores: (..., n), floating point.
        activation: "sparsemax", "entmax15", "softmax" or "softmax_1".
        beta: Inverse temperature, 0 to infinity: a number, or a tensor that broadcasts to (..., 1), such as (heads, 1, 1).
        mask: Broadcasts to (..., n), True where an entry may have weight. All entries when None.

    Returns:
        Weights (..., n) that add up to one (softmax_1: to at most one); a row without an unmasked entry is all zero.

    Raises:
        ValueError: The activation is unknown, beta is negative or not a number, or the mask holds floats.

    Example:
        >>> import torch
        >>> associate(torch.tensor([1.0, 0.5, -0.5])).tolist()
        [0.75, 0.25, 0.0]
    """
    match check_activation(activation):
        case "entmax15":
            return entmax15(scores, beta=beta, mask=mask)
        case "softmax":
            return softmax(scores, beta=beta, mask=mask)
        case "softmax_1":
            return softmax_1(scores, beta=beta, mask=mask)
        case "sparsemax":
            return sparsemax(scores, beta=beta, mask=mask)


def check_activation(name: str) -> Activation:
    """Return the name if an activation has it; otherwise raise ValueError."""
    for known in get_args(Activation):
        if name == known:
            return known  # type: ignore[no-any-return]
    raise ValueError(f"Unknown activation {name!r}: use one of {', '.join(get_args(Activation))}.")


def sparsemax(scores: Tensor, *, beta: float | Tensor = 1.0, mask: Tensor | None = None) -> Tensor:
    """The Euclidean projection of `beta * scores` on the simplex (Martins & Astudillo 2016; Pan et al. 2024b, section 4).

    Arguments and weights as for `associate`. At beta = 0 the weights are uniform, at infinity uniform over the largest scores.

    Example:
        >>> sparsemax(torch.tensor([1.0, 0.5, -0.5])).tolist()
        [0.75, 0.25, 0.0]
    """
    z, allowed = scaled(scores, beta, mask)
    if z.shape[-1] == 0:
        return scores.clone()
    z = z.clamp(min=_NONE)
    ordered = z.sort(dim=-1, descending=True).values
    sums = ordered.cumsum(dim=-1)
    ranks = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype, device=z.device)
    support = (1 + ranks * ordered > sums).sum(dim=-1, keepdim=True).clamp(min=1)
    threshold = (sums.gather(-1, support - 1) - 1) / support.to(z.dtype)
    return ((z - threshold).clamp(min=0) * allowed).to(scores.dtype)


def entmax15(scores: Tensor, *, beta: float | Tensor = 1.0, mask: Tensor | None = None) -> Tensor:
    """1.5-entmax over the last dimension, exact by sorting (Peters, Niculae & Martins 2019, algorithm 2).

    The weights are `max(beta * scores / 2 - tau, 0) ** 2`; tau makes them add up to one. Otherwise as `sparsemax`.

    Example:
        >>> entmax15(torch.tensor([2.0, 0.0])).tolist()
        [1.0, 0.0]
    """
    z, allowed = scaled(scores, beta, mask)
    if z.shape[-1] == 0:
        return scores.clone()
    z = (z / 2).clamp(min=_NONE)
    support = (z.detach() >= _smallest_half(z.detach())) & allowed
    # With the support known, threshold and gradient have a closed form.
    size = support.sum(dim=-1, keepdim=True).clamp(min=1).to(z.dtype)
    mean = (z * support).sum(dim=-1, keepdim=True) / size
    spread = ((z - mean).square() * support).sum(dim=-1, keepdim=True)
    # The square roots of weights with sum one have a sum of at least one, so mean - tau >= 1 / size: the root is above 0.
    threshold = mean - torch.maximum((1 - spread) / size, size**-2).sqrt()
    return (((z - threshold).clamp(min=0) * support).square()).to(scores.dtype)


def _smallest_half(z: Tensor) -> Tensor:
    """For each row, the smallest half score that has weight: (..., n) -> (..., 1)."""
    ordered = z.sort(dim=-1, descending=True).values
    ranks = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype, device=z.device)
    mean = ordered.cumsum(dim=-1) / ranks
    variance = ordered.square().cumsum(dim=-1) / ranks - mean.square()
    thresholds = mean - (1 / ranks - variance).clamp(min=0).sqrt()
    size = (thresholds <= ordered).sum(dim=-1, keepdim=True).clamp(min=1)
    return ordered.gather(-1, size - 1)


def softmax(scores: Tensor, *, beta: float | Tensor = 1.0, mask: Tensor | None = None) -> Tensor:
    """Softmax over the last dimension (Ramsauer et al. 2021). Otherwise as `sparsemax`.

    Example:
        >>> softmax(torch.zeros(3), mask=torch.tensor([True, True, False])).tolist()
        [0.5, 0.5, 0.0]
    """
    z, allowed = scaled(scores, beta, mask)
    return (torch.softmax(z, dim=-1) * allowed).to(scores.dtype)


def softmax_1(scores: Tensor, *, beta: float | Tensor = 1.0, mask: Tensor | None = None) -> Tensor:
    """exp(beta x_i) / (1 + sum_j exp(beta x_j)) over the last dimension (OutEffHop, Hu et al. 2024).

    It is softmax with one more entry of score 0, whose weight is left out: if all scores are far below 0, nothing is
    retrieved. The weights add up to at most one. The shift is by max(0, max x), so no score overflows. Otherwise as
    `sparsemax`; at beta = 0 each weight is 1 / (1 + n), and at infinity the largest scores share the weight if above 0.

    Example:
        >>> softmax_1(torch.tensor([0.0, 0.0, 0.0])).tolist()
        [0.25, 0.25, 0.25]
    """
    nothing = torch.zeros_like(scores[..., :1]) if scores.shape[-1] else scores.new_zeros(*scores.shape[:-1], 1)
    if mask is not None:
        mask = mask.expand_as(scores)
        mask = torch.cat([mask, torch.ones_like(nothing, dtype=mask.dtype)], dim=-1)
    return softmax(torch.cat([scores, nothing], dim=-1), beta=beta, mask=mask)[..., :-1]


def scaled(scores: Tensor, beta: float | Tensor = 1.0, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """`beta * (scores - largest score)` over the last dimension, and which entries may have weight: every map starts here.

    The shift keeps the largest score exact for every beta. Half precision is scaled in float32. A score of -inf counts as
    masked. In the result the largest score is 0, a masked entry is -inf, and a row without an unmasked entry is all 0.
    Arguments and errors are as for `associate`.
    """
    if not bool((beta >= 0).all() if isinstance(beta, Tensor) else beta >= 0):
        raise ValueError(f"beta must be from 0 to infinity, not {beta.tolist() if isinstance(beta, Tensor) else beta}.")
    allowed = _allowed(scores, mask)
    if scores.dtype in (torch.float16, torch.bfloat16):
        scores = scores.float()
    if scores.shape[-1] == 0:
        return scores, allowed
    top = scores.detach().masked_fill(~allowed, -math.inf).amax(dim=-1, keepdim=True)
    empty = top == -math.inf
    # Masked entries are 0 until the scores are scaled: 0 * -inf is NaN, at beta = 0 and in the gradient of beta.
    shifted = (scores - top.masked_fill(empty, 0.0)).masked_fill(~allowed, 0.0)
    return _scale(shifted, beta).masked_fill(~allowed & ~empty, -math.inf), allowed


def _scale(shifted: Tensor, beta: float | Tensor) -> Tensor:
    """`beta * shifted`; an infinite beta keeps the largest (0) and makes all others -inf."""
    if not isinstance(beta, Tensor):
        return _hard(shifted) if math.isinf(beta) else beta * shifted
    infinite = torch.isinf(beta)
    soft = beta.to(shifted.dtype).masked_fill(infinite, 1.0) * shifted
    return torch.where(infinite, _hard(shifted), soft)


def _hard(shifted: Tensor) -> Tensor:
    return torch.zeros_like(shifted).masked_fill(shifted < 0, -math.inf)


def _allowed(scores: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return scores != -math.inf
    if mask.is_floating_point():
        raise ValueError(
            "The mask must be boolean, True where an entry may have weight; this one holds floats: pass `mask == 0`."
        )
    return mask.to(torch.bool) & (scores != -math.inf)
