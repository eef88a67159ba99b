"""Whether verification agrees with people: Conv-MRFS against human faithfulness ratings of answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Group
from rich.table import Table

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.verification.faithfulness_data import Judgement, load_judgements
from langgraph_convcoa.evaluation.verification.faithfulness_statistics import (
    Agreement,
    Bin,
    agreements,
    rater_agreement,
    reliability,
)
from langgraph_convcoa.retrieval.progress import track
from langgraph_convcoa.verification.calibration import Example, choose, weight_scores
from langgraph_convcoa.verification.faith_score import PAPER_THRESHOLD, Weights, faith_score
from langgraph_convcoa.verification.mrfs import THRESHOLD, conv_mrfs
from langgraph_convcoa.verification.references import References

FAITHFUL_FROM = 3.0
RELEASED_THRESHOLD = 2.0
DEFAULT, PLAIN, FITTED = "default", "plain (papers)", "default, fitted on the others"
_STEP = 0.1
_TOLERANCE = 0.005
_BAR = 20


@dataclass(frozen=True)
class FaithfulnessRow:
    """A method: how well its scores order the answers, and its balanced accuracy at its threshold (None: fitted each time)."""

    method: str
    n: int
    agreement: Agreement
    threshold: float | None
    balanced_accuracy: float


@dataclass(frozen=True)
class FaithfulnessReport:
    """Agreement with human ratings.

    Attributes:
        rows: Every method on the whole file, the gains over the papers' plain form. Of "default, fitted on the others" weights
            and T are fitted once for each conversation, on all others; its figures are of the pooled scores.
        bins: The default's scores against the ratings.
        raters: Mean Spearman of each rater with the mean of the others: how far people agree; None without their ratings.
        conversations: How many conversations the answers are of.
        faithful_from: The lowest rating that counts as faithful.
        suggested_weights: alpha, beta, gamma, fitted on all answers.
        suggested_threshold: T with these weights.
    """

    rows: tuple[FaithfulnessRow, ...]
    bins: tuple[Bin, ...]
    raters: float | None
    conversations: int
    faithful_from: float
    suggested_weights: Weights
    suggested_threshold: float

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON data."""
        return asdict(self)

    def __rich__(self) -> Group:
        people = "" if self.raters is None else f"one rater against the others: Spearman {self.raters:.2f}; "
        weights = ", ".join(f"{weight:g}" for weight in self.suggested_weights)
        caption = (
            f"{people}{self.conversations} conversations; faithful from {self.faithful_from:g}; suggested: weights {weights}, "
            f"T = {self.suggested_threshold:.2f}"
        )
        table = Table(
            "method", "n", "AUC", "Spearman", "AUC over plain", "Spearman over plain", "T", "bal. acc.", caption=caption
        )
        for r in self.rows:
            a = r.agreement
            threshold = "fitted" if r.threshold is None else f"{r.threshold:.2f}"
            figures = (str(figure) for figure in (a.auc, a.spearman, a.auc_gain, a.spearman_gain))
            table.add_row(r.method, str(r.n), *figures, threshold, f"{r.balanced_accuracy:.3f}")
        curve = Table("default score", "n", "mean score", "mean rating", "faithful", "", title="reliability")
        for b in self.bins:
            bar = "#" * round(_BAR * b.faithful)
            means = (f"{b.mean_score:.2f}", f"{b.mean_rating:.2f}", f"{b.faithful:.2f}")
            curve.add_row(f"{b.low:.2f} to {b.high:.2f}", str(b.n), *means, bar)
        return Group(table, curve)


