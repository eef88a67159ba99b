"""Reports from answers that are made by hand: the figures, their order, and what a page may hold."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.metrics.significance import Sample, paired_test
from langgraph_convcoa.evaluation.records import Answered, Costs
from langgraph_convcoa.evaluation.reports.figures import Prices, Values
from langgraph_convcoa.evaluation.reports.run import RunReport, report_of, write_report
from langgraph_convcoa.evaluation.runs.conversations import Drawn, draw
from langgraph_convcoa.evaluation.runs.folder import RunFolder
from langgraph_convcoa.evaluation.runs.sweeps import variants
from tests.evaluation.runs.fakes import drawn

PNG = b"\x89PNG\r\n"


def answered(asked: Drawn, method: str, right: float, seed: int = 0, **more: Any) -> list[Answered]:
    """Answers of which a share is right."""
    chance = random.Random(f"{method}{seed}")
    found = []
    for conversation in asked.conversations:
        for one in conversation.questions:
            hit = float(chance.random() < right)
            text = f"It is {one.references[0]}." if hit else "No idea."
            costs = Costs(chance.randint(1, 3), chance.randint(500, 900), chance.randint(50, 90), 1, chance.random())
            metrics = {"em": 0.0, "cover_em": hit, "f1": hit / 2, "rouge_l": hit / 2, "bleu": hit / 4}
            found.append(
                Answered(
                    method, one.id, conversation.id, one.question, len(one.history) + 1, one.references, one.gold,
                    answer=text, costs=costs, metrics=metrics, **more,
                )
            )  # fmt: skip
    return found


def report(path: Path, asked: Drawn, answers: Sequence[Answered], methods: Sequence[str], **options: Any) -> RunReport:
    rows = options.pop("rows", None) or variants(methods)
    with RunFolder(path, {"data": "made"}) as folder:
        for one in answers:
            folder.append(one)
        return report_of(folder, asked, rows, **options)


def test_the_same_answers_in_another_order_give_the_same_report(tmp_path: Path) -> None:
    asked = drawn(20, 4)
    answers = answered(asked, "a", 0.5) + answered(asked, "b", 0.7)
    first = report(tmp_path / "1", asked, answers, ["a", "b"])
    random.Random(3).shuffle(answers)
    second = report(tmp_path / "2", asked, answers, ["a", "b"])
    assert first.to_dict() == second.to_dict()
    for name in ("1", "2"):
        write_report(first if name == "1" else second, tmp_path / name)
    for name in ("report.md", "report.html", "report.json", "costs.png"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


def test_means_intervals_and_tests_are_those_of_the_answers(tmp_path: Path) -> None:
    asked = drawn(30, 3)
    one, other = answered(asked, "a", 0.4), answered(asked, "b", 0.8)
    found = report(tmp_path, asked, one + other, ["a", "b"], prices=Prices(2.0, 10.0))
    a, b = found.methods
    values = np.array([answer.metrics["cover_em"] for answer in one])
    quality = a.quality["cover_em"]
    assert quality.mean == pytest.approx(values.mean())
    assert quality.low < quality.mean < quality.high
    assert (quality.p, quality.questions) == (None, 90)
    less = np.array([y.metrics["cover_em"] - x.metrics["cover_em"] for x, y in zip(one, other, strict=True)])
    names = [answer.conversation for answer in one]
    assert b.quality["cover_em"].p == pytest.approx(float(paired_test([Sample(less[:, None], names)], resamples=1999)[0]))
    assert b.quality["cover_em"].p < 0.01
    costs = b.costs
    assert costs.input_tokens == pytest.approx(np.mean([answer.costs.input_tokens for answer in other]))
    assert costs.tokens == pytest.approx(costs.input_tokens + costs.output_tokens)
    assert costs.price == pytest.approx((costs.input_tokens * 2 + costs.output_tokens * 10) / 1000)
    assert [entry.round for entry in b.rounds] == [1, 2, 3]
    assert sum(entry.questions for entry in b.rounds) == 90
    of_round = [answer.metrics["cover_em"] for answer in other if answer.round == 2]
    assert b.rounds[1].right == pytest.approx(np.mean(of_round))


def test_what_went_wrong_is_counted_and_a_failure_is_no_right_answer(tmp_path: Path) -> None:
    asked = drawn(5, 2)
    answers = answered(asked, "a", 1.0)
    answers[0] = replace(answers[0], error="the model failed", answer="", metrics={})
    answers[1] = replace(answers[1], references=(), metrics={})
    answers[2] = replace(answers[2], malformed=2)
    found = report(tmp_path, asked, answers, ["a"], judged=True)
    (a,) = found.methods
    assert (a.asked, a.failed, a.malformed, a.malformed_questions, a.without_reference) == (10, 1, 2, 1, 1)
    assert a.unjudged == 8
    assert a.errors == {"the model failed": 1}
    assert a.quality["cover_em"].mean == pytest.approx(8 / 9)
    assert a.quality["gpt_em"].questions == 1


def test_citations_and_parts_are_counted(tmp_path: Path) -> None:
    asked = drawn(1, 4)
    texts = ["It is one [1]. Or two.", "It is one. [1] Or two [2].", "Nothing.", ""]
    parts = [{"instructions": 300, "evidence": 500}, {"instructions": 300, "evidence": 100, "reply": 40}, {}, {}]
    answers = [
        replace(one, answer=text, passages=("p",), removed=n, costs=replace(one.costs, parts=spent))
        for n, (one, text, spent) in enumerate(zip(answered(asked, "a", 1.0), texts, parts, strict=True))
    ]
    answers[3] = replace(answers[3], error="the model failed")
    found = report(tmp_path, asked, answers, ["a"])
    (a,) = found.methods
    assert a.citations is not None
    assert (a.citations.answers, a.citations.cited, a.citations.removed) == (3, 2, 3)
    assert (a.citations.sentences, a.citations.cited_sentences) == (5, 3)
    assert a.costs.parts == {"instructions": 150.0, "evidence": 150.0, "reply": 10.0}
    titles = {table.title: table for table in found.tables()}
    assert titles["Tokens by part"].rows == [("a", "150", "150", "10")]
    assert titles["Citations"].rows == [("a", "2 of 3 (66.7%)", "3 of 5 (60.0%)", "3")]


def test_the_judge_is_compared_and_says_what_is_right(tmp_path: Path) -> None:
    asked = drawn(5, 2)
    answers = answered(asked, "a", 0.5)
    judged = [replace(answer, metrics={**answer.metrics, "gpt_em": float(n % 2)}) for n, answer in enumerate(answers)]
    found = report(tmp_path, asked, judged, ["a"], judged=True)
    assert found.measure == "gpt_em"
    assert {entry["measure"] for entry in found.methods[0].agreement} == {"em", "cover_em"}
    assert any("GPT-EM against" in table.title for table in found.tables())


def test_a_judge_without_a_verdict_has_empty_cells_and_the_others_keep_their_columns(tmp_path: Path) -> None:
    asked = drawn(4, 2)
    found = report(tmp_path / "r", asked, answered(asked, "a", 1.0) + answered(asked, "b", 0.0), ["a", "b"], judged=True)

    table = next(table for table in found.tables() if table.title == "Quality")
    assert {len(row) for row in table.rows} == {len(table.columns)}
    for row, right in zip(table.rows, ("1.000", "0.000"), strict=True):
        cells = dict(zip(table.columns, row, strict=True))
        assert (cells["GPT-EM"], cells["95%"], cells["p"], cells["cover-EM"], cells["EM"]) == ("", "", "", right, "0.000")


def test_misled_is_against_closed_book_of_the_same_model(tmp_path: Path) -> None:
    asked = drawn(4, 1)
    rows = variants(["closed-book", "react"], ["x", "y"])
    answers = [
        *answered(asked, "closed-book@x", 1.0),
        *answered(asked, "react@x", 0.0, passages=("p",)),
        *answered(asked, "closed-book@y", 0.0),
        *answered(asked, "react@y", 1.0, passages=("p",)),
    ]
    found = report(tmp_path, asked, answers, [], rows=rows)
    x, y = (one for one in found.methods if one.method.startswith("react"))
    assert x.misled is not None
    assert y.misled is not None
    assert (x.misled["misled"], x.misled["helped"], y.misled["misled"], y.misled["helped"]) == (4, 0, 0, 4)
    titles = [table.title for table in found.tables()]
    assert "Models" in titles
    assert "Misled by retrieval" in titles


def test_a_partial_run_is_compared_on_what_both_were_asked(tmp_path: Path) -> None:
    asked = drawn(10, 2)
    found = report(tmp_path, asked, answered(asked, "a", 0.5) + answered(asked, "b", 0.9)[:6], ["a", "b", "c"])
    assert found.partial
    assert [one.method for one in found.methods] == ["a", "b"]
    assert found.methods[1].quality["em"].questions == 6
    assert found.methods[1].quality["em"].p == 1.0
    with pytest.raises(InputError, match="no answer yet"):
        report(tmp_path / "none", asked, [], ["a"])


def test_values_of_nothing_known_have_no_quality() -> None:
    asked = drawn(1, 2)
    answers = [replace(answer, references=(), metrics={}) for answer in answered(asked, "a", 1.0)]
    values = Values.of(answers, {answer.id: n for n, answer in enumerate(answers)}, judged=False)
    assert values.quality(None, 0) == {}
    assert values.quality(values, 0) == {}


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not any((value or "").startswith("http") for _, value in attrs)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_files_stand_alone_and_show_what_is_in_them_as_text(tmp_path: Path) -> None:
    asked = drawn(6, 3)
    evil = "<script>alert(1)</script>|[x](http://e)"
    answers = answered(asked, "a", 0.5)
    answers += [replace(answer, error=evil, metrics={}, answer="") for answer in answered(asked, "$b$", 0.5)]
    found = report(tmp_path, asked, answers, ["a", "$b$"])
    md, page, data = write_report(found, tmp_path)
    parsed = _Page()
    parsed.feed(page.read_text())
    assert "script" not in parsed.tags
    assert parsed.tags.count("img") == 3
    assert evil in parsed.text
    assert "<script" not in md.read_text()
    rows = [line for line in md.read_text().splitlines() if "alert(1)" in line]
    assert all(line.replace("\\|", "").count("|") == 4 for line in rows)
    assert (tmp_path / "quality.png").read_bytes().startswith(PNG)
    assert json.loads(data.read_text())["methods"]["a"]["asked"] == 18
    console = Console(width=160, record=True, file=(tmp_path / "console.txt").open("w"))
    console.print(found)
    assert "model calls" in console.export_text()
    console.file.close()


def test_without_matplotlib_the_report_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = drawn(2, 1)
    found = report(tmp_path, asked, answered(asked, "a", 0.5), ["a"])
    monkeypatch.setattr("langgraph_convcoa.evaluation.reports.plots.can_draw", lambda: False)
    monkeypatch.setattr("langgraph_convcoa.evaluation.reports.run.can_draw", lambda: False)
    md, page, _ = write_report(found, tmp_path)
    assert "matplotlib is not installed" in md.read_text()
    assert "<img" not in page.read_text()


def test_questions_left_out_are_told(tmp_path: Path) -> None:
    from langgraph_convcoa.datasets.queries import Query

    asked = draw([Query("1", "?", answer="x"), Query("2", "?")])
    found = report(tmp_path, asked, answered(asked, "a", 1.0), ["a"])
    md, *_ = write_report(found, tmp_path)
    assert "1 questions of conversations without any known answer" in md.read_text()
