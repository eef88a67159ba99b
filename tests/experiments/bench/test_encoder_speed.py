"""The benchmark of indexing, with a small model."""

from __future__ import annotations

from pathlib import Path

import pytest
from langchain_core.documents import Document

from experiments.bench.encoder import BASELINE, bench_encoder
from langgraph_convcoa.datasets.queries import Dataset
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from tests.retrieval.tiny_bert import save_tiny_bert


def test_all_ways_of_encoding_beside_sentence_transformers(tmp_path: Path) -> None:
    SentenceTransformerEncoder(str(save_tiny_bert(tmp_path / "bert")), device="cpu").save(tmp_path / "saved")
    saved = str(tmp_path / "saved")
    report = bench_encoder(saved, passages=2, runs=1)
    assert [row.method for row in report.rows] == [BASELINE, "int8", "float32"]
    assert report.rows[0].to_baseline == 1
    eight, plain = report.rows[1:]
    assert 0.97 < min(eight.windows_cosine, eight.wholes_cosine) < 0.9999 < min(plain.windows_cosine, plain.wholes_cosine)
    assert all(row.pieces_per_second > 0 for row in report.rows)
    assert [len(table.rows) for table in report.tables()] == [3]
    with pytest.raises(InputError, match="at least 1"):
        bench_encoder(saved, passages=0)
    with pytest.raises(InputError, match="200 words"):
        bench_encoder(saved, dataset=Dataset("short", (), (Document("what is it", id="a"),)))
