"""The mathematics of the search, on numpy arrays: search loads no torch. `functional` has the same with gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_NONE = -2.0
"""Replaces -inf, so that sums stay finite. The largest score is 0, and a score more than 1 below it has no weight."""


def sparsemax(scores: Array, *, beta: float = 1.0, mask: npt.NDArray[np.bool_] | None = None) -> Array:
    """The Euclidean projection of `beta * scores` on the simplex (Martins & Astudillo 2016; Pan et al. 2024b, section 4).

    Scores are (..., n). The mask of the same shape is True where an entry may have weight. Weights are of the same shape and
    add up to one over the last dimension; at beta = 0 they are uniform, at infinity uniform over the largest scores. A row
    without an unmasked entry is all zero.

    Example:
        >>> sparsemax(np.array([1.0, 0.5, -0.5])).tolist()
        [0.75, 0.25, 0.0]
    """
    z = np.asarray(scores, dtype=np.float64)
    if z.shape[-1] == 0:
        return z.copy()
    allowed = z != -math.inf if mask is None else mask & (z != -math.inf)
    top = z.max(axis=-1, keepdims=True, where=allowed, initial=-math.inf)
    # Subtract the largest score, which is then exactly 0 for any beta.
    z = np.where(allowed, z - np.where(top == -math.inf, 0.0, top), 0.0)
    z = np.where(z < 0, _NONE, z) if math.isinf(beta) else np.maximum(beta * z, _NONE)
    z[~allowed] = _NONE
    ordered = -np.sort(-z, axis=-1)
    sums = ordered.cumsum(axis=-1)
    support = np.maximum((1 + np.arange(1, z.shape[-1] + 1) * ordered > sums).sum(axis=-1, keepdims=True), 1)
    threshold = (np.take_along_axis(sums, support - 1, axis=-1) - 1) / support
    return np.asarray(np.maximum(z - threshold, 0) * allowed)


def update(state: Array, patterns: Array, *, beta: float) -> Array:
    """T(x) = sparsemax(beta x Y^T) Y: the pattern that the stored patterns Y (n, d) return for a state x (d,)."""
    return np.asarray(sparsemax(patterns @ state, beta=beta) @ patterns)


def similarity(products: Array, *, beta: float, mask: npt.NDArray[np.bool_] | None = None) -> Array:
    """sim(z, x) = <T(x), x> = sum_j sparsemax(beta a)_j a_j, from the products a = x Y^T (..., n) of state and patterns.

    At beta = 0 it is the mean of the products, at infinity the largest. The mask is as for `sparsemax`.
    """
    # Unlike sum, cumsum adds from left to right, so zeros at the end do not change how the sum is rounded.
    return np.asarray((sparsemax(products, beta=beta, mask=mask) * products).cumsum(axis=-1)[..., -1])
