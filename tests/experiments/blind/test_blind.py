"""Blind sheets from made runs: nothing tells the method, filled tables are counted by hand, wrong ones are told."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from experiments.blind.__main__ import main
from experiments.blind.score import score_sheets
from experiments.blind.sheets import COLUMNS, make_sheets
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.records import Answered

METHODS = ("ours", "history-aware-rag", "react")
QUESTIONS = 6


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    queries = [
        {
            "id": f"q{n}",
            "question": f"When was number {n}?",
            "history": [["Hello?", "Hi there."]],
            "answer": f"{1900 + n}",
            "gold": [f"p{n}"],
            "conversation_id": f"c{n}",
        }
        for n in range(QUESTIONS)
    ]
    corpus = [{"id": f"p{n}", "text": f"Number {n} was in {1900 + n}."} for n in range(QUESTIONS)]
    for name, rows in (("queries", queries), ("corpus", corpus)):
        (folder / f"{name}.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return folder


def run_of(folder: Path, *methods: str, failed: str = "", **more: Any) -> Path:
    """A run whose answers say in words of their own which method gave them; one question may have failed."""
    folder.mkdir()
    with (folder / "answers.jsonl").open("w") as file:
        for n in range(QUESTIONS):
            for method in methods:
                error = "no" if failed == f"q{n}" else ""
                answer = "" if error else f"It was {1900 + n} [1], {METHODS.index(method) * 'maybe '}."
                one = Answered(method, f"q{n}", f"c{n}", "?", 1, ("x",), answer=answer, error=error, **more)
                file.write(json.dumps(asdict(one)) + "\n")
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
    made = make_sheets([run_of(tmp_path / "run", *METHODS)], data, tmp_path / "out", judges=2)
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
    key = json.loads((tmp_path / "out" / "key.json").read_text())
    orders = {tuple(item["answers"].values()) for items in key["judges"].values() for item in items.values()}
    assert len(orders) > 2, "the answers are shuffled"
    # The same seed gives the same sheets.
    make_sheets([tmp_path / "run"], data, tmp_path / "again", judges=1)
    assert (tmp_path / "again" / "judge-1" / "sheet.md").read_text() == sheets[0]


def test_filled_tables_are_counted(data: Path, tmp_path: Path) -> None:
    make_sheets([run_of(tmp_path / "run", *METHODS)], data, tmp_path / "out")

    def one(question: str, method: str) -> tuple[list[int], int, str]:
        """Ours before rag before react."""
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
    back = report.pairs["history-aware-rag"]["ours"]
    assert (back.wins, back.ties, back.losses) == (0, 2, 10)
    assert report.pairs["react"]["ours"].losses == 12
    [agreement] = report.agreement
    assert agreement["answers"] == 18
    assert agreement["preferences"] == pytest.approx(16 / 18)
    assert agreement["totals"] == pytest.approx(16 / 18)
    assert agreement["difference"] == pytest.approx(2 / 18)
    opened = [json.loads(line) for line in (tmp_path / "out" / "judgements.jsonl").read_text().splitlines()]
    assert len(opened) == 36
    assert all(row["marks"]["reason"] == f"reason for {row['method']}" for row in opened)
    titles = {table.title: table for table in report.tables()}
    assert titles["Preferred"].rows[0] == ("ours", "", "10 / 2 / 0", "12 / 0 / 0")
    # Of two data sets together, whose questions may have the same ids.
    make_sheets([tmp_path / "run"], data, tmp_path / "more", judges=1)
    judge(tmp_path / "more" / "judge-1", one)
    both = score_sheets([tmp_path / "out", tmp_path / "more", tmp_path / "more"])
    assert both.pairs["ours"]["history-aware-rag"].wins == 16
    assert (both.questions, both.agreement[0]["answers"]) == (2 * QUESTIONS, 18)


def test_methods_of_several_runs_and_questions_that_failed(data: Path, tmp_path: Path) -> None:
    runs = [run_of(tmp_path / "a", "ours"), run_of(tmp_path / "b", "ours", "react", failed="q2")]
    made = make_sheets(runs, data, tmp_path / "out", judges=1)
    assert (made.methods, made.items, made.left_out) == (("ours", "react"), QUESTIONS - 1, 1)


def test_half_filled_tables_are_partial_and_wrong_ones_are_told(data: Path, tmp_path: Path) -> None:
    make_sheets([run_of(tmp_path / "run", *METHODS)], data, tmp_path / "out", judges=1)
    with pytest.raises(InputError, match="nothing is judged yet"):
        score_sheets([tmp_path / "out"])
    judge(tmp_path / "out" / "judge-1", lambda question, method: ([2, 2, 2, 2], 1, ""))
    table = tmp_path / "out" / "judge-1" / "verdicts.csv"
    lines = table.read_text().splitlines()
    table.write_text("\n".join([*lines[:-2], "6,B,,,,,,"]))
    report = score_sheets([tmp_path / "out"])
    assert report.unjudged == 2
    assert "PARTIAL: 2 answers" in report.tables()[0].note
    for wrong, message in (
        ("6,C,3,2,2,2,1,", "are 0, 1 or 2"),
        ("6,C,2,2,2,,1,", "are 0, 1 or 2"),
        ("6,C,2,2,2,2,0,", "rank is 1 or more"),
        ("6,D,2,2,2,2,1,", "as they were"),
        ("9,A,2,2,2,2,1,", "as they were"),
        (lines[1], "each once"),
    ):
        table.write_text("\n".join([*lines[:-1], wrong]))
        with pytest.raises(InputError, match=rf"verdicts.csv, line 19: .*{message}"):
            score_sheets([tmp_path / "out"])


def test_the_commands_and_what_they_refuse(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def blind(*arguments: object) -> str:
        main([*map(str, arguments)])
        return capsys.readouterr().out

    run, out = run_of(tmp_path / "run", *METHODS), tmp_path / "out"
    made = blind("sheets", run, data, out, "--methods", "history-aware-rag,ours", "--judges", 3)
    assert "6 items with the answers of history-aware-rag, ours" in made
    for number in (1, 2, 3):
        judge(out / f"judge-{number}", lambda question, method: ([2, 2, 2, 2], 1 + (method == "ours"), ""))
    assert json.loads(blind("score", out, "--json"))["pairs"]["ours"]["history-aware-rag"]["losses"] == 18
    assert "0 / 0 / 18" in blind("score", out)
    for arguments, message in (
        (["sheets", run, data, out], "is there already"),
        (["sheets", data, data, tmp_path / "new"], "holds no run"),
        (["sheets", run, data, tmp_path / "new", "--methods", "ours"], "two methods or more"),
        (["sheets", run, data, tmp_path / "new", "--methods", "ours,dsp"], "no run has answers of 'dsp'"),
        (["score", data], "holds no blind sheets"),
    ):
        with pytest.raises(InputError, match=message):
            blind(*arguments)
    assert not (tmp_path / "new").exists()
