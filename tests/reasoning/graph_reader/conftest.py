"""A tiny language model on disk."""

from __future__ import annotations

import pytest

from tests.reasoning.graph_reader.tiny import save_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tiny_model(tmp_path_factory.mktemp("reader") / "model")
