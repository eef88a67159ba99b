from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from langgraph_convcoa.retrieval.documents.markup import load_extractor
from langgraph_convcoa.retrieval.documents.worker import Workers


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    with Workers(2, prepare=load_extractor) as shared:
        yield shared


@pytest.fixture(autouse=True)
def _shared_workers(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Actions of these tests share their processes, which take seconds to start."""
    monkeypatch.setattr("langgraph_convcoa.actions.web.action.Workers", lambda *arguments, **options: workers)
    monkeypatch.setattr("langgraph_convcoa.actions.web.documents.Workers", lambda *arguments, **options: nullcontext(workers))
