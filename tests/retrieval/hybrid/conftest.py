"""What is added to a BM25 index during a test."""

from __future__ import annotations

import pytest

from langgraph_convcoa.retrieval.hybrid.bm25 import BM25Index


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The ids of the passages whose words were counted."""
    seen: list[str | None] = []
    add = BM25Index.add

    def noted(self, passages, keys=None):
        found = list(passages)
        seen.extend(passage.id for passage in found)
        add(self, found, keys)

    monkeypatch.setattr(BM25Index, "add", noted)
    return seen
