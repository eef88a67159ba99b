"""Blind sheets from made runs: nothing tells the method, filled tables are counted by hand, wrong ones are told."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
from langchain_core.documents import Document

from experiments.blind.__main__ import main
from experiments.blind.score import score_sheets
from experiments.blind.sheets import COLUMNS, make_sheets
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.records import Answered
from tests.data import write_dataset, write_rows

METHODS = ("ours", "history-aware-rag", "react")
QUESTIONS = 6


@pytest.fixture
def data(tmp_path: Path) -> Path:
    queries = [
        Query(f"q{n}", f"When was number {n}?", (("Hello?", "Hi there."),), (f"p{n}",), "", f"{1900 + n}", "", f"c{n}")
        for n in range(QUESTIONS)
    ]
    corpus = [Document(f"Number {n} was in {1900 + n}.", id=f"p{n}") for n in range(QUESTIONS)]
    return write_dataset(tmp_path / "data", queries, corpus)


def run_of(folder: Path) -> Path:
    """A run whose answers say in words of their own which method gave them."""
    answers = [
        Answered(method, f"q{n}", f"c{n}", "?", 1, ("x",), answer=f"It was {1900 + n} [1], {place * 'maybe '}.")
        for n in range(QUESTIONS)
        for place, method in enumerate(METHODS)
    ]
    write_rows(folder / "answers.jsonl", [asdict(one) for one in answers])
    return folder


def method_of(answer: str) -> str:
    return METHODS[answer.count("maybe")]


def judge(folder: Path, say: Callable[[str, str], tuple[list[int], int, str]]) -> None:
    """Fill in a judge's table from what the sheet shows: `say(question, method)` gives marks, rank and reason."""
    items = (folder / "sheet.md").read_text().split("\n## Item ")[1:]
    shown = {}
    for item in items:
        number, question = item.split("\n", 1)[0], item.split("**Question: ", 1)[1].split("**", 1)[0]
        for part in item.split("\n### Answer ")[1:]:
            shown[number, part[0]] = (question, method_of(part))
    rows = list(csv.DictReader((folder / "verdicts.csv").read_text().splitlines()))
    with (folder / "verdicts.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(COLUMNS)
        for row in rows:
            marks, rank, reason = say(*shown[row["item"], row["answer"]])
            out.writerow([row["item"], row["answer"], *marks, rank, reason])


def test_sheets_do_not_tell_the_methods_and_differ_by_judge(data: Path, tmp_path: Path) -> None:
    made = make_sheets([run_of(tmp_path / "run")], data, tmp_path / "out", judges=2)
    assert (made.methods, made.items, made.left_out) == (METHODS, QUESTIONS, 0)
    sheets = [(tmp_path / "out" / f"judge-{n}" / "sheet.md").read_text() for n in (1, 2)]
    assert sheets[0] != sheets[1]
    for sheet in sheets:
        assert sheet.count("### Answer ") == 3 * QUESTIONS
        assert not any(method in sheet for method in METHODS)
        assert "[1]" not in sheet
        for text in (
            "> Assistant: Hi there.",
            "**Question: When was number 3?**",
            "Reference: 1903",
            "- Number 3 was in 1903.",
        ):
            assert text in sheet
    # The same seed gives the same sheets.
    make_sheets([tmp_path / "run"], data, tmp_path / "again", judges=1)
    assert (tmp_path / "again" / "judge-1" / "sheet.md").read_text() == sheets[0]


def test_filled_tables_are_counted(data: Path, tmp_path: Path) -> None:
    make_sheets([run_of(tmp_path / "run")], data, tmp_path / "out")

    def one(question: str, method: str) -> tuple[list[int], int, str]:
        place = METHODS.index(method)
        return [2, 2, 2 - place, 1], place + 1, f"reason for {method}"

    def other(question: str, method: str) -> tuple[list[int], int, str]:
        """The same marks, but that in two items rag is as good as ours."""
        marks, rank, reason = one(question, method)
        tie = question[-2] in "01" and method == "history-aware-rag"
        return ([2, 2, 2, 1], 1, reason) if tie else (marks, rank, reason)

    judge(tmp_path / "out" / "judge-1", one)
    judge(tmp_path / "out" / "judge-2", other)
    report = score_sheets([tmp_path / "out"])
    assert (report.methods, report.judges, report.questions, report.unjudged) == (
        METHODS,
        ("judge-1", "judge-2"),
        QUESTIONS,
        0,
    )
    assert report.marks["ours"].total.mean == 7
    assert report.marks["history-aware-rag"].means["faithful"] == pytest.approx((6 + 6 + 2) / 12)
    assert report.marks["react"].total.mean == 5
    against = report.pairs["ours"]["history-aware-rag"]
    assert (against.wins, against.ties, against.losses) == (10, 2, 0)
    [agreement] = report.agreement
    assert agreement["answers"] == 18
    assert agreement["preferences"] == pytest.approx(16 / 18)
    assert agreement["totals"] == pytest.approx(16 / 18)
    assert agreement["difference"] == pytest.approx(2 / 18)
    opened = [json.loads(line) for line in (tmp_path / "out" / "judgements.jsonl").read_text().splitlines()]
    assert len(opened) == 36
    assert all(row["marks"]["reason"] == f"reason for {row['method']}" for row in opened)


def test_the_commands_and_what_they_refuse(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def blind(*arguments: object) -> str:
        main([*map(str, arguments)])
        return capsys.readouterr().out

    run, out = run_of(tmp_path / "run"), tmp_path / "out"
    made = blind("sheets", run, data, out, "--methods", "history-aware-rag,ours", "--judges", 3)
    assert "6 items with the answers of history-aware-rag, ours" in made
    for number in (1, 2, 3):
        judge(out / f"judge-{number}", lambda question, method: ([2, 2, 2, 2], 1 + (method == "ours"), ""))
    assert json.loads(blind("score", out, "--json"))["pairs"]["ours"]["history-aware-rag"]["losses"] == 18
    assert "0 / 0 / 18" in blind("score", out)
    write_rows(tmp_path / "damaged" / "answers.jsonl", ["{}"])
    with pytest.raises(InputError, match=r"answers.jsonl, line 1: not an answer of a run"):
        blind("sheets", tmp_path / "damaged", data, tmp_path / "new")
    with pytest.raises(InputError, match="is there already"):
        blind("sheets", run, data, out)
    table = out / "judge-1" / "verdicts.csv"
    table.write_text("\n".join([*table.read_text().splitlines()[:-1], "6,B,3,2,2,2,1,"]))
    with pytest.raises(InputError, match=r"verdicts.csv, line 13: .*are 0, 1 or 2"):
        score_sheets([out])
