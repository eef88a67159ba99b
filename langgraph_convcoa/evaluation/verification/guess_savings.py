"""What the threshold buys: guesses that are kept need no correction, and some of them are wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]
RIGHT_SHARES = (0.5, 0.8)
"""Of a model's guesses those that are right: even, and what a good model does."""
_STEPS = np.round(np.arange(0.05, 1.0, 0.05), 2)


@dataclass(frozen=True)
class Saving:
    """A threshold, where a given share of the guesses is right.

    Attributes:
        right_share: Share of right guesses before verification.
        threshold: T; a guess above it is kept.
        kept: Share of all guesses that is kept: each saves its correction, its evidence in the prompt and its answer.
        error: Share of wrong guesses among the kept; None where none is kept.
        right_kept: Share of the right guesses that is kept.
    """

    right_share: float
    threshold: float
    kept: float
    error: float | None
    right_kept: float


def saving(right: Scores, wrong: Scores, threshold: float, right_share: float) -> Saving:
    """What one threshold keeps.

    Example:
        >>> found = saving(np.array([0.9, 0.4]), np.array([0.7, 0.1]), 0.5, 0.8)
        >>> found.kept, found.error
        (0.5, 0.2)
    """
    good = right_share * float((right > threshold).mean())
    bad = (1 - right_share) * float((wrong > threshold).mean())
    kept = good + bad
    return Saving(
        right_share, threshold, round(kept, 6), round(bad / kept, 6) if kept else None, float((right > threshold).mean())
    )


def savings(
    right: Scores, wrong: Scores, *, right_shares: Sequence[float] = RIGHT_SHARES, thresholds: Sequence[float] = tuple(_STEPS)
) -> list[Saving]:
    """What each threshold keeps, for each share of right guesses."""
    return [saving(right, wrong, float(t), share) for share in right_shares for t in thresholds]


def within_error(right: Scores, wrong: Scores, error: float, right_share: float) -> Saving | None:
    """The threshold that keeps the most with at most this error among the kept; None where none does.

    Example:
        >>> within_error(np.array([0.9, 0.4]), np.array([0.7, 0.1]), 0.0, 0.5).kept
        0.25
    """
    # Every cut between two scores; a guess is kept above it.
    tried = (saving(right, wrong, float(t), right_share) for t in np.unique(np.concatenate([[0.0], right, wrong])))
    allowed = [found for found in tried if found.error is not None and found.error <= error]
    return max(allowed, key=lambda found: found.kept, default=None)
