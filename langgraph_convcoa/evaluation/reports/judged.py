"""The figures and tables of a judge's marks and preferences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from langgraph_convcoa.evaluation.metrics.marks import CRITERIA, MOST
from langgraph_convcoa.evaluation.metrics.significance import Sample, bootstrap_interval, paired_test
from langgraph_convcoa.evaluation.reports.kit import Table, percent, shown
from langgraph_convcoa.evaluation.runs.judging import Marked, Preference

FULL = MOST * len(CRITERIA)
"""The highest total of an answer's marks."""

_TESTS = 1999


@dataclass(frozen=True)
class MarkFigures:
    """A method's marks, as means over its answers."""

    means: dict[str, float]  # by criterion, 0 to 2
    total: float  # 0 to 8
    low: float  # 95% interval of the total, by a bootstrap over conversations
    high: float
    p: float | None  # of a paired randomisation test of the total against the baseline; None for the baseline
    questions: int
    malformed: int  # answers whose marks could not be read, or did not come; they count in nothing


@dataclass(frozen=True)
class PreferenceFigures:
    """A method's answers against those of the baseline, in pairs."""

    wins: int
    ties: int
    losses: int
    malformed: int
    p: float | None  # of a sign test of wins against losses; None without either
    first_shown: int  # how often the answer that was shown first was preferred, of those
    decided: int  # where the judge was asked and preferred one


def mark_figures(marked: Sequence[Marked], baseline: Sequence[Marked] | None = None, seed: int = 0) -> MarkFigures | None:
    """The marks of one method, tested against those of another; None where no reply could be read."""
    known = [one for one in marked if one.marks is not None]
    if not known:
        return None
    values = np.array([[getattr(one.marks, name) for name in CRITERIA] for one in known], dtype=np.float64)
    totals = values.sum(axis=1, keepdims=True)
    low, high = bootstrap_interval([Sample(totals, [one.conversation for one in known])], seed=seed)
    others = {one.id: float(one.marks.total) for one in baseline or () if one.marks is not None}
    both = [place for place, one in enumerate(known) if one.id in others]
    p = None
    if baseline is not None and both:
        less = totals[both] - np.array([[others[known[place].id]] for place in both])
        p = float(paired_test([Sample(less, [known[place].conversation for place in both])], resamples=_TESTS, seed=seed)[0])
    means = dict(zip(CRITERIA, values.mean(axis=0).tolist(), strict=True))
    ends = float(low[0]), float(high[0])
    return MarkFigures(means, float(totals.mean()), *ends, p, len(known), len(marked) - len(known))


def preference_figures(method: str, preferences: Sequence[Preference]) -> PreferenceFigures | None:
    """How the answers of a method did in its pairs; None where it has none."""
    pairs = [one for one in preferences if method in (one.first, one.second)]
    if not pairs:
        return None
    wins = sum(one.better == method for one in pairs)
    ties = sum(one.better == "" for one in pairs)
    malformed = sum(one.better is None for one in pairs)
    losses = len(pairs) - wins - ties - malformed
    asked = [one for one in pairs if one.asked and one.better]
    p = float(stats.binomtest(wins, wins + losses).pvalue) if wins + losses else None
    return PreferenceFigures(wins, ties, losses, malformed, p, sum(one.better == one.first for one in asked), len(asked))


def marks_table(figures: Mapping[str, MarkFigures], baseline: str) -> Table:
    """Marks by method."""
    rows = [
        (
            method,
            *(shown(one.means[name], 2) for name in CRITERIA),
            shown(one.total, 2),
            f"{one.low:.2f}-{one.high:.2f}",
            shown(one.p),
            f"{one.questions:,}",
            f"{one.malformed:,}",
        )
        for method, one in figures.items()
    ]
    note = (
        f"Each criterion from 0 to {MOST}, by a judge who saw the conversation, the right answers and the gold passages, not "
        "the citations. correct: right, and what was asked; complete: all that the reference says; faithful: nothing that the "
        "passages do not support; concise: nothing that the asker does not need. 95% and p as in the table of quality, of "
        f"the total against {baseline}. A question that failed has 0. without marks: the judge's reply could not be read."
    )
    columns = ("method", *CRITERIA, f"total of {FULL}", "95%", "p", "answers", "without marks")
    return Table("Marks of the judge", columns, rows, note)


def preference_table(figures: Mapping[str, PreferenceFigures], baseline: str) -> Table:
    """Wins, ties and losses by method."""
    rows = [
        (
            method,
            *(f"{count:,}" for count in (one.wins, one.ties, one.losses)),
            shown(one.p),
            f"{one.first_shown:,} of {one.decided:,} ({percent(one.first_shown / one.decided)})" if one.decided else "",
            f"{one.malformed:,}",
        )
        for method, one in figures.items()
    ]
    note = (
        f"Which answer the judge would rather have, the method's or that of {baseline}, shown in an order that was drawn. p: "
        "sign test of wins against losses. first shown: how often the judge preferred the answer that it was shown first; far "
        "from 50% it has a bias of position. without verdict: the judge's reply could not be read."
    )
    columns = ("method", "wins", "ties", "losses", "p", "first shown", "without verdict")
    return Table(f"Preferred to {baseline}", columns, rows, note)
