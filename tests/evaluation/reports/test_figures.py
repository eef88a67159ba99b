"""The figures of marks and preferences by hand."""

from __future__ import annotations

import pytest

from langgraph_convcoa.evaluation.reports import mark_figures, preference_figures
from langgraph_convcoa.evaluation.runs.judging import Marked, Marks, Preference


def marked(method: str, *totals: int | None) -> list[Marked]:
    """Answers with so many points for being correct and complete; none where the judge's reply was unreadable."""
    return [
        Marked(method, f"q{n}", f"c{n}", None if total is None else Marks(min(total, 2), max(total - 2, 0), 2, 1))
        for n, total in enumerate(totals)
    ]


def preference(n: int, first: str, second: str, better: str | None) -> Preference:
    return Preference(f"q{n}", f"c{n}", first, second, better)


def test_marks_are_means_with_an_interval_and_a_test() -> None:
    ours, other = marked("ours", 4, 4, 4, 2, None, 4, 4, 4), marked("rag", 2, 1, 2, 2, 4, 1, None, 1)
    found = mark_figures(ours, other)
    assert found is not None
    assert found.means == pytest.approx({"correct": 2.0, "complete": 12 / 7, "faithful": 2.0, "concise": 1.0})
    assert found.total.mean == pytest.approx(sum(found.means.values()))
    assert found.total.low <= found.total.mean <= found.total.high
    assert (found.total.questions, found.malformed, found.right) == (7, 1, 1.0)
    # Six questions were marked of both, five of them with a difference, all of one sign: 2 of 32 signs are as extreme.
    assert found.total.p == pytest.approx(2 / 32)
    alone = mark_figures(ours)
    assert alone is not None
    assert alone.total.p is None
    assert mark_figures(marked("ours", None)) is None


def test_preferences_count_wins_ties_losses_and_the_place() -> None:
    pairs = [preference(n, "ours", "rag", "rag") for n in range(4)]
    pairs += [preference(4, "rag", "ours", "rag"), preference(5, "rag", "ours", "ours"), preference(6, "ours", "rag", "")]
    pairs += [preference(7, "ours", "rag", None), preference(8, "ours", "rag", "rag")]
    pairs += [preference(9, "ours", "react", "react")]
    found = preference_figures("rag", pairs)
    assert found is not None
    assert (found.wins, found.ties, found.losses, found.malformed) == (6, 1, 1, 1)
    assert found.p == pytest.approx(2 * 8 / 2**7), "6 of 7 heads, or more extreme, on either side"
    assert preference_figures("dsp", pairs) is None
