"""Discrimination of right guesses from wrong ones of the same passage, and the corrections that a threshold saves."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from langchain_core.messages import HumanMessage
from langchain_core.messages.utils import count_tokens_approximately
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.datasets.read import load_dataset, load_part
from langgraph_convcoa.datasets.splits import Part, split_part
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.reports.kit import Report, Table, new_figure, shown, style
from langgraph_convcoa.reasoning.excerpts import excerpts
from langgraph_convcoa.reasoning.prompts import fence
from langgraph_convcoa.retrieval.progress import track
from langgraph_convcoa.text.words import content_words
from langgraph_convcoa.verification.calibration import best_threshold
from langgraph_convcoa.verification.faith_score import PAPER_THRESHOLD
from langgraph_convcoa.verification.mrfs import GUESS_THRESHOLD, Mode, conv_mrfs
from langgraph_convcoa.verification.references import References

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Scores = NDArray[np.float64]
REPORTED_SHARE = 0.65
"""Where a data set has no split "dev", this share of its conversations is reported on, and the others are fitted on."""
RIGHT_SHARES = (0.5, 0.8)
"""Of a model's guesses those that are right: even, and typical of a good model."""
_SAME, _NEW, _OTHER = "another answer of the passage", "the same, not given before", "an answer to another question"
_ERRORS = (0.05, 0.1, 0.2)
_STEPS = np.round(np.arange(0.05, 1.0, 0.05), 2).tolist()
_FORMS: Sequence[tuple[str, float, Mode]] = (
    ("default", GUESS_THRESHOLD, "default"),
    ("plain (papers)", PAPER_THRESHOLD, "plain"),
)
_SHOWN = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


@dataclass(frozen=True, eq=False)
class GuessCase:
    """A question, its evidence, and three guesses: the right answer, another of the passage, the answer to another question.

    `new` says that the conversation has not had the other answer of the passage; `prompt_tokens` are those, estimated, that a
    guess which is not kept adds to the prompt for corrections.
    """

    references: References
    question: str
    guesses: tuple[str, str, str]
    conversation: str
    new: bool
    prompt_tokens: int


def load_cases(
    folder: str | Path,
    *,
    n: int,
    seed: int = 0,
    split: str | None = None,
    part: Part = "dev",
    history: bool = True,
) -> tuple[list[GuessCase], str]:
    """At most `n` cases of a data set, in random order, and the name of the part of the data set that they are of.

    That is the split (`load_part`), or without one the part "dev", which is reported, or "train", which the score was fitted
    on (`REPORTED_SHARE`). Questions without an answer, or a second answer in their passage, are skipped; with `history` the
    score is told the answers of the conversation so far.

    Raises:
        InputError: A file cannot be read or holds fewer than two such questions.
    """
    if n < 2:
        raise InputError(f"n must be at least 2, not {n}.")
    if split is not None:
        data, name = load_part(folder, split)
    else:
        found = split_part(load_dataset(folder), part, dev_share=REPORTED_SHARE)
        data, name = found.dataset, found.name
    corpus = {document.id: document for document in data.corpus}
    rng = random.Random(seed)  # noqa: S311
    cases: list[GuessCase] = []
    for query, other, unrelated in _wrong_answers([q for q in data.queries if q.answer and set(q.gold) & corpus.keys()], rng):
        passage = corpus[next(identity for identity in query.gold if identity in corpus)]
        text = f"{query.question} {query.answer}\n{fence(excerpts([passage], [query.question]))}"
        cases.append(
            GuessCase(
                references=References.of([passage], query.history if history else ()),
                question=query.question,
                guesses=(query.answer, other, unrelated),
                conversation=query.conversation_id,
                new=other.casefold() not in {answer.casefold() for _, answer in query.history},
                prompt_tokens=count_tokens_approximately([HumanMessage(text)], extra_tokens_per_message=0),
            )
        )
        if len(cases) == n:
            break
    if len(cases) < 2:
        raise InputError(f"{folder} holds no two answered questions on one passage in {name}; choose another split.")
    return cases, name


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


@dataclass(frozen=True)
class GuessRow:
    """One method: AUC of right guesses against wrong ones by their relevance, and the shares of each that its verdict treats
    rightly. A sentence that the evidence supports is kept, also where it answers another question.
    """

    method: str
    wrong: str
    n: int
    auc: float
    threshold: float
    right_kept: float
    wrong_rejected: float


