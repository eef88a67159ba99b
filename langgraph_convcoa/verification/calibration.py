"""Calibration: alpha, beta, gamma and the threshold T from judged examples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from langchain_core.documents import Document
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score, roc_curve

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.verification.faith_score import Items, Weights, faith_score
from langgraph_convcoa.verification.mrfs import Mode, candidate_parts
from langgraph_convcoa.verification.references import References

Array = NDArray[np.float64]
_CORNERS: tuple[Weights, ...] = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


@dataclass(frozen=True)
class Example:
    """A candidate that people have judged, with what `conv_mrfs` would get."""

    candidate: str
    references: Sequence[str | Document]
    question: str = ""
    history: Sequence[tuple[str, str]] = field(default=())


@dataclass(frozen=True)
class Calibration:
    """What fits the judgements best. The figures are of the examples that were fitted: measure others for an honest one.

    Attributes:
        weights: alpha, beta, gamma.
        threshold: T with the best balanced accuracy; a score above it is faithful.
        auc: Area under the ROC curve, faithful against unfaithful.
        spearman: Rank correlation of scores and ratings.
        balanced_accuracy: Mean of the shares of faithful and of unfaithful examples that T tells right.
    """

    weights: Weights
    threshold: float
    auc: float
    spearman: float
    balanced_accuracy: float


def calibrate(
    examples: Sequence[Example],
    ratings: Sequence[float],
    *,
    faithful_from: float = 1.0,
    mode: Mode = "default",
    items: Items | None = None,
    step: float = 0.05,
    tolerance: float = 0.005,
) -> Calibration:
    """Find weights on a grid over the simplex, and T.

    The objective is the mean of AUC and Spearman's rank correlation. Of all weights within the tolerance of the best the
    ones with the largest alpha are taken: precision is what faithfulness means, the rest must earn its place.

    Args:
        examples: Judged candidates.
        ratings: One for each: True / False, or a grade.
        faithful_from: The lowest rating that counts as faithful.
        mode: The form of `conv_mrfs` to be calibrated.
        items: Of the plain form only, as in `conv_mrfs`.
        step: Distance of the grid's points.
        tolerance: How much of the objective simpler weights may cost.

    Raises:
        InputError: Ratings do not fit the examples, or hold no faithful or no unfaithful one, or the step is not in (0, 1].

    Example:
        >>> evidence = ["The network was described in 1982.", "It stores patterns."]
        >>> told = ["It was described in 1982.", "It was described in 1977.", "It stores patterns.", "It bakes bread."]
        >>> found = calibrate([Example(text, evidence) for text in told], [True, False, True, False])
        >>> found.weights, found.auc, found.balanced_accuracy
        ((1.0, 0.0, 0.0), 1.0, 1.0)
    """
    grades = np.asarray(ratings, dtype=np.float64)
    faithful = grades >= faithful_from
    if len(grades) != len(examples):
        raise InputError(f"{len(examples)} examples need as many ratings, not {len(grades)}")
    if faithful.all() or not faithful.any():
        raise InputError(f"calibration needs examples on both sides of the rating {faithful_from:g}; see faithful_from")
    if not 0 < step <= 1:
        raise InputError(f"step must be above 0 and at most 1, not {step:g}")
    return choose(weight_scores(examples, mode=mode, items=items, step=step), grades, faithful, tolerance)


@dataclass(frozen=True, eq=False)
class WeightScores:
    """The scores of n examples, (g, n), under each of the g weights of the grid."""

    grid: tuple[Weights, ...]
    scores: Array


def weight_scores(
    examples: Sequence[Example], *, mode: Mode = "default", items: Items | None = None, step: float = 0.05
) -> WeightScores:
    """Score every example once under every weight of the grid, for one fit or for many on parts of the examples."""
    grid = tuple(_grid(step))
    scorers = [_scorer(example, mode, items) for example in examples]
    return WeightScores(grid, np.array([[scorer(weights) for scorer in scorers] for weights in grid]))


def choose(
    table: WeightScores, grades: Array, faithful: NDArray[np.bool_], tolerance: float, chosen: NDArray[np.bool_] | None = None
) -> Calibration:
    """What `calibrate` says of the chosen examples, all when None: (n,) grades and whether each counts as faithful."""
    part = np.ones(len(grades), dtype=bool) if chosen is None else chosen
    tried = []
    for weights, row in zip(table.grid, table.scores[:, part], strict=True):
        auc, spearman = float(roc_auc_score(faithful[part], row)), spearman_of(row, grades[part])
        tried.append(((auc + spearman) / 2, weights, auc, spearman, row))
    best = max(objective for objective, *_ in tried)
    _, weights, auc, spearman, scores = max((t for t in tried if t[0] >= best - tolerance), key=lambda t: (t[1][0], t[0]))
    threshold, accuracy = best_threshold(faithful[part], scores)
    return Calibration(weights, threshold, auc, spearman, accuracy)


def _scorer(example: Example, mode: Mode, items: Items | None) -> Callable[[Weights], float]:
    references = References.of(example.references, example.history)
    if mode == "default":
        parts = candidate_parts(example.candidate, references, example.question)
        return lambda weights: parts.score(references, weights)[0]
    # The score of each corner of the simplex is one of its parts.
    rows = np.array(
        [
            [faith_score(example.candidate, r.text, weights=corner, items=items or "tokens").score for corner in _CORNERS]
            for r in references.references
        ]
    ).reshape(-1, 3)
    return lambda weights: float((rows @ np.array(weights)).max(initial=0.0))


def _grid(step: float) -> list[Weights]:
    n = round(1 / step)
    return [(a / n, b / n, (n - a - b) / n) for a in range(n, -1, -1) for b in range(n - a, -1, -1)]


def spearman_of(scores: Array, grades: Array) -> float:
    """Spearman's rank correlation; 0 where either is constant."""
    if (scores == scores[0]).all() or (grades == grades[0]).all():
        return 0.0
    return float(spearmanr(scores, grades).statistic)


def best_threshold(faithful: NDArray[np.bool_], scores: Array, shares: Array | None = None) -> tuple[float, float]:
    """The threshold with the best balanced accuracy, and that accuracy; "above" it is faithful.

    Args:
        faithful: Of each example, (n,).
        scores: In [0, 1], (n,).
        shares: What each example counts, (n,); the same for all when None.

    Example:
        >>> best_threshold(np.array([True, True, False]), np.array([0.9, 0.5, 0.1]))
        (0.3, 1.0)
    """
    false_rate, true_rate, thresholds = roc_curve(faithful, scores, sample_weight=shares, drop_intermediate=False)
    best = int((true_rate - false_rate).argmax())
    lowest_faithful = min(float(thresholds[best]), 1.0)
    below = scores[scores < lowest_faithful]
    # Half-way to the next score below, so that "above T" keeps the lowest faithful one.
    threshold = (lowest_faithful + float(below.max())) / 2 if len(below) else 0.0
    return threshold, float((true_rate[best] + 1 - false_rate[best]) / 2)
