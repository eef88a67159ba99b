"""Whether verification tells right guesses from wrong ones that stand in the same passage."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from sklearn.metrics import roc_auc_score

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.datasets import Query, load_dataset
from langgraph_convcoa.text import content_words
from langgraph_convcoa.verification.calibration import best_threshold
from langgraph_convcoa.verification.faith_score import PAPER_THRESHOLD
from langgraph_convcoa.verification.mrfs import GUESS_THRESHOLD, Mode, conv_mrfs
from langgraph_convcoa.verification.references import References

Scores = NDArray[np.float64]


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
class GuessReport:
    """Right answers told from wrong ones.

    Attributes:
        rows: Every form of the score against both kinds of wrong guesses.
        fitted_threshold: T of the default form with the best balanced accuracy on these questions, right answers against
            others of the same passage; `GUESS_THRESHOLD` is this figure for `split="train", n=3000`.
    """

    rows: tuple[GuessRow, ...]
    fitted_threshold: float

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON data."""
        return asdict(self)

    def __rich__(self) -> Table:
        caption = f"best threshold of the default form on these questions: T = {self.fitted_threshold:.2f}"
        table = Table("method", "wrong guesses", "n", "AUC", "T", "right kept", "wrong rejected", caption=caption)
        for r in self.rows:
            figures = (f"{r.auc:.3f}", f"{r.threshold:.2f}", f"{r.right_kept:.3f}", f"{r.wrong_rejected:.3f}")
            table.add_row(r.method, r.wrong, str(r.n), *figures)
        return table


@dataclass(frozen=True)
class _Case:
    """A question, its evidence, and three guesses: right, another answer of the passage, the answer to another question."""

    references: References
    question: str
    guesses: tuple[str, str, str]


def evaluate_guesses(
    folder: str | Path, *, n: int = 300, seed: int = 0, split: str = "dev", distractors: int = 0
) -> GuessReport:
    """Tell the right answer of a question from another answer of the same passage, and from answers to other questions.

    Args:
        folder: Queries and corpus, as `load_dataset` reads them; the queries need an answer and a gold passage.
        n: How many questions; those without a second answer in their passage are passed over.
        seed: Which questions, and which wrong answers.
        split: The split of the questions.
        distractors: Further passages of the same title beside the right one.

    Raises:
        InputError: A file cannot be read or holds fewer than two such questions.
    """
    if n < 2:
        raise InputError(f"n must be at least 2, not {n}.")
    data = load_dataset(folder, split=split)
    corpus = {document.id: document for document in data.corpus}
    titles = defaultdict(list)
    for document in data.corpus:
        titles[document.metadata.get("title")].append(document)
    rng = random.Random(seed)  # noqa: S311
    cases: list[_Case] = []
    for query, other, unrelated in _wrong_answers([q for q in data.queries if q.answer and set(q.gold) & corpus.keys()], rng):
        passage = corpus[next(identity for identity in query.gold if identity in corpus)]
        beside = [document for document in titles[passage.metadata.get("title")] if document is not passage]
        evidence = References.of([passage, *rng.sample(beside, min(distractors, len(beside)))])
        cases.append(_Case(evidence, query.question, (query.answer, other, unrelated)))
        if len(cases) == n:
            break
    if len(cases) < 2:
        raise InputError(
            f"{folder} holds no two answered questions on one passage in the split {split!r}; choose another split"
        )
    rows = []
    fitted = 0.0
    forms: tuple[tuple[str, float, Mode], ...] = (
        ("default", GUESS_THRESHOLD, "default"),
        ("plain (papers)", PAPER_THRESHOLD, "plain"),
    )
    for method, threshold, mode in forms:
        right, same, others = (_scores(cases, which, mode) for which in range(3))
        if mode == "default":
            fitted, _ = best_threshold(np.repeat([True, False], len(right)), np.concatenate([right, same]))
        rows.append(_guess_row(method, "another answer of the passage", threshold, right, same))
        rows.append(_guess_row(method, "an answer to another question", threshold, right, others))
    return GuessReport(tuple(rows), fitted)


def _guess_row(method: str, wrong: str, threshold: float, right: Scores, other: Scores) -> GuessRow:
    labels = np.repeat([True, False], [len(right), len(other)])
    return GuessRow(
        method=method,
        wrong=wrong,
        n=len(right),
        auc=float(roc_auc_score(labels, np.concatenate([right, other]))),
        threshold=threshold,
        right_kept=float((right > threshold).mean()),
        wrong_rejected=float((other <= threshold).mean()),
    )


def _scores(cases: Sequence[_Case], which: int, mode: Mode) -> Scores:
    return np.array([conv_mrfs(c.guesses[which], c.references, question=c.question, mode=mode).score for c in cases])


def _wrong_answers(queries: Sequence[Query], rng: random.Random) -> Iterator[tuple[Query, str, str]]:
    """Questions in random order, each with an answer of the same passage that shares no content word, and a random one."""
    answers = defaultdict(list)
    for query in queries:
        answers[query.gold[0]].append(query.answer)
    order = list(queries)
    rng.shuffle(order)
    for query in order:
        right = set(content_words(query.answer))
        others = [other for other in answers[query.gold[0]] if content_words(other) and right.isdisjoint(content_words(other))]
        if right and others:
            yield query, rng.choice(others), rng.choice(queries).answer
