"""Whether verification tells right guesses from wrong ones that stand in the same passage, and what that saves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Group
from rich.table import Table
from sklearn.metrics import roc_auc_score

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.verification.guess_cases import GuessCase, load_cases
from langgraph_convcoa.evaluation.verification.guess_savings import RIGHT_SHARES, Saving, Scores, savings, within_error
from langgraph_convcoa.retrieval.progress import track
from langgraph_convcoa.verification.calibration import best_threshold
from langgraph_convcoa.verification.faith_score import PAPER_THRESHOLD
from langgraph_convcoa.verification.mrfs import GUESS_THRESHOLD, Mode, conv_mrfs

SAME, NEW, OTHER = "another answer of the passage", "the same, not given before", "an answer to another question"
ERRORS = (0.05, 0.1, 0.2)
"""Error rates that a threshold is given for."""
_FORMS: tuple[tuple[str, float, Mode], ...] = (
    ("default", GUESS_THRESHOLD, "default"),
    ("plain (papers)", PAPER_THRESHOLD, "plain"),
)
_SHOWN = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


@dataclass(frozen=True)
class GuessRow:
    """One method: AUC of right guesses against wrong ones, and the shares that its threshold keeps and sends back rightly."""

    method: str
    wrong: str
    n: int
    auc: float
    threshold: float
    right_kept: float
    wrong_rejected: float


@dataclass(frozen=True)
class ErrorSaving:
    """The most that a method keeps with at most an error among the kept; None where no threshold does."""

    method: str
    error: float
    right_share: float
    best: Saving | None


@dataclass(frozen=True)
class GuessReport:
    """Right answers told from wrong ones.

    Attributes:
        data: The data set, and what of it was taken.
        rows: Every form of the score against each kind of wrong guesses.
        fitted_threshold: T of the default form with the best balanced accuracy on these questions, right answers against
            others of the same passage.
        savings: Of the default form, what each T keeps and how much of it is wrong, with wrong guesses of the same passage.
        at_error: Of every form, the most that is kept at a given error.
        correction_tokens: Mean tokens that a guess which is not kept adds to the prompt for corrections.
    """

    data: str
    rows: tuple[GuessRow, ...]
    fitted_threshold: float
    savings: tuple[Saving, ...]
    at_error: tuple[ErrorSaving, ...]
    correction_tokens: float

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON data."""
        return asdict(self)

    def __rich__(self) -> Group:
        caption = f"{self.data}. Best threshold of the default form on these questions: T = {self.fitted_threshold:.2f}"
        table = Table("method", "wrong guesses", "n", "AUC", "T", "right kept", "wrong rejected", caption=caption)
        for r in self.rows:
            figures = (f"{r.auc:.3f}", f"{r.threshold:.2f}", f"{r.right_kept:.3f}", f"{r.wrong_rejected:.3f}")
            table.add_row(r.method, r.wrong, str(r.n), *figures)
        buys = Table("right guesses", "T", "corrections saved", "wrong among kept", "right kept", title="what T buys, default")
        for s in self.savings:
            if s.threshold in (*_SHOWN, GUESS_THRESHOLD):
                error = "-" if s.error is None else f"{s.error:.3f}"
                buys.add_row(f"{s.right_share:.0%}", f"{s.threshold:.2f}", f"{s.kept:.3f}", error, f"{s.right_kept:.3f}")
        told = f"a correction takes {self.correction_tokens:.0f} tokens of the prompt, and its answer"
        given = Table(
            "method", "right guesses", "error at most", "corrections saved", "tokens saved a guess", "T", caption=told
        )
        given.title = "saved at a given error"
        for e in self.at_error:
            best = ("0", "0", "-")
            if e.best is not None:
                best = (f"{e.best.kept:.3f}", f"{e.best.kept * self.correction_tokens:.0f}", f"{e.best.threshold:.2f}")
            given.add_row(e.method, f"{e.right_share:.0%}", f"{e.error:.0%}", *best)
        return Group(table, buys, given)


def evaluate_guesses(
    folder: str | Path,
    *,
    n: int = 300,
    seed: int = 0,
    split: str | None = None,
    distractors: int = 0,
    history: bool = True,
    right_shares: Sequence[float] = RIGHT_SHARES,
    progress: bool = False,
) -> GuessReport:
    """Tell the right answer of a question from another answer of the same passage, and from answers to other questions.

    No model is asked. Where a data set has no split "dev", what is measured is the part of its conversations that the score
    was not fitted on.

    Args:
        folder: Queries and corpus, as `load_dataset` reads them; the queries need an answer and a gold passage.
        n: How many questions; those without a second answer in their passage are passed over.
        seed: Which questions, and which wrong answers.
        split: Only the queries of this split, all of them.
        distractors: Further passages of the same title beside the right one.
        history: Whether the answers of the conversation so far are told to the score, as a turn tells them.
        right_shares: Shares of right guesses that the savings are worked out for.
        progress: Show a bar.

    Raises:
        InputError: A file cannot be read or holds fewer than two such questions, or a share is not between 0 and 1.
    """
    if not all(0 < share < 1 for share in right_shares):
        raise InputError("the share of right guesses must be above 0 and below 1.")
    cases, name = load_cases(folder, n=n, seed=seed, split=split, distractors=distractors, history=history)
    new = np.array([case.new for case in cases])
    rows: list[GuessRow] = []
    at_error: list[ErrorSaving] = []
    scores: dict[str, tuple[Scores, Scores, Scores]] = {}
    with track(progress, len(_FORMS) * len(cases), "Scoring guesses") as advance:
        for method, _, mode in _FORMS:
            found = []
            for case in cases:
                found.append(_scores(case, mode))
                advance(1)
            columns = np.array(found)
            scores[method] = (columns[:, 0], columns[:, 1], columns[:, 2])
    for method, threshold, _ in _FORMS:
        right, same, others = scores[method]
        rows.append(_guess_row(method, SAME, threshold, right, same))
        if new.any() and not new.all():
            rows.append(_guess_row(method, NEW, threshold, right[new], same[new]))
        rows.append(_guess_row(method, OTHER, threshold, right, others))
        at_error += [
            ErrorSaving(method, e, share, within_error(right, same, e, share)) for share in right_shares for e in ERRORS
        ]
    right, same, _ = scores["default"]
    fitted, _ = best_threshold(np.repeat([True, False], len(right)), np.concatenate([right, same]))
    table = savings(right, same, right_shares=right_shares) + savings(
        right, same, right_shares=right_shares, thresholds=[GUESS_THRESHOLD]
    )
    table.sort(key=lambda s: (s.right_share, s.threshold))
    tokens = float(np.mean([case.prompt_tokens for case in cases]))
    return GuessReport(f"{Path(folder).name}, {name}", tuple(rows), fitted, tuple(table), tuple(at_error), tokens)


def _scores(case: GuessCase, mode: Mode) -> tuple[float, ...]:
    return tuple(conv_mrfs(guess, case.references, question=case.question, mode=mode).score for guess in case.guesses)


def _guess_row(method: str, wrong: str, threshold: float, right: Scores, other: Scores) -> GuessRow:
    labels: NDArray[np.bool_] = np.repeat([True, False], [len(right), len(other)])
    return GuessRow(
        method=method,
        wrong=wrong,
        n=len(right),
        auc=float(roc_auc_score(labels, np.concatenate([right, other]))),
        threshold=threshold,
        right_kept=float((right > threshold).mean()),
        wrong_rejected=float((other <= threshold).mean()),
    )
