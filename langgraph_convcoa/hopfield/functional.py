"""Sparsity maps, energy, update and retrieval of modern Hopfield networks (Pan et al. 2024b, section 4 and appendix F)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Activation = Literal["sparsemax", "entmax15", "softmax"]

_NONE = -2.0
"""Replaces -inf, so that sums stay finite. The largest score is 0, and a score more than 1 below it has no weight."""


def associate(
    scores: Tensor, *, activation: Activation = "sparsemax", beta: float | Tensor = 1.0, mask: Tensor | None = None
) -> Tensor:
    """Association weights over the last dimension.

    The scores are (..., n), floating point. The inverse temperature beta is from 0 to infinity: a number, or a tensor that
    broadcasts to (..., 1), such as (heads, 1, 1). The mask broadcasts to (..., n) and is True where an entry may have weight.
    The weights (..., n) add up to one; a row without an unmasked entry is all zero.

    Raises ValueError if the activation is unknown, beta is negative or not a number, or the mask holds floats.

    Example:
        >>> import torch
        >>> associate(torch.tensor([1.0, 0.5, -0.5])).tolist()
        [0.75, 0.25, 0.0]
    """
    return _MAPS[check_activation(activation)](scores, beta=beta, mask=mask)


def check_activation(name: str) -> Activation:
    """Return the name if an activation has it; otherwise raise ValueError."""
    if name not in _MAPS:
        raise ValueError(f"Unknown activation {name!r}: use one of {', '.join(_MAPS)}.")
    return name  # type: ignore[return-value]


def sparsemax(scores: Tensor, *, beta: float | Tensor = 1.0, mask: Tensor | None = None) -> Tensor:
    """The Euclidean projection of `beta * scores` on the simplex (Martins & Astudillo 2016; Pan et al. 2024b, section 4).

    Arguments are as for `associate`. At beta = 0, all weights are equal; at infinity, the largest scores share the weight.

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

    The weights are `max(beta * scores / 2 - tau, 0) ** 2`; tau makes them add up to one. Arguments are as for `associate`.

    Example:
        >>> entmax15(torch.tensor([2.0, 0.0])).tolist()
        [1.0, 0.0]
    """
    z, allowed = scaled(scores, beta, mask)
    if z.shape[-1] == 0:
        return scores.clone()
    z = (z / 2).clamp(min=_NONE)
    support = (z.detach() >= _smallest_half(z.detach())) & allowed
    # Given the support, the threshold and the gradient have a closed form.
    size = support.sum(dim=-1, keepdim=True).clamp(min=1).to(z.dtype)
    mean = (z * support).sum(dim=-1, keepdim=True) / size
    spread = ((z - mean).square() * support).sum(dim=-1, keepdim=True)
    # The weights add up to 1, so their square roots add up to at least 1: mean - tau >= 1 / size, and the root is above 0.
    threshold = mean - torch.maximum((1 - spread) / size, size**-2).sqrt()
    return (((z - threshold).clamp(min=0) * support).square()).to(scores.dtype)


def _smallest_half(z: Tensor) -> Tensor:
    """For each row, the smallest of the halved scores that have weight: (..., n) -> (..., 1)."""
    ordered = z.sort(dim=-1, descending=True).values
    ranks = torch.arange(1, z.shape[-1] + 1, dtype=z.dtype, device=z.device)
    mean = ordered.cumsum(dim=-1) / ranks
    variance = ordered.square().cumsum(dim=-1) / ranks - mean.square()
    thresholds = mean - (1 / ranks - variance).clamp(min=0).sqrt()
    size = (thresholds <= ordered).sum(dim=-1, keepdim=True).clamp(min=1)
    return ordered.gather(-1, size - 1)


def softmax(scores: Tensor, *, beta: float | Tensor = 1.0, mask: Tensor | None = None) -> Tensor:
    """Softmax over the last dimension (Ramsauer et al. 2021). Arguments are as for `associate`.

    Example:
        >>> softmax(torch.zeros(3), mask=torch.tensor([True, True, False])).tolist()
        [0.5, 0.5, 0.0]
    """
    z, allowed = scaled(scores, beta, mask)
    return (torch.softmax(z, dim=-1) * allowed).to(scores.dtype)


def scaled(scores: Tensor, beta: float | Tensor = 1.0, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The first step of every map: `beta * (scores - largest score)`, and a mask of the entries that may have weight.

    The shift keeps the largest score exact for every beta. Half precision is scaled in float32. A score of -inf counts as
    masked. In the result the largest score is 0, a masked entry is -inf, and a row without an unmasked entry is all 0.
    Arguments and errors are as for `associate`.
    """
    if not bool((beta >= 0).all() if isinstance(beta, Tensor) else beta >= 0):
        raise ValueError(f"beta must be from 0 to infinity, not {beta.tolist() if isinstance(beta, Tensor) else beta}.")
    if mask is not None and mask.is_floating_point():
        raise ValueError(
            "The mask must be boolean, True where an entry may have weight; this one holds floats: pass `mask == 0`."
        )
    allowed = (scores != -math.inf) if mask is None else mask.bool() & (scores != -math.inf)
    if scores.dtype in (torch.float16, torch.bfloat16):
        scores = scores.float()
    if scores.shape[-1] == 0:
        return scores, allowed
    top = scores.detach().masked_fill(~allowed, -math.inf).amax(dim=-1, keepdim=True)
    empty = top == -math.inf
    # Masked entries stay 0 until the scores are scaled: 0 * -inf would be NaN at beta = 0 and in the gradient of beta.
    shifted = (scores - top.masked_fill(empty, 0.0)).masked_fill(~allowed, 0.0)
    betas = torch.as_tensor(beta, dtype=shifted.dtype, device=shifted.device)
    infinite = betas.isinf()
    # An infinite beta keeps the largest scores (0) and makes all others -inf.
    z = torch.where(infinite, torch.where(shifted < 0, -math.inf, 0.0), betas.masked_fill(infinite, 1.0) * shifted)
    return z.masked_fill(~allowed & ~empty, -math.inf), allowed


