import json

import numpy as np
import pytest
from typer.testing import CliRunner

from langgraph_convcoa.cli.app import app
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.bench.scoring import bench_scoring, synthetic_memory
from langgraph_convcoa.evaluation.reports.kit import save_picture

SMALL = {
    "batches": (1, 3),
    "dimension": 16,
    "k": 5,
    "runs": 2,
    "methods": ("product", "float32", "int8"),
}


def test_every_method_at_every_size_and_batch():
    report = bench_scoring((300, 500), **SMALL)
    assert [(row.patterns, row.batch) for row in report.rows if row.method == "product"] == [
        (300, 1),
        (300, 3),
        (500, 1),
        (500, 3),
    ]
    assert len(report.rows) == 4 * len(SMALL["methods"])
    for row in report.rows:
        assert row.median_ms >= row.fastest_ms > 0
        assert (row.recall is None) == (row.method == "product")
    assert {row.recall for row in report.rows if row.method == "float32"} == {1.0}
    assert {row.to_product for row in report.rows if row.method == "product"} == {1.0}


def test_a_report_without_the_product_has_no_ratio_to_it():
    report = bench_scoring((300,), batches=(1,), methods=("int8",), dimension=16, runs=1)
    assert report.rows[0].to_product is None
    assert report.rows[0].to_float32 is None


def test_faiss_is_timed_where_it_is_installed():
    pytest.importorskip("faiss")
    report = bench_scoring((300,), batches=(2,), methods=("product", "faiss"), dimension=16, runs=1)
    assert [row.method for row in report.rows] == ["product", "faiss"]


def test_a_picture(tmp_path):
    pytest.importorskip("matplotlib")
    report = bench_scoring((300, 500), **SMALL)
    save_picture(report.figure(), tmp_path / "time.png")
    assert (tmp_path / "time.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"methods": ("nothing",)}, "nothing"), ({"methods": ()}, "none"), ({"sizes": (0,)}, "at least 1")],
)
def test_settings_that_cannot_be_timed(settings, message):
    with pytest.raises(InputError, match=message):
        bench_scoring(**{"runs": 1, **settings})


def test_the_command_prints_a_table_or_json():
    command = [
        "bench",
        "scoring",
        "--patterns",
        "300",
        "--batch",
        "2",
        "--dimension",
        "16",
        "--runs",
        "1",
        "--methods",
        "product,int8",
    ]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0
    assert "int8" in result.stdout
    result = CliRunner().invoke(app, [*command, "--json"])
    assert [row["method"] for row in json.loads(result.stdout)["rows"]] == ["product", "int8"]


@pytest.mark.parametrize("size", [2, 3, 20, 1000, 70_000])
def test_synthetic_memories_have_the_size_asked_for(size):
    patterns, queries = synthetic_memory(size, 8, 3, seed=1)
    assert len(patterns.values) == size
    assert np.diff(patterns.offsets).max() <= 30
    np.testing.assert_allclose(np.linalg.norm(patterns.values, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(queries, axis=1), 1, rtol=1e-5)


def test_passages_lie_in_topics_and_windows_near_their_passage():
    patterns, queries = synthetic_memory(20_000, 384, 5, seed=0)
    firsts = patterns.offsets[:-1]
    whole = patterns.values[firsts]
    near = (whole[:200] @ whole.T > 0.35).sum(axis=1)
    # About one in 500 shares the topic, itself among them.
    assert 3 < near.mean() < 12
    np.testing.assert_allclose((patterns.values[firsts + 1] * whole).sum(axis=1).mean(), 0.78, atol=0.01)
    np.testing.assert_allclose((queries @ whole.T).max(axis=1), 0.78, atol=0.12)
