"""What the tests of commands share: a fast encoder, folders of their own, two documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fake_encoder import WordEncoder


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> WordEncoder:
    """The encoder of all commands; their caches and stores are empty."""
    words = WordEncoder()
    for module in ("evaluation.retrieval.compare", "retrieval.retriever"):
        monkeypatch.setattr(f"langgraph_convcoa.{module}.as_encoder", lambda _encoder: words, raising=False)
    monkeypatch.setenv("CONVCOA_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setenv("CONVCOA_DATA_DIR", str(tmp_path_factory.mktemp("home") / "data"))
    monkeypatch.delenv("CONVCOA_STORE", raising=False)
    return words


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "hopfield.md").write_text(
        "# Hopfield\n\nJohn Hopfield described the Hopfield network in 1982. It stores patterns."
    )
    (folder / "sparsemax.txt").write_text("Sparsemax was introduced by Martins and Astudillo in 2016.")
    return folder
