"""The peers find what a question leaves out, and the command prints their figures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.peers import __main__ as command
from experiments.peers.readers import peer_rankers
from langgraph_convcoa.datasets.queries import Dataset
from langgraph_convcoa.evaluation.retrieval.compare import evaluate_retrieval
from langgraph_convcoa.evaluation.retrieval.rankers import passage_pool
from tests.data import write_dataset
from tests.evaluation.retrieval.test_compare import CORPUS, FOLLOW_UP, SHORT
from tests.retrieval.conftest import BagOfWords

LIKE = replace(FOLLOW_UP, history=(("Who proposed sparsemax?", "Martins"),))
DATA = Dataset("talk", (LIKE,), (*CORPUS, SHORT))
NAMES = ("two-turns", "history", "rewrite", "convgqr-like", "lecore-like", "haconvdr-like", "haconvdr-oracle")


def test_methods_that_read_the_history_find_what_the_question_leaves_out() -> None:
    encoder = BagOfWords()
    peers = peer_rankers(passage_pool(DATA), encoder)
    report = evaluate_retrieval(DATA, methods=[*peers], further=peers, encoder=encoder)
    found = {name: result.metrics["Recall@1"] for name, result in report.methods.items()}
    assert found == {"question": 0, "question-hybrid": 0, **dict.fromkeys(NAMES, 1), **{f"{name}-hybrid": 1 for name in NAMES}}


def test_the_command_prints_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "SentenceTransformerEncoder", lambda _name, dtype: BagOfWords())
    monkeypatch.setenv("CONVCOA_CACHE_DIR", str(tmp_path / "cache"))
    write_dataset(tmp_path, DATA.queries, DATA.corpus)
    command.main([str(tmp_path), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["methods"]["lecore-like-hybrid"]["Recall@1"] == 1
