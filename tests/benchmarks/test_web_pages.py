"""Pages are read side by side: ten that take half a second each, over a real server on loopback: `make bench`."""

from __future__ import annotations

import asyncio

import pytest
from langchain_core.documents import Document
from pytest_benchmark.fixture import BenchmarkFixture

from langgraph_convcoa.actions.base import ActionRequest
from langgraph_convcoa.actions.web.action import WebQuerying
from langgraph_convcoa.retrieval.documents.markup import load_extractor
from tests.actions.web.site import Served, Site, article
from tests.fake_encoder import WordEncoder

pytest.importorskip("trafilatura")


@pytest.mark.slow
@pytest.mark.benchmark(group="web pages")
@pytest.mark.parametrize("robots", [False, True], ids=["pages", "robots.txt and pages"])
def test_ten_pages_of_half_a_second(benchmark: BenchmarkFixture, robots: bool) -> None:
    """The whole second look: choosing, reading and ranking the pages of ten hosts. The target is 1.5 s."""
    load_extractor()
    paragraph = "The bridge was opened to traffic in 1931 and carries a tramway over the river. " * 8
    pages = {f"/{n}": Served(article(f"Page {n}", *[f"{paragraph} Number {n}."] * 5), delay=0.5) for n in range(10)}
    with Site(pages) as site:

        def search(query: str) -> list[dict[str, str]]:
            return [
                {"title": f"Page {n}", "url": site.url(f"/{n}", f"host{n}.test"), "snippet": "A bridge"} for n in range(10)
            ]

        def look() -> list[Document]:
            web = WebQuerying(search, pages=10, encoder=WordEncoder(), guard=site.guard(), respect_robots=robots)
            question = "When was the bridge opened?"
            return asyncio.run(web.retrieve(ActionRequest(question, question, k=10, depth=2)))

        found = benchmark.pedantic(look, rounds=5, warmup_rounds=1)
    assert len(found) == 10
    assert {document.metadata["source"] for document in found} <= {site.url(f"/{n}", f"host{n}.test") for n in range(10)}
    assert all(site.asked[f"/{n}"] for n in range(10))