@dataclass(frozen=True)
class Saving:
    """Effect of threshold T where a share of the guesses is right: the share of all guesses that is kept (each saves its
    correction), the share of wrong ones among these (None where none is kept), the share of the right ones that is kept.
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
    error = round(bad / kept, 6) if kept else None
    return Saving(right_share, threshold, round(kept, 6), error, float((right > threshold).mean()))


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


@dataclass(frozen=True)
class ErrorSaving:
    """The most that a method keeps with at most an error among the kept; None where no threshold does."""

    method: str
    error: float
    right_share: float
    best: Saving | None


@dataclass(frozen=True)
class GuessReport(Report):
    """Discrimination of right answers from wrong ones, a row for each form of the score and kind of wrong guesses.

    `fitted_threshold` is T of the default form with the best balanced accuracy on these questions, right answers against
    others of the same passage; `savings` are of the same form and guesses, `at_error` of every form. `correction_tokens` is
    the mean of the tokens that a guess which is not kept adds to the prompt for corrections.
    """

    data: str
    rows: tuple[GuessRow, ...]
    fitted_threshold: float
    savings: tuple[Saving, ...]
    at_error: tuple[ErrorSaving, ...]
    correction_tokens: float

    def tables(self) -> tuple[Table, ...]:
        rows = [
            [r.method, r.wrong, str(r.n), shown(r.auc), f"{r.threshold:.2f}", shown(r.right_kept), shown(r.wrong_rejected)]
            for r in self.rows
        ]
        kept = [
            [f"{s.right_share:.0%}", f"{s.threshold:.2f}", shown(s.kept), shown(s.error) or "-", shown(s.right_kept)]
            for s in self.savings
            if s.threshold in (*_SHOWN, GUESS_THRESHOLD)
        ]
        given = []
        for e in self.at_error:
            best = ("0", "0", "-")
            if e.best is not None:
                best = (shown(e.best.kept), f"{e.best.kept * self.correction_tokens:.0f}", f"{e.best.threshold:.2f}")
            given.append([e.method, f"{e.right_share:.0%}", f"{e.error:.0%}", *best])
        columns = ("method", "wrong guesses", "n", "AUC", "T", "right kept", "wrong rejected")
        saved = ("right guesses", "T", "corrections saved", "wrong among kept", "right kept")
        at_error = ("method", "right guesses", "error at most", "corrections saved", "tokens saved a guess", "T")
        best_threshold = f"Best threshold of the default form on these questions: T = {self.fitted_threshold:.2f}"
        tokens = f"a correction takes {self.correction_tokens:.0f} tokens of the prompt, and its answer"
        return (
            Table("", columns, rows, f"{self.data}. {best_threshold}", left=2),
            Table("corrections that T saves, default", saved, kept, left=0),
            Table("saved at a given error", at_error, given, tokens),
        )

    def figure(self) -> Figure:
        """The corrections saved and the errors among the kept guesses against T."""
        figure = new_figure(8, 3.5)
        kept, errors = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
        for share in sorted({s.right_share for s in self.savings}):
            rows = [s for s in self.savings if s.right_share == share]
            kept.plot([s.threshold for s in rows], [s.kept for s in rows], label=f"{share:.0%} of guesses right")
            some = [(s.threshold, s.error) for s in rows if s.error is not None]
            errors.plot([t for t, _ in some], [e for _, e in some])
        kept.set(xlabel="T", ylabel="corrections saved", ylim=(0, 1))
        errors.set(xlabel="T", ylabel="wrong among kept", ylim=(0, None))
        kept.legend()
        style(kept, errors)
        return figure


def evaluate_guesses(
    folder: str | Path,
    *,
    n: int = 300,
    seed: int = 0,
    split: str | None = None,
    history: bool = True,
    right_shares: Sequence[float] = RIGHT_SHARES,
    progress: bool = False,
) -> GuessReport:
    """Discriminate the right answer of a question from another answer of its passage, and from answers to other questions.

    No model is asked. Where a data set has no split "dev", the part of its conversations that the score was not fitted on is
    measured. `n`, `seed`, `split` and `history` are as for `load_cases`, `right_shares` those of the savings.

    Raises:
        InputError: A file cannot be read or holds fewer than two such questions, or a share is not between 0 and 1.
    """
    if not all(0 < share < 1 for share in right_shares):
        raise InputError("the share of right guesses must be above 0 and below 1.")
    cases, name = load_cases(folder, n=n, seed=seed, split=split, history=history)
    new = np.array([case.new for case in cases])
    rows: list[GuessRow] = []
    at_error: list[ErrorSaving] = []
    scores: dict[str, Scores] = {}
    verdicts: dict[str, Scores] = {}
    with track(progress, len(_FORMS) * len(cases), "Scoring guesses") as advance:
        for method, _, mode in _FORMS:
            found = []
            for case in cases:
                judged = (conv_mrfs(guess, case.references, question=case.question, mode=mode) for guess in case.guesses)
                found.append([(one.relevance, one.faithful) for one in judged])
                advance(1)
            scores[method], verdicts[method] = np.moveaxis(np.array(found, dtype=float), 2, 0).transpose(0, 2, 1)
    for method, threshold, _ in _FORMS:
        (right, same, others), kept = scores[method], verdicts[method]
        rows.append(_guess_row(method, _SAME, threshold, right, same, kept[:2]))
        if new.any() and not new.all():
            rows.append(_guess_row(method, _NEW, threshold, right[new], same[new], kept[:2, new]))
        rows.append(_guess_row(method, _OTHER, threshold, right, others, kept[::2]))
        given = [(share, error) for share in right_shares for error in _ERRORS]
        at_error += [ErrorSaving(method, error, share, within_error(right, same, error, share)) for share, error in given]
    right, same, _ = scores["default"]
    fitted, _ = best_threshold(np.repeat([True, False], len(right)), np.concatenate([right, same]))
    thresholds = sorted({*_STEPS, GUESS_THRESHOLD})
    table = [saving(right, same, t, share) for share in sorted(right_shares) for t in thresholds]
    tokens = float(np.mean([case.prompt_tokens for case in cases]))
    return GuessReport(f"{Path(folder).name}, {name}", tuple(rows), fitted, tuple(table), tuple(at_error), tokens)


def _guess_row(method: str, wrong: str, threshold: float, right: Scores, other: Scores, kept: Scores) -> GuessRow:
    """`kept` is 1 for each right guess, and for each wrong one, that the verdict keeps, (2, n)."""
    auc = float(roc_auc_score(np.repeat([True, False], [len(right), len(other)]), np.concatenate([right, other])))
    return GuessRow(method, wrong, len(right), auc, threshold, float(kept[0].mean()), float(1 - kept[1].mean()))
