"""The figures of a question-answering run, computed from the answers of each method."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from langgraph_convcoa.evaluation.metrics.answers import MEASURES, refuses
from langgraph_convcoa.evaluation.metrics.judge import CRITERIA
from langgraph_convcoa.evaluation.metrics.significance import Sample, bootstrap_interval, paired_test
from langgraph_convcoa.evaluation.records import Answered, Costs, found_gold
from langgraph_convcoa.evaluation.runs.judging import Marked, Preference

_TESTS = 1999
_ERRORS_SHOWN = 3


@dataclass(frozen=True)
class Quality:
    """The mean of a measure over questions, and its 95% interval over conversations.

    `p` comes from a paired randomisation test against the first method, over the questions that both have; None for the first.
    """

    mean: float
    low: float
    high: float
    p: float | None
    questions: int


@dataclass(frozen=True)
class MarkFigures:
    """A method's marks."""

    means: dict[str, float]  # by criterion, 0 to 2
    total: Quality  # 0 to 8
    right: float  # share of the answers with the full mark for "correct"
    malformed: int  # answers without readable marks; they do not count


@dataclass(frozen=True)
class PreferenceFigures:
    """A method's answers in pairs with the answers of the first method."""

    wins: int
    ties: int
    losses: int
    malformed: int
    p: float | None  # of a sign test of wins against losses


@dataclass(frozen=True)
class MethodFigures:
    """All figures of a method."""

    method: str
    asked: int  # including the questions that failed
    failed: int
    errors: dict[str, int]  # the commonest reasons with their counts
    malformed: int  # replies of the model without the form that was asked for
    without_reference: int  # questions without a known answer; they count in the costs only
    refused: float  # share of plain refusals
    quality: dict[str, Quality]  # by measure; a question that failed counts 0
    gold_found: float | None  # share of questions with a gold passage among those retrieved
    costs: dict[str, float]  # means over the questions
    marks: MarkFigures | None = None
    preference: PreferenceFigures | None = None


def figures_of(
    method: str, answers: Sequence[Answered], first: Sequence[Answered] | None = None, *, seed: int = 0
) -> MethodFigures:
    """The figures of a method, tested against the answers of the first method (None for the first itself)."""
    known = [answer for answer in answers if answer.references]
    given = [answer for answer in answers if not answer.error]
    searched = [found_gold(answer.passages, answer.gold) for answer in given if answer.gold]
    retrieves = any(answer.passages or answer.costs.retrievals for answer in answers)
    reasons = Counter(answer.error for answer in answers if answer.error)
    quality = {}
    for name in MEASURES:
        values = _values(answers, name)
        if any(name in answer.metrics for answer in known):
            quality[name] = quality_of(values, None if first is None else _values(first, name), seed)
    return MethodFigures(
        method=method,
        asked=len(answers),
        failed=reasons.total(),
        errors=dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))[:_ERRORS_SHOWN]),
        malformed=sum(answer.malformed for answer in answers),
        without_reference=len(answers) - len(known),
        refused=sum(refuses(answer.answer) for answer in given) / max(1, len(given)),
        quality=quality,
        gold_found=float(np.mean(searched)) if searched and retrieves else None,
        costs={name: float(np.mean([getattr(answer.costs, name) for answer in answers])) for name in vars(Costs())},
    )


def quality_of(
    values: Mapping[str, tuple[str, float]], others: Mapping[str, tuple[str, float]] | None = None, seed: int = 0
) -> Quality:
    """Mean, interval and test of values. Each question has a conversation and a value; `others` are the first method's."""
    column = np.array([[value] for _, value in values.values()])
    low, high = bootstrap_interval([Sample(column, [conversation for conversation, _ in values.values()])], seed=seed)
    p = None
    if others is not None and (both := [id_ for id_ in values if id_ in others]):
        less = np.array([[values[id_][1] - others[id_][1]] for id_ in both])
        p = float(paired_test([Sample(less, [values[id_][0] for id_ in both])], resamples=_TESTS, seed=seed)[0])
    return Quality(float(column.mean()), float(low[0]), float(high[0]), p, len(values))


def mark_figures(marked: Sequence[Marked], first: Sequence[Marked] | None = None, seed: int = 0) -> MarkFigures | None:
    """The marks of a method, tested against those of the first method; None if no reply could be read."""
    known = [one.marks for one in marked if one.marks is not None]
    if not known:
        return None

    def totals(given: Sequence[Marked]) -> dict[str, tuple[str, float]]:
        return {one.id: (one.conversation, float(one.marks.total)) for one in given if one.marks is not None}

    means = {name: float(np.mean([getattr(marks, name) for marks in known])) for name in CRITERIA}
    right = sum(marks.correct == 2 for marks in known) / len(known)
    total = quality_of(totals(marked), None if first is None else totals(first), seed)
    return MarkFigures(means, total, right, len(marked) - len(known))


def preference_figures(method: str, preferences: Sequence[Preference]) -> PreferenceFigures | None:
    """The wins and losses of a method in its pairs; None if it has none."""
    pairs = [one for one in preferences if method in (one.first, one.second)]
    if not pairs:
        return None
    wins = sum(one.better == method for one in pairs)
    ties = sum(one.better == "" for one in pairs)
    malformed = sum(one.better is None for one in pairs)
    losses = len(pairs) - wins - ties - malformed
    p = float(stats.binomtest(wins, wins + losses).pvalue) if wins + losses else None
    return PreferenceFigures(wins, ties, losses, malformed, p)


def _values(answers: Sequence[Answered], measure: str) -> dict[str, tuple[str, float]]:
    """Conversation and value of each question with a known answer; 0 if it failed."""
    return {
        answer.id: (answer.conversation, 0.0 if answer.error else answer.metrics[measure])
        for answer in answers
        if answer.references and (answer.error or measure in answer.metrics)
    }
