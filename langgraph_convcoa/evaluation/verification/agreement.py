"""Agreement of scores with human ratings: AUC and Spearman with intervals, reliability, agreement of the raters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from langgraph_convcoa.verification.calibration import spearman_of

Scores = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A figure and its 95% interval, bootstrapped over conversations."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True)
class Agreement:
    """AUC and Spearman of a method, and how much more they are than the baseline's in the same resamples."""

    auc: Interval
    spearman: Interval
    auc_gain: Interval
    spearman_gain: Interval


@dataclass(frozen=True)
class Bin:
    """Answers with similar scores; `faithful` is the share of those rated as faithful."""

    low: float
    high: float
    n: int
    mean_score: float
    mean_rating: float
    faithful: float


def agreements(
    scores: Mapping[str, Scores],
    grades: Scores,
    faithful_from: float,
    conversations: Sequence[str],
    *,
    baseline: str,
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Agreement]:
    """Percentile bootstrap over conversations (Efron 1979), the same draws for every method; those with answers on one side
    only are passed over. `scores` of each method, `grades` and `conversations` are of the same n answers.
    """
    rng = np.random.default_rng(seed)
    _, number = np.unique(np.asarray(conversations, dtype=object).astype(str), return_inverse=True)
    members = [np.flatnonzero(number == n) for n in range(number.max() + 1)]
    draws: list[dict[str, tuple[float, float]]] = []
    for _ in range(resamples):
        chosen = np.concatenate([members[n] for n in rng.integers(len(members), size=len(members))])
        if len(set(grades[chosen] >= faithful_from)) == 2:
            draws.append({name: _figures(row[chosen], grades[chosen], faithful_from) for name, row in scores.items()})
    whole = {name: _figures(row, grades, faithful_from) for name, row in scores.items()}
    draws = draws or [whole]
    found = {}
    for name, value in whole.items():
        drawn = np.array([draw[name] for draw in draws])
        gains, gain = drawn - np.array([draw[baseline] for draw in draws]), np.subtract(value, whole[baseline])
        auc, spearman, auc_gain, spearman_gain = map(_interval, (*value, *gain), (*drawn.T, *gains.T))
        found[name] = Agreement(auc, spearman, auc_gain, spearman_gain)
    return found


def _figures(scores: Scores, grades: Scores, faithful_from: float) -> tuple[float, float]:
    """AUC and Spearman, both from the same ranks: thousands of resamples ask for them."""
    faithful = grades >= faithful_from
    ranks, other = rankdata(scores), rankdata(grades)
    n = int(faithful.sum())
    auc = (ranks[faithful].sum() - n * (n + 1) / 2) / (n * (len(grades) - n))
    a, b = ranks - ranks.mean(), other - other.mean()
    spread = float(np.sqrt((a @ a) * (b @ b)))
    return float(auc), float(a @ b) / spread if spread else 0.0


def _interval(value: float, draws: Scores) -> Interval:
    low, high = np.percentile(draws, (2.5, 97.5))
    return Interval(float(value), float(low), float(high))


def reliability(scores: Scores, grades: Scores, faithful_from: float, bins: int) -> list[Bin]:
    """Answers in bins of the same number by score, as far as equal scores allow, lowest first.

    Example:
        >>> found = reliability(np.array([0.1, 0.2, 0.8, 0.9]), np.array([1.0, 3.0, 4.0, 4.0]), 3.0, 2)
        >>> [(b.n, b.mean_rating, b.faithful) for b in found]
        [(2, 2.0, 0.5), (2, 4.0, 1.0)]
    """
    edges = np.unique(np.quantile(scores, np.linspace(0, 1, bins + 1)[1:-1], method="higher"))
    number = np.searchsorted(edges, scores, side="right")
    found = []
    for n in np.unique(number):
        s, g = scores[number == n], grades[number == n]
        shares = (float(s.mean()), float(g.mean()), float((g >= faithful_from).mean()))
        found.append(Bin(float(s.min()), float(s.max()), len(s), *shares))
    return found


def rater_agreement(ratings: Sequence[Sequence[float]]) -> float | None:
    """Mean Spearman of one rater with the mean of the others, over the answers with the largest number of ratings.

    None where fewer than two people rated, or where they give the same rating to all.
    """
    raters = max(map(len, ratings), default=0)
    full = np.array([r for r in ratings if len(r) == raters], dtype=np.float64)
    if raters < 2 or len(full) < 2:
        return None
    others = [np.delete(full, i, axis=1).mean(axis=1) for i in range(raters)]
    if any((column == column[0]).all() for column in (*full.T, *others)):
        return None
    return float(np.mean([spearman_of(full[:, i], others[i]) for i in range(raters)]))