_MAPS = {"sparsemax": sparsemax, "entmax15": entmax15, "softmax": softmax}


def conjugate(scores: Tensor) -> Tensor:
    """Psi*(z) = 1/2 sum over the support of (z_i^2 - tau^2) + 1/2, whose gradient is sparsemax(z).

    `scores` (..., n) -> (...).
    """
    weights = sparsemax(scores)
    # <p, z> - 1/2 |p|^2 + 1/2 is the same number, without the difference of large, nearly equal squares.
    return (weights * scores).sum(dim=-1) - 0.5 * weights.square().sum(dim=-1) + 0.5


def energy(state: Tensor, patterns: Tensor, beta: float) -> Tensor:
    """E(x) = 1/2 |x|^2 - (1/beta) Psi*(beta Y x).

    `state` x (..., d), `patterns` Y (n, d) -> (...). Raises ValueError unless `beta` is above 0 and finite.

    Example:
        >>> patterns = torch.eye(2)
        >>> x = torch.tensor([0.9, 0.1])
        >>> bool(energy(update(x, patterns, 4.0), patterns, 4.0) <= energy(x, patterns, 4.0))
        True
    """
    if not 0 < beta < float("inf"):
        raise ValueError(f"The energy needs a beta above 0 and finite, not {beta}.")
    return 0.5 * state.square().sum(dim=-1) - conjugate(beta * (state @ patterns.T)) / beta


def update(state: Tensor, patterns: Tensor, beta: float, mask: Tensor | None = None) -> Tensor:
    """T(x) = sparsemax(beta x Y^T) Y: one step towards the stored patterns.

    E(Tx) <= E(x) - 1/2 |x - Tx|^2. A pattern is retrieved exactly if its product with x exceeds all others by 1/beta.

    `state` x (..., d), `patterns` Y (n, d) -> (..., d). `beta` is from 0 to infinity. `mask` (..., n) is True where a pattern
    may be retrieved; a row without such a pattern gives zeros.

    Example:
        >>> update(torch.tensor([0.9, 0.1]), torch.eye(2), 4.0).tolist()
        [1.0, 0.0]
    """
    return sparsemax(state @ patterns.T, beta=beta, mask=mask) @ patterns


def similarity(state: Tensor, patterns: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    """sim(z, x) = <T(x), x> (...), and its association weights (..., n) (Pan et al. 2024b, section 4).

    At beta = 0 it is the mean product with the patterns, at infinity the largest. `state` x (..., d), `patterns` Y (n, d).

    Example:
        >>> value, weights = similarity(torch.tensor([0.9, 0.1]), torch.eye(2), float("inf"))
        >>> round(float(value), 3), weights.tolist()
        (0.9, [1.0, 0.0])
    """
    products = state @ patterns.T
    weights = sparsemax(products, beta=beta)
    return torch.sum(weights * products, dim=-1), weights


class Converged(NamedTuple):
    """The final `state` (..., d), the number of `steps` (...) of each state, and whether it `converged` (...)."""

    state: Tensor
    steps: Tensor
    converged: Tensor


def converge(step: Callable[[Tensor], Tensor], state: Tensor, *, max_steps: int = 100, eps: float = 1e-4) -> Converged:
    """Apply `step` until it moves a state by at most `eps`, or `max_steps` times (Pan et al. 2024b, appendix F).

    Each state stops on its own, so its result does not depend on the rest of the batch. `update` never raises the `energy`.

    `step` maps states (..., d) to states. `eps` is a Euclidean length; at 0 a state stops only if the step does not change it.

    Example:
        >>> patterns = torch.eye(2)
        >>> end = converge(lambda x: update(x, patterns, 2.0), torch.tensor([0.6, 0.2]))
        >>> end.state.tolist(), int(end.steps), bool(end.converged)
        ([1.0, 0.0], 3, True)
    """
    if max_steps < 0 or not eps >= 0:
        raise ValueError(f"max_steps and eps must be 0 or more, not {max_steps} and {eps}.")
    active = torch.ones_like(state[..., :1], dtype=torch.bool)
    steps = torch.zeros_like(active, dtype=torch.long)
    for _ in range(max_steps):
        after = step(state)
        moved = torch.linalg.vector_norm((after - state).detach(), dim=-1, keepdim=True)
        state = torch.where(active, after, state)
        steps = steps + active
        # With `~(moved <= eps)`, a NaN never counts as converged.
        active = active & ~(moved <= eps)
        if not active.any():
            break
    return Converged(state, steps.squeeze(-1), ~active.squeeze(-1))


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

    This is memory retrieval, the first of the four configurations of appendix F. A projection such as W_V is no part of a
    step: the caller applies it once, after the last step.

    Q is (..., m, d), K (..., n, d); their leading dimensions broadcast. beta, from 0 to infinity, is a number or a tensor that
    broadcasts to (..., m, 1). The mask broadcasts to (..., m, n) and is True where a query may retrieve a pattern. If a step
    moves a query by at most `eps` (Euclidean), only the last step follows.

    Returns the retrieved states and the weights of the last step; both are 0 for a query that may retrieve nothing.

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
