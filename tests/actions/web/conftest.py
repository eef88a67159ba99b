from __future__ import annotations

from collections.abc import Iterator

import pytest

from langgraph_convcoa.retrieval.documents.markup import load_extractor
from langgraph_convcoa.retrieval.documents.worker import Workers
from tests.actions.web.site import Canary


class SharedWorkers(Workers):
    """Workers that stay open after a `with` block."""

    def __exit__(self, *error: object) -> None:
        pass


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    shared = SharedWorkers(2, prepare=load_extractor)
    yield shared
    Workers.__exit__(shared, None, None, None)


@pytest.fixture(scope="module")
def canary() -> Iterator[Canary]:
    with Canary() as running:
        yield running


@pytest.fixture(autouse=True)
def _shared_workers(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Actions of these tests share their processes, which take seconds to start."""
    monkeypatch.setattr("langgraph_convcoa.actions.web.pages.Workers", lambda *arguments, **options: workers)
