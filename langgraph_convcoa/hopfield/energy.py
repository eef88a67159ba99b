"""Energy, update and convergence of the sparse modern Hopfield model (Pan et al. 2024b, section 4 and appendix F)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from langgraph_convcoa.hopfield.sparsity import sparsemax


def conjugate(scores: Tensor) -> Tensor:
    """Psi*(z) = 1/2 sum over the support of (z_i^2 - tau^2) + 1/2, whose gradient is sparsemax(z).

    `scores` (..., n) -> (...).
    """
    weights = sparsemax(scores)
    # <p, z> - 1/2 |p|^2 + 1/2 is the same number, without the difference of large, nearly equal squares.
    return (weights * scores).sum(dim=-1) - 0.5 * weights.square().sum(dim=-1) + 0.5


def energy(state: Tensor, patterns: Tensor, beta: float) -> Tensor:
    """E(x) = 1/2 |x|^2 - (1/beta) Psi*(beta Y x).

    `state` x (..., d), `patterns` Y (n, d) -> (...). `beta` is above 0 and finite, else ValueError.

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

    E(Tx) <= E(x) - 1/2 |x - Tx|^2, and a pattern y whose product with x exceeds all others by 1/beta is retrieved exactly.

    `state` x (..., d), `patterns` Y (n, d) -> (..., d). `beta` is from 0 to infinity. `mask` (..., n) is True where a pattern
    may be retrieved; a row without such a pattern gives zeros.

    Example:
        >>> update(torch.tensor([0.9, 0.1]), torch.eye(2), 4.0).tolist()
        [1.0, 0.0]
    """
    return sparsemax(state @ patterns.T, beta=beta, mask=mask) @ patterns


def similarity(state: Tensor, patterns: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    """sim(z, x) = <T(x), x> (...), and its association weights (..., n) (Pan et al. 2024b, section 4).

    It lies between mean pooling (beta = 0) and the best pattern (beta = infinity). `state` x (..., d), `patterns` Y (n, d).

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

    Each state stops on its own, so its result does not depend on the rest of the batch. No retrieval step raises the `energy`.

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
        # Written so that a NaN never counts as converged.
        active = active & ~(moved <= eps)
        if not active.any():
            break
    return Converged(state, steps.squeeze(-1), ~active.squeeze(-1))
