"""The table of costs under one script, its files, and the command."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from experiments.costs.__main__ import main
from experiments.costs.measure import LIMITS, CostRow, CostsReport, measure_costs
from experiments.costs.scripted import Script, make_script
from langgraph_convcoa.errors import InputError


@pytest.fixture(scope="module")
def report() -> CostsReport:
    parts = [make_script(n, share, questions=2) for n in (1, 3, 7) for share in (0.0, 1.0)]
    script = Script(tuple(one for part in parts for one in part.questions))
    return measure_costs(script, ["ours", "react", "self-ask", "search-in-the-chain"], k=3)


def cell(report: CostsReport, method: str, n: int, share: float) -> CostRow:
    return next(r for r in report.rows if (r.method, r.sub_questions, r.right_share) == (method, n, share))


def test_ours_makes_one_or_two_calls_and_the_others_grow_with_the_chain(report: CostsReport) -> None:
    for n in (1, 3, 7):
        # Of seven things the look finds three.
        assert {cell(report, "ours", n, share).calls for share in (0.0, 1.0)} == {2 if n == 7 else 1}
        assert {cell(report, "ours", n, share).retrievals for share in (0.0, 1.0)} == {5 if n == 7 else 1}
        for share in (0.0, 1.0):
            assert cell(report, "react", n, share).calls == cell(report, "self-ask", n, share).calls == n + 1
        assert [cell(report, "search-in-the-chain", n, share).calls for share in (0.0, 1.0)] == [n + 1, 1]
        assert {row.retrievals for row in report.rows if row.sub_questions == n and row.method != "ours"} == {n}
    ours = [row for row in report.rows if row.method == "ours"]
    assert all(1 <= row.fewest_calls <= row.most_calls <= 2 for row in ours)


def test_tokens_of_agents_grow_faster_than_those_of_ours(report: CostsReport) -> None:
    def growth(method: str) -> float:
        return cell(report, method, 7, 0.0).total_tokens / cell(report, method, 1, 0.0).total_tokens

    assert growth("ours") < 5 < min(growth(method) for method in ("react", "self-ask", "search-in-the-chain"))


def test_rows_come_by_share_then_length_then_method(report: CostsReport) -> None:
    assert [(row.right_share, row.sub_questions, row.method) for row in report.rows[:5]] == [
        (0.0, 1, "ours"),
        (0.0, 1, "react"),
        (0.0, 1, "self-ask"),
        (0.0, 1, "search-in-the-chain"),
        (0.0, 3, "ours"),
    ]
    assert len(report.rows) == 24
    assert all(row.questions == 2 for row in report.rows)


def test_the_same_script_costs_the_same_again(report: CostsReport) -> None:
    parts = [make_script(n, share, questions=2) for n in (1, 3, 7) for share in (0.0, 1.0)]
    script = Script(tuple(one for part in parts for one in part.questions))
    again = measure_costs(script, ["ours", "react", "self-ask", "search-in-the-chain"], k=3, concurrency=1)
    assert again == report


def test_it_works_where_a_loop_runs_already() -> None:
    async def run() -> CostsReport:
        return measure_costs(make_script(1, 1.0, questions=1), ["ours"])

    assert asyncio.run(run()).rows[0].calls == 1


def test_an_unknown_method_is_an_error() -> None:
    with pytest.raises(InputError, match="no method 'x'"):
        measure_costs(make_script(1, 1.0), ["x"])


def test_the_report_has_its_limits(report: CostsReport) -> None:
    [table] = report.tables()
    assert table.note == LIMITS
    assert ("0%", "7", "react") in [tuple(row[:3]) for row in table.rows]


def test_the_command_prints_a_table_and_writes_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> str:
        monkeypatch.setattr("sys.argv", ["costs", *arguments, "--methods", "ours,react"])
        main()
        return capsys.readouterr().out

    files = ["--save-script", str(tmp_path / "s.json")]
    shown = run("--sub-questions", "1,2", "--right", "0,1", "--questions", "1", *files)
    assert "react" in shown
    assert "Counted under a script" in shown
    again = json.loads(run(str(tmp_path / "s.json"), "--json"))
    assert [row["calls"] for row in again["rows"]] == [1, 2, 1, 3, 1, 2, 1, 3]
    assert again["rows"][0]["total_tokens"] == again["rows"][0]["input_tokens"] + again["rows"][0]["output_tokens"]
