"""Reports of answers that are made by hand: the figures, their order, and the files."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.metrics import Sample, paired_test
from langgraph_convcoa.evaluation.records import Answered, Costs, Questions
from langgraph_convcoa.evaluation.reports import RunReport, mark_figures, preference_figures, report_of, write_report
from langgraph_convcoa.evaluation.runs.folder import RunFolder
from langgraph_convcoa.evaluation.runs.judging import Marked, Marks, Preference, Verdicts
from tests.evaluation.runs.fakes import questions_of


def answered(asked: Questions, method: str, right: float, **more: Any) -> list[Answered]:
    chance = random.Random(method)
    found = []
    for conversation in asked.conversations:
        for one in conversation.questions:
            hit = float(chance.random() < right)
            text = f"It is {one.references[0]}." if hit else "No idea."
            costs = Costs(chance.randint(1, 3), chance.randint(500, 900), chance.randint(50, 90), 1, chance.random())
            metrics = {"em": 0.0, "cover_em": hit, "f1": hit / 2, "rouge_l": hit / 2}
            found.append(
                Answered(
                    method, one.id, conversation.id, one.question, len(one.history) + 1, one.references, one.gold,
                    answer=text, costs=costs, metrics=metrics, **more,
                )
            )  # fmt: skip
    return found


def report(
    path: Path, asked: Questions, answers: Sequence[Answered], methods: Sequence[str], verdicts: Verdicts | None = None
) -> RunReport:
    with RunFolder(path, {"data": "made", "methods": [*methods]}) as folder:
        for one in answers:
            folder.append(one)
        return report_of(folder, asked, methods, verdicts)


def test_the_same_answers_in_another_order_give_the_same_report(tmp_path: Path) -> None:
    asked = questions_of(20, 4)
    answers = answered(asked, "a", 0.5) + answered(asked, "b", 0.7)
    first = report(tmp_path / "1", asked, answers, ["a", "b"])
    random.Random(3).shuffle(answers)
    second = report(tmp_path / "2", asked, answers, ["a", "b"])
    assert first.to_dict() == second.to_dict()
    assert first.markdown() == second.markdown()


def test_means_intervals_and_tests_are_those_of_the_answers(tmp_path: Path) -> None:
    asked = questions_of(30, 3)
    one, other = answered(asked, "a", 0.4), answered(asked, "b", 0.8)
    a, b = report(tmp_path, asked, one + other, ["a", "b"]).methods
    quality = a.quality["cover_em"]
    assert quality.mean == pytest.approx(np.mean([answer.metrics["cover_em"] for answer in one]))
    assert quality.low < quality.mean < quality.high
    assert (quality.p, quality.questions) == (None, 90)
    less = np.array([y.metrics["cover_em"] - x.metrics["cover_em"] for x, y in zip(one, other, strict=True)])
    names = [answer.conversation for answer in one]
    assert b.quality["cover_em"].p == pytest.approx(float(paired_test([Sample(less[:, None], names)], resamples=1999)[0]))
    assert b.quality["cover_em"].p < 0.01
    assert b.costs["input_tokens"] == pytest.approx(np.mean([answer.costs.input_tokens for answer in other]))
    assert b.costs["calls"] == pytest.approx(np.mean([answer.costs.calls for answer in other]))


def test_what_went_wrong_is_counted_and_a_failure_is_no_right_answer(tmp_path: Path) -> None:
    asked = questions_of(5, 2)
    answers = answered(asked, "a", 1.0)
    answers[0] = replace(answers[0], error="the model failed", answer="", metrics={})
    answers[1] = replace(answers[1], references=(), metrics={})
    answers[2] = replace(answers[2], malformed=2)
    answers[3] = replace(answers[3], answer="I found nothing about this in the documents.")
    (a,) = report(tmp_path, asked, answers, ["a"]).methods
    assert (a.asked, a.failed, a.malformed, a.without_reference) == (10, 1, 2, 1)
    assert a.errors == {"the model failed": 1}
    assert a.quality["cover_em"].mean == pytest.approx(8 / 9)
    assert a.refused == pytest.approx(1 / 9)


def test_questions_with_a_gold_passage_found_are_counted(tmp_path: Path) -> None:
    asked = questions_of(2, 1)
    pairs = zip(answered(asked, "a", 1.0), [("p#1",), ("q",)], strict=True)
    answers = [replace(one, gold=("p",), passages=passages) for one, passages in pairs]
    assert report(tmp_path, asked, answers, ["a"]).methods[0].gold_found == 0.5


def test_a_partial_run_is_compared_on_what_both_were_asked(tmp_path: Path) -> None:
    asked = questions_of(10, 2)
    found = report(tmp_path, asked, answered(asked, "a", 0.5) + answered(asked, "b", 0.9)[:6], ["a", "b", "c"])
    assert found.partial
    assert "PARTIAL: 26 of 60 answers" in found.markdown()
    assert [one.method for one in found.methods] == ["a", "b"]
    assert (found.methods[1].quality["em"].questions, found.methods[1].quality["em"].p) == (6, 1.0)
    with pytest.raises(InputError, match="no answer yet"):
        report(tmp_path / "none", asked, [], ["a"])


def test_a_judges_verdicts_have_tables(tmp_path: Path) -> None:
    asked = questions_of(2, 1)
    marks = [
        Marked(method, f"q{n}-0", f"c{n}", Marks(2, total, 2, 1)) for method, total in (("a", 2), ("b", 0)) for n in (0, 1)
    ]
    pairs = [Preference("q0-0", "c0", "b", "a", "a"), Preference("q1-0", "c1", "a", "b", "")]
    verdicts = Verdicts(tuple(marks), tuple(pairs))
    found = report(tmp_path, asked, answered(asked, "a", 1.0) + answered(asked, "b", 1.0), ["a", "b"], verdicts)
    tables = {table.title: table for table in found.tables()}
    assert tables["Marks of the judge"].rows[0][:6] == ("a", "2.00", "2.00", "2.00", "1.00", "7.00")
    assert tables["Preferred to a"].rows == [("b", "0", "1", "1", "1.000", "0")]


def test_the_files_show_what_is_in_them_as_text(tmp_path: Path) -> None:
    asked = questions_of(6, 3)
    evil = "<script>alert(1)</script>|[x](http://e)"
    answers = answered(asked, "a", 0.5)
    answers += [replace(answer, error=evil, metrics={}, answer="") for answer in answered(asked, "$b$", 0.5)]
    found = report(tmp_path, asked, answers, ["a", "$b$"])
    write_report(found, tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "<script" not in text
    rows = [line for line in text.splitlines() if "alert(1)" in line]
    assert [line.replace("\\|", "").count("|") for line in rows] == [7]
    assert json.loads((tmp_path / "report.json").read_text())["methods"]["a"]["asked"] == 18
    console = Console(width=160, record=True, file=(tmp_path / "console.txt").open("w"))
    console.print(found)
    assert "model calls" in console.export_text()
    console.file.close()
    with pytest.raises(InputError, match="the report cannot be written"):
        write_report(found, tmp_path / "absent")


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
