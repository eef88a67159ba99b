"""Whether verification agrees with people: Conv-MRFS against human faithfulness ratings of answers."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.verification.calibration import Example, calibrate
from langgraph_convcoa.verification.faith_score import PAPER_THRESHOLD, faith_score
from langgraph_convcoa.verification.mrfs import THRESHOLD, conv_mrfs
from langgraph_convcoa.verification.references import References

Scores = NDArray[np.float64]
FAITHFUL_FROM = 3.0
RELEASED_THRESHOLD = 2.0


@dataclass(frozen=True)
class FaithfulnessRow:
    """One method on one part of the ratings; `balanced_accuracy` is at the method's own threshold."""

    method: str
    part: str
    n: int
    auc: float
    spearman: float
    threshold: float
    balanced_accuracy: float


@dataclass(frozen=True)
class FaithfulnessReport:
    """Agreement with human ratings.

    Attributes:
        rows: Every method on the whole file and on two halves that share no conversation.
        raters: Mean Spearman of each rater with the mean of the others: how far people agree; None without their ratings.
        fitted_threshold: T as `calibrate` finds it on the first half.
        fitted_weights: alpha, beta, gamma as it finds them.
    """

    rows: tuple[FaithfulnessRow, ...]
    raters: float | None
    fitted_threshold: float
    fitted_weights: tuple[float, float, float]

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON data."""
        return asdict(self)

    def __rich__(self) -> Table:
        people = "" if self.raters is None else f"one rater against the others: Spearman {self.raters:.2f}; "
        caption = f"{people}calibrated on the first half: T = {self.fitted_threshold:.2f}, weights {self.fitted_weights}"
        table = Table("method", "part", "n", "AUC", "Spearman", "T", "balanced accuracy", caption=caption)
        for r in self.rows:
            figures = (f"{r.auc:.3f}", f"{r.spearman:.3f}", f"{r.threshold:.2f}", f"{r.balanced_accuracy:.3f}")
            table.add_row(r.method, r.part, str(r.n), *figures)
        return table


def evaluate_faithfulness(file: str | Path, *, history: bool = False) -> FaithfulnessReport:
    """Compare the forms of Conv-MRFS with human ratings of answers.

    Args:
        file: Judgements, a JSON object a line (.jsonl or .jsonl.gz): conversation_id, turns [{speaker, text}], passages
            [text], response, faithfulness (1 to 4), ratings.
        history: Whether the earlier answers of a conversation count as references too.

    Raises:
        InputError: The file cannot be read or holds no judgements on both sides of a rating of 3.
    """
    judged = list(_rows(Path(file)))
    try:
        grades = np.array([float(row["faithfulness"]) for row in judged])
        conversations = [str(row["conversation_id"]) for row in judged]
        earlier = [_history(row["turns"]) if history else [] for row in judged]
        prepared = [References.of(row["passages"], turns) for row, turns in zip(judged, earlier, strict=True)]
        answers = [str(row["response"]) for row in judged]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{file} does not hold judgements: a field is missing or wrong ({error})") from error
    first = np.isin(conversations, sorted(set(conversations))[::2])
    parts = {"all": np.ones(len(judged), dtype=bool), "first half": first, "second half": ~first}
    for part, chosen in parts.items():
        if len(set(grades[chosen] >= FAITHFUL_FROM)) < 2:
            raise InputError(
                f"{file}: {part} needs answers rated below {FAITHFUL_FROM:g} and others; add judged conversations"
            )
    rows = []
    for method, threshold, score in _METHODS:
        scores = np.array([score(answer, references) for answer, references in zip(answers, prepared, strict=True)])
        rows += [_faithfulness_row(method, part, threshold, scores[c], grades[c]) for part, c in parts.items()]
    examples = [Example(a, row["passages"], "", h) for a, row, h in zip(answers, judged, earlier, strict=True)]
    fitted = calibrate(
        [example for example, chosen in zip(examples, first, strict=True) if chosen],
        grades[first].tolist(),
        faithful_from=FAITHFUL_FROM,
    )
    return FaithfulnessReport(tuple(rows), _agreement(judged), fitted.threshold, fitted.weights)


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
    ("default", THRESHOLD, _default),
    ("plain (papers)", PAPER_THRESHOLD, _plain),
    ("plain, content words", PAPER_THRESHOLD, _plain_content),
    ("authors' released code", RELEASED_THRESHOLD, _released),
)


def _faithfulness_row(method: str, part: str, threshold: float, scores: Scores, grades: Scores) -> FaithfulnessRow:
    faithful = grades >= FAITHFUL_FROM
    constant = bool((scores == scores[0]).all())
    return FaithfulnessRow(
        method=method,
        part=part,
        n=len(scores),
        auc=float(roc_auc_score(faithful, scores)),
        spearman=0.0 if constant else float(spearmanr(scores, grades).statistic),
        threshold=threshold,
        balanced_accuracy=float(((scores[faithful] > threshold).mean() + (scores[~faithful] <= threshold).mean()) / 2),
    )


def _history(turns: Sequence[dict[str, str]]) -> list[tuple[str, str]]:
    """Pairs of question and answer before the last question."""
    pairs = []
    question = ""
    for turn in turns[:-1]:
        if turn["speaker"] == "user":
            question = turn["text"]
        else:
            pairs.append((question, turn["text"]))
    return pairs


def _agreement(judged: Sequence[dict[str, Any]]) -> float | None:
    """Mean Spearman of one rater with the mean of the others, over answers that as many people rated as most were."""
    ratings = [row.get("ratings") or [] for row in judged]
    raters = max(map(len, ratings))
    full = np.array([r for r in ratings if len(r) == raters], dtype=np.float64)
    if raters < 2 or len(full) < 2:
        return None
    return float(np.mean([spearmanr(full[:, i], np.delete(full, i, axis=1).mean(axis=1)).statistic for i in range(raters)]))


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
            for line in lines:
                if line.strip():
                    yield json.loads(line)
    except (OSError, EOFError, ValueError) as error:
        raise InputError(f"cannot read {path}; give a .jsonl or .jsonl.gz file of the evaluation data ({error})") from error
