"""What every test gets: strict checkpoints, no tracing, no keys from the environment."""

from __future__ import annotations

import os

# Before langgraph is imported: it reads this once. One test runs a graph without it, in a process of its own.
os.environ.setdefault("LANGGRAPH_STRICT_MSGPACK", "true")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "OPENAI_API_BASE",
        "LANGSMITH_API_KEY",
        "LANGCHAIN_TRACING_V2",
        "CONVCOA_MODEL",
    ):
        monkeypatch.delenv(name, raising=False)
