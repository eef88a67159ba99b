"""Fits the weights of `answer_relevance` on questions whose right answer is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from langgraph_convcoa.evaluation.reports.kit import Report, Table
from langgraph_convcoa.evaluation.verification.guesses import GuessCase, load_cases
from langgraph_convcoa.verification.calibration import best_threshold
from langgraph_convcoa.verification.mrfs import GUESS_THRESHOLD, polar_claim
from langgraph_convcoa.verification.references import segments
from langgraph_convcoa.verification.relevance import Guess, answer_relevance, places_of, relevance_of
from langgraph_convcoa.verification.support import claim_parts

FIT_SAMPLE = 3000
"""Questions of each data set at most."""
FIT_SEED = 1
_PENALTY = 0.1
_PAIRS_OF_A_SET = 1000.0
_DIGITS = 3


@dataclass(frozen=True)
class GuessFit(Report):
    """Weights of the features of `answer_relevance`, the bias such that `GUESS_THRESHOLD` has the best balanced accuracy, and
    their sources: data set, its part, how many questions.
    """

    sources: tuple[tuple[str, str, int], ...]
    weights: dict[str, float]

    def tables(self) -> tuple[Table, ...]:
        taken = "; ".join(f"{name}: {part}, {n} questions" for name, part, n in self.sources)
        return (Table("", ("feature", "weight"), [[name, f"{w:.{_DIGITS}f}"] for name, w in self.weights.items()], taken),)


def fit_guesses(folders: Sequence[str | Path], *, n: int = FIT_SAMPLE, seed: int = FIT_SEED) -> GuessFit:
    """Fit a logistic regression of right answers against other answers of the same passage, on the training parts alone.

    Each data set counts the same, however many of its `n` questions it has. Where the other answer or the right one is a bare
    yes or no nothing can be fitted: those are judged by another rule.

    Raises:
        InputError: As `load_cases`.
    """
    sources: list[tuple[str, str, int]] = []
    rows: list[dict[str, float]] = []
    shares: list[float] = []
    for folder in folders:
        cases, name = load_cases(folder, n=n, seed=seed, part="train")
        cases = [case for case in cases if not any(polar_claim(guess, case.question) for guess in case.guesses[:2])]
        sources.append((Path(folder).name, name, len(cases)))
        rows += [_features_of(case, which) for case in cases for which in (0, 1)]
        shares += [_PAIRS_OF_A_SET / max(len(cases), 1)] * (2 * len(cases))
    names = sorted({name for row in rows for name in row} - {"bias"})
    values = np.array([[row.get(name, 0.0) for name in names] for row in rows])
    right = np.arange(len(rows)) % 2 == 0
    weights = _fit(values, right, np.array(shares), names)
    found = np.array([answer_relevance(row, weights) for row in rows])
    best, _ = best_threshold(right, found, np.array(shares))
    # The score is no higher than the support, for which T has a meaning of its own: the probability is moved to it.
    weights["bias"] = round(weights["bias"] + float(logit(GUESS_THRESHOLD) - logit(best)), _DIGITS)
    return GuessFit(tuple(sources), weights)


def _features_of(case: GuessCase, which: int) -> dict[str, float]:
    """The features of one of a case's guesses, at the place of the evidence where it stands best."""
    text, references = case.guesses[which], case.references
    claims = segments(text)
    parts = [claim_parts(claim, references) for claim in claims]
    guess = Guess.of(text, claims, case.question)
    relevances = [relevance_of(reference, guess.asked, guess.told) for reference in references.references]
    gates = np.concatenate([relevance.gates for relevance in relevances])
    places = list(places_of(guess, parts, references, relevances))
    return max(places, key=lambda place: parts[place.claim][place.segment, 0] * gates[place.segment]).features


def _fit(
    values: NDArray[np.float64], right: NDArray[np.bool_], shares: NDArray[np.float64], names: Sequence[str]
) -> dict[str, float]:
    scaler = StandardScaler().fit(values, sample_weight=shares)
    model = LogisticRegression(C=_PENALTY, max_iter=3000).fit(scaler.transform(values), right, sample_weight=shares)
    slopes = model.coef_[0] / scaler.scale_
    bias = float(model.intercept_[0] - slopes @ scaler.mean_)
    found = {name: round(float(slope), _DIGITS) for name, slope in zip(names, slopes, strict=True)}
    return {"bias": round(bias, _DIGITS), **{name: weight for name, weight in found.items() if weight}}
