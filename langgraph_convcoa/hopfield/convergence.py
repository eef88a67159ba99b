"""Repeating an update until it no longer moves the state."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class Converged(NamedTuple):
    """Where states ended: `state` (..., d), the number of `steps` (...) each made, and which of them `converged` (...)."""

    state: Tensor
    steps: Tensor
    converged: Tensor


def converge(step: Callable[[Tensor], Tensor], state: Tensor, *, max_steps: int = 100, eps: float = 1e-4) -> Converged:
    """Apply `step` until it moves a state by at most `eps`, or `max_steps` times (Pan et al. 2024b, appendix F).

    Each state stops by itself, so the result for one does not depend on what else is in the batch. Under the retrieval
    dynamics no step raises the energy, and a step that moves the state lowers it (`energy.energy`).

    Args:
        step: The update, (..., d) -> (..., d), of each state by itself.
        state: Where to begin, (..., d).
        max_steps: 0 or more.
        eps: Euclidean length, 0 or more; at 0 a state stops only where the step leaves it as it is.

    Returns:
        The states, their numbers of steps and whether they stopped within `eps`.

    Raises:
        ValueError: `max_steps` or `eps` is negative.

    Example:
        >>> from langgraph_convcoa.hopfield.energy import update
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
