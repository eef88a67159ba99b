"""Agreement of verification with people: Conv-MRFS against human faithfulness ratings of answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from langgraph_convcoa.datasets.rows import json_lines
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.reports.kit import Report, Table, new_figure, shown, style
from langgraph_convcoa.evaluation.verification.agreement import Agreement, Bin, agreements, rater_agreement, reliability
from langgraph_convcoa.retrieval.progress import track
from langgraph_convcoa.verification.calibration import Example, choose, weight_scores
from langgraph_convcoa.verification.faith_score import PAPER_THRESHOLD, Weights, faith_score
from langgraph_convcoa.verification.mrfs import THRESHOLD, conv_mrfs
from langgraph_convcoa.verification.references import References

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DEFAULT, _PLAIN, _FITTED = "default", "plain (papers)", "default, fitted on the others"
_RELEASED_THRESHOLD = 2.0
_STEP = 0.1
_TOLERANCE = 0.005
_BINS = 5


class _Turn(BaseModel):
    speaker: Any = None
    text: str


class _Row(BaseModel):
    """A row of a file of judgements."""

    model_config = ConfigDict(strict=True)

    passages: list[str]
    response: str
    rating: float = Field(validation_alias=AliasChoices("faithfulness", "rating"), allow_inf_nan=False)
    ratings: list[float] | None = None
    turns: list[_Turn] | None = None
    conversation_id: Any = None


@dataclass(frozen=True)
class Judgement:
    """An answer, the passages that it was to be faithful to, earlier pairs of question and answer, its mean rating, and those
    of each person where they are known.
    """

    conversation: str
    answer: str
    passages: tuple[str, ...]
    history: tuple[tuple[str, str], ...]
    grade: float
    ratings: tuple[float, ...] = ()


def load_judgements(file: str | Path) -> list[Judgement]:
    """Read judgements, a JSON object a line (.jsonl or .jsonl.gz).

    A row has passages (texts), response, and its rating as `faithfulness`, or as `rating`; where known conversation_id (else a
    conversation of its own), turns ({speaker, text}) and ratings (a number for each person).

    Raises:
        InputError: The file cannot be read, or a row lacks a field or has a wrong one; the message names the line.
    """
    found = []
    for data in json_lines(Path(file)):
        try:
            row = _Row.model_validate(data)
        except ValidationError as error:
            first = error.errors()[0]
            raise data.error(f"{'.'.join(map(str, first['loc']))}: {first['msg']}.") from None
        history, question = [], ""
        for turn in (row.turns or [])[:-1]:
            if turn.speaker == "user":
                question = turn.text
            else:
                history.append((question, turn.text))
        conversation = str(row.conversation_id or data.where)
        ratings = tuple(row.ratings or ())
        found.append(Judgement(conversation, row.response, tuple(row.passages), tuple(history), row.rating, ratings))
    return found


@dataclass(frozen=True)
class FaithfulnessRow:
    """A method: how well its scores order the answers, and its balanced accuracy at its threshold (None: fitted each time)."""

    method: str
    n: int
    agreement: Agreement
    threshold: float | None
    balanced_accuracy: float


@dataclass(frozen=True)
class FaithfulnessReport(Report):
    """Agreement with human ratings: every method on the whole file, gains over the papers' plain form.

    Of "default, fitted on the others" weights and T are fitted once for each conversation, on all others; its figures are of
    the pooled scores. `bins` hold the default's scores; `raters` is the mean Spearman of a rater with the mean of the others,
    None without their ratings; the suggested weights (alpha, beta, gamma) and T are fitted on all answers.
    """

    rows: tuple[FaithfulnessRow, ...]
    bins: tuple[Bin, ...]
    raters: float | None
    conversations: int
    faithful_from: float
    suggested_weights: Weights
    suggested_threshold: float

    def tables(self) -> tuple[Table, ...]:
        people = "" if self.raters is None else f"one rater against the others: Spearman {self.raters:.2f}; "
        weights = ", ".join(f"{weight:g}" for weight in self.suggested_weights)
        note = (
            f"{people}{self.conversations} conversations; faithful from {self.faithful_from:g}; suggested: weights {weights}, "
            f"T = {self.suggested_threshold:.2f}"
        )
        rows = []
        for r in self.rows:
            a = r.agreement
            threshold = "fitted" if r.threshold is None else f"{r.threshold:.2f}"
            figures = (str(figure) for figure in (a.auc, a.spearman, a.auc_gain, a.spearman_gain))
            rows.append([r.method, str(r.n), *figures, threshold, shown(r.balanced_accuracy)])
        columns = ("method", "n", "AUC", "Spearman", "AUC over plain", "Spearman over plain", "T", "bal. acc.")
        curve = []
        for b in self.bins:
            means = (f"{value:.2f}" for value in (b.mean_score, b.mean_rating, b.faithful))
            curve.append([f"{b.low:.2f} to {b.high:.2f}", str(b.n), *means])
        named = ("default score", "n", "mean score", "mean rating", "faithful")
        return Table("", columns, rows, note), Table("reliability", named, curve)

    def figure(self) -> Figure:
        """The mean rating and the share of faithful answers against the score."""
        figure = new_figure(8, 3.5)
        scores = [b.mean_score for b in self.bins]
        ratings, shares = [b.mean_rating for b in self.bins], [b.faithful for b in self.bins]
        for place, (label, values) in enumerate([("mean rating", ratings), ("share faithful", shares)], start=1):
            axes = figure.add_subplot(1, 2, place)
            axes.plot(scores, values, "o-")
            axes.set(xlabel="default score", ylabel=label, xlim=(0, 1))
            style(axes)
        return figure


def evaluate_faithfulness(
    file: str | Path, *, history: bool = False, faithful_from: float = 3.0, seed: int = 0, progress: bool = False
) -> FaithfulnessReport:
    """Compare the forms of Conv-MRFS with human ratings of answers (`load_judgements`); no model is asked.

    With `history` the earlier answers of a conversation count as references too; `faithful_from` is the lowest rating that
    counts as faithful; `seed` is of the intervals.

    Raises:
        InputError: The file cannot be read, a row is wrong, or there are not two conversations with answers on both sides.
    """
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
    examples = [Example(j.answer, j.passages, "", turns) for j, turns in zip(judged, told, strict=True)]
    table = weight_scores(examples, step=_STEP)
    fitted, kept = np.zeros(len(judged)), np.zeros(len(judged), dtype=bool)
    with track(progress, len(names), "Leaving conversations out") as advance:
        for name in names:
            out = conversations == name
            found = choose(table, grades, faithful, _TOLERANCE, ~out)
            fitted[out] = table.scores[table.grid.index(found.weights)][out]
            kept[out] = fitted[out] > found.threshold
            advance(1)
    scores[_FITTED] = fitted
    verdicts: dict[str, tuple[float | None, NDArray[np.bool_]]] = {n: (t, scores[n] > t) for n, t, _ in _METHODS}
    verdicts[_FITTED] = (None, kept)
    rows = []
    found = choose(table, grades, faithful, _TOLERANCE)
    agreement = agreements(scores, grades, faithful_from, list(conversations), baseline=_PLAIN, seed=seed)
    for name, (threshold, verdict) in verdicts.items():
        balanced = float((verdict[faithful].mean() + (~verdict[~faithful]).mean()) / 2)
        rows.append(FaithfulnessRow(name, len(judged), agreement[name], threshold, balanced))
    bins = tuple(reliability(scores[_DEFAULT], grades, faithful_from, _BINS))
    raters = rater_agreement([judgement.ratings for judgement in judged])
    return FaithfulnessReport(tuple(rows), bins, raters, len(names), faithful_from, found.weights, found.threshold)


def _released(answer: str, references: References) -> float:
    """The score of the authors' released code: weights 0.3, 0.3, 0.4 with the average word length in letters."""
    found = [faith_score(answer, reference.text, items="tokens") for reference in references.references]
    return max((0.3 * s.precision + 0.3 * s.recall + 0.4 * s.average_word_length for s in found), default=0.0)


_METHODS: tuple[tuple[str, float, Callable[[str, References], float]], ...] = (
    (_DEFAULT, THRESHOLD, lambda *pair: conv_mrfs(*pair).score),
    (_PLAIN, PAPER_THRESHOLD, lambda *pair: conv_mrfs(*pair, mode="plain").score),
    ("plain, content words", PAPER_THRESHOLD, lambda *pair: conv_mrfs(*pair, mode="plain", items="content").score),
    ("authors' released code", _RELEASED_THRESHOLD, _released),
)