def evaluate_faithfulness(
    file: str | Path,
    *,
    history: bool = False,
    faithful_from: float = FAITHFUL_FROM,
    bins: int = 5,
    seed: int = 0,
    progress: bool = False,
) -> FaithfulnessReport:
    """Compare the forms of Conv-MRFS with human ratings of answers; no model is asked.

    Args:
        file: Judgements, as `load_judgements` reads them.
        history: Whether the earlier answers of a conversation count as references too.
        faithful_from: The lowest rating that counts as faithful.
        bins: Of the reliability curve.
        seed: Of the intervals.
        progress: Show bars.

    Raises:
        InputError: The file cannot be read, a row is wrong, or there are not two conversations with answers on both sides.
    """
    if bins < 1:
        raise InputError(f"bins must be at least 1, not {bins}.")
    judged = load_judgements(file)
    grades = np.array([judgement.grade for judgement in judged])
    faithful = grades >= faithful_from
    conversations = np.array([judgement.conversation for judgement in judged], dtype=object)
    names = sorted(set(conversations))
    if any(len(set(faithful[conversations != name])) < 2 for name in names) or len(names) < 2:
        raise InputError(
            f"{file} needs conversations with answers rated below {faithful_from:g} and others, whichever one is left out; "
            "add judged conversations or give another --faithful-from."
        )
    told = [judgement.history if history else () for judgement in judged]
    prepared = [References.of(judgement.passages, turns) for judgement, turns in zip(judged, told, strict=True)]
    scores = {
        name: np.array([score(j.answer, references) for j, references in zip(judged, prepared, strict=True)])
        for name, _, score in _METHODS
    }
    table = weight_scores(_examples(judged, told), step=_STEP)
    fitted, kept = np.zeros(len(judged)), np.zeros(len(judged), dtype=bool)
    with track(progress, len(names), "Leaving conversations out") as advance:
        for name in names:
            out = conversations == name
            found = choose(table, grades, faithful, _TOLERANCE, ~out)
            fitted[out] = table.scores[table.grid.index(found.weights)][out]
            kept[out] = fitted[out] > found.threshold
            advance(1)
    scores[FITTED] = fitted
    verdicts: dict[str, tuple[float | None, NDArray[np.bool_]]] = {n: (t, scores[n] > t) for n, t, _ in _METHODS}
    verdicts[FITTED] = (None, kept)
    found = choose(table, grades, faithful, _TOLERANCE)
    agreement = agreements(scores, grades, faithful_from, list(conversations), baseline=PLAIN, seed=seed)
    return FaithfulnessReport(
        rows=tuple(
            FaithfulnessRow(name, len(judged), agreement[name], threshold, _balanced(faithful, verdict))
            for name, (threshold, verdict) in verdicts.items()
        ),
        bins=tuple(reliability(scores[DEFAULT], grades, faithful_from, bins)),
        raters=rater_agreement([judgement.ratings for judgement in judged]),
        conversations=len(names),
        faithful_from=faithful_from,
        suggested_weights=found.weights,
        suggested_threshold=found.threshold,
    )


def _examples(judged: Sequence[Judgement], told: Sequence[Sequence[tuple[str, str]]]) -> list[Example]:
    return [Example(j.answer, j.passages, "", turns) for j, turns in zip(judged, told, strict=True)]


def _balanced(faithful: NDArray[np.bool_], verdict: NDArray[np.bool_]) -> float:
    return float((verdict[faithful].mean() + (~verdict[~faithful]).mean()) / 2)


def _default(answer: str, references: References) -> float:
    return conv_mrfs(answer, references).score


def _plain(answer: str, references: References) -> float:
    return conv_mrfs(answer, references, mode="plain").score


def _plain_content(answer: str, references: References) -> float:
    return conv_mrfs(answer, references, mode="plain", items="content").score


def _released(answer: str, references: References) -> float:
    """What the authors' released code computes: weights 0.3, 0.3, 0.4 with the average word length in letters."""
    found = [faith_score(answer, reference.text, items="tokens") for reference in references.references]
    return max((0.3 * s.precision + 0.3 * s.recall + 0.4 * s.average_word_length for s in found), default=0.0)


_METHODS: tuple[tuple[str, float, Callable[[str, References], float]], ...] = (
    (DEFAULT, THRESHOLD, _default),
    (PLAIN, PAPER_THRESHOLD, _plain),
    ("plain, content words", PAPER_THRESHOLD, _plain_content),
    ("authors' released code", RELEASED_THRESHOLD, _released),
)
