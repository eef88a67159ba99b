"""Costs under a script, and the table of the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.costs.__main__ import main
from experiments.costs.measure import measure_costs
from experiments.costs.scripted import Script, make_script


def test_ours_makes_one_or_two_calls_and_the_others_grow_with_the_chain() -> None:
    parts = [make_script(n, share, questions=2) for n in (1, 3, 7) for share in (0.0, 1.0)]
    script = Script(tuple(one for part in parts for one in part.questions))
    found = measure_costs(script, ["ours", "react", "self-ask", "search-in-the-chain"], k=3)
    rows = {(row.method, row.sub_questions, row.right_share): row for row in found.rows}
    for (method, n, share), row in rows.items():
        # Of seven things the look finds three.
        calls = {"ours": 2 if n == 7 else 1, "search-in-the-chain": 1 if share else n + 1}.get(method, n + 1)
        assert row.fewest_calls == row.calls == row.most_calls == calls
        assert row.retrievals == ((5 if n == 7 else 1) if method == "ours" else n)

    def growth(method: str) -> float:
        return rows[method, 7, 0.0].total_tokens / rows[method, 1, 0.0].total_tokens

    assert growth("ours") < 5 < min(growth(method) for method in ("react", "self-ask", "search-in-the-chain"))


def test_the_command_prints_a_table_and_writes_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: str) -> str:
        monkeypatch.setattr("sys.argv", ["costs", *arguments, "--methods", "ours,react"])
        main()
        return capsys.readouterr().out

    files = ["--save-script", str(tmp_path / "s.json")]
    assert "Counted under a script" in run("--sub-questions", "1,2", "--right", "0,1", "--questions", "1", *files)
    again = json.loads(run(str(tmp_path / "s.json"), "--json"))
    assert [row["calls"] for row in again["rows"]] == [1, 2, 1, 3, 1, 2, 1, 3]
