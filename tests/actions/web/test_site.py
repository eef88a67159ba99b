"""The whole way over a real server: good and bad pages, limits, and the graph's answer from one of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from langgraph_convcoa.actions.base import ActionRequest
from langgraph_convcoa.actions.web.action import WebQuerying
from langgraph_convcoa.actions.web.fetch import FetchLimits
from langgraph_convcoa.actions.web.search import SearchResult, SearXNG
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.graph import build_graph
from tests.actions.web.site import ANSWER, INJECTED, Canary, Served, Site, article, bad_and_good_pages
from tests.bounds import SECONDS
from tests.fake_encoder import WordEncoder
from tests.fakes import WORDS, ScriptedModel, corrections, node, plan

pytest.importorskip("trafilatura")

QUESTION = "When was the Halvorsen Bridge in Tarnby opened to traffic?"
# Far above what a page takes on a busy machine, and below what the slow ones take.
LIMITS = FetchLimits(seconds=15.0, total_seconds=100.0, retries=1)


@pytest.fixture
def site(canary: Canary) -> Iterator[Site]:
    with Site(bad_and_good_pages(canary.port)) as running:
        yield running


def action(site: Site, **settings: Any) -> WebQuerying:
    settings = {"limits": LIMITS, "results": 30, "pages": 30, "encoder": WordEncoder(), **settings}
    return WebQuerying(SearXNG(site.base_url), guard=site.guard(), **settings)


def ask(web: WebQuerying, question: str = QUESTION, **fields: Any) -> list[Any]:
    return asyncio.run(web.retrieve(ActionRequest(question=question, sub_question=question, **fields)))


@pytest.mark.slow
def test_a_set_of_bad_pages_ends_within_its_limits_and_reaches_nothing_forbidden(
    site: Site, canary: Canary, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="langgraph_convcoa.actions.web.action")
    found = asyncio.run(asyncio.wait_for(action(site).retrieve(ActionRequest(QUESTION, QUESTION, k=40, depth=2)), SECONDS))
    told = [str(record.message) for record in caplog.records if record.name == "langgraph_convcoa.actions.web.action"]
    reasons = {line.split(": ")[0].rsplit("/", 1)[-1]: line for line in told}
    expected = {
        "slow": "longer than 15 s", "drip": "longer than 15 s", "error": "status 500", "loop": "redirects more than 5 times",
        "loop2": "redirects more than 5 times", "metadata": "private or local network", "inside": "private or local network",
        "big": "larger than 5 MB", "declared": "larger than 5 MB", "bomb": "larger than 5 MB", "empty": "no text",
        "broken.pdf": "no readable PDF", "image": "image/png", "cut": "connection failed", "deep": "no text",
        "private": "robots.txt",
    }  # fmt: skip
    assert set(reasons) == set(expected)
    assert {name: part for name, part in expected.items() if part not in reasons[name]} == {}
    assert canary.reached == 0
    assert site.asked["/private"] == 0
    assert site.asked["/robots.txt"] == 1
    # Of 50 MB no more was taken than what fits into the buffers behind the limit.
    assert site.sent < 30_000_000
    by_path = {document.metadata["source"].rsplit("/", 1)[-1]: document for document in found}
    assert set(by_path) == {"charset", "paper.pdf", "orders", "hidden", "busy", "new", "answer"}
    assert "Brücke in Zürich" in by_path["charset"].page_content
    assert "214 metres" in by_path["paper.pdf"].page_content
    assert found[0].metadata["source"] == site.url("/answer")
    assert found[0].metadata["date"] == "2021-05-12"
    assert found[0].metadata["title"] == "The Halvorsen Bridge"
    text = " ".join(document.page_content for document in found)
    assert "is near Tarnby" in text
    assert "1805" not in text
    assert "Ignore all" not in text


@pytest.mark.slow
def test_the_graph_answers_from_the_page_that_holds_it_and_cites_it_without_a_model(site: Site) -> None:
    graph = build_graph(actions=[action(site)], context=ConvCoAContext(action_timeout=SECONDS)).compile()
    out = graph.invoke({"question": QUESTION})
    assert "1931" in out["answer"]
    assert out["citations"][0]["source"] == site.url("/answer")
    assert INJECTED[-20:] not in out["answer"]
    assert out["chain"][0]["action"] == "web_querying"
    assert out["usage"]["retrievals"] == 2


PAGES = {
    "/answer": Served(article("The Halvorsen Bridge", ANSWER, date="2021-05-12")),
    "/other": Served(article("Else", "Tea.")),
}


@pytest.fixture
def small() -> Iterator[Site]:
    with Site(PAGES) as running:
        yield running


def test_a_missing_guess_is_filled_from_a_page_and_the_model_sees_its_date(small: Site) -> None:
    model = ScriptedModel(
        replies=[
            plan(node(QUESTION, action="web_querying", action_input="halvorsen bridge opened")),
            corrections("It was opened to traffic in 1931.", final="The Halvorsen Bridge was opened to traffic in 1931 [1]."),
        ]
    )
    out = build_graph(model=model, actions=[action(small)], verifier=WORDS).compile().invoke({"question": QUESTION})
    assert out["answer"] == "The Halvorsen Bridge was opened to traffic in 1931 [1]."
    assert out["citations"][0]["source"] == small.url("/answer")
    assert out["chain"][0]["status"] == "filled"
    assert small.queries == ["halvorsen bridge opened"], "depth 2 must not search again"
    assert f"] The Halvorsen Bridge (2021-05-12)\n{ANSWER}" in model.prompts[1]


def test_a_guess_that_snippets_bear_out_reads_no_page(small: Site) -> None:
    guess = "The page /answer is about the Halvorsen Bridge."
    model = ScriptedModel(replies=[plan(node("What is the page /answer about?", guess, action="web_querying"), final=guess)])
    out = build_graph(model=model, actions=[action(small)]).compile().invoke({"question": "What is the page /answer about?"})
    assert out["chain"][0]["status"] == "kept"
    assert set(small.asked) == {"/search"}


def test_depth_1_gives_titles_and_snippets_of_one_request(small: Site) -> None:
    encoder = WordEncoder()
    found = ask(action(small, encoder=encoder), k=1)
    assert [document.id for document in found] == [f"{small.url('/answer')}#snippet"]
    assert found[0].page_content == "Page /answer: About the Halvorsen Bridge /answer"
    assert found[0].metadata["source"] == small.url("/answer")
    assert small.asked == {"/search": 1}
    assert encoder.encoded == []


def test_pages_are_read_at_depth_1_by_a_setting_of_the_action_or_of_the_run(small: Site) -> None:
    for web, settings in ((action(small, read_pages_first=True), {}), (action(small), {"read_pages_first": True})):
        found = ask(web, settings=settings)
        assert found[0].page_content.endswith(ANSWER)
    assert not ask(action(small, read_pages_first=True), settings={"read_pages_first": False})[0].page_content.endswith(ANSWER)


def test_depth_2_reads_the_pages_whose_title_and_snippet_are_nearest(small: Site) -> None:
    def search(query: str) -> list[dict[str, str]]:
        return [
            {"title": "Tea", "url": small.url("/other"), "snippet": "How to make tea"},
            {"title": "Bridge", "url": small.url("/answer"), "snippet": "The Halvorsen Bridge was opened"},
        ]

    given = {"encoder": WordEncoder(), "guard": small.guard(), "limits": LIMITS}
    for web, settings in ((WebQuerying(search, pages=1, **given), {}), (WebQuerying(search, **given), {"pages": 1})):
        found = ask(web, depth=2, guess_answer="1931", settings=settings)
        assert [document.metadata["source"] for document in found] == [small.url("/answer")]
        assert small.asked["/other"] == 0


def test_a_run_says_how_many_results_are_asked_for(small: Site) -> None:
    asked = []

    class Own:
        name = "own"

        async def search(self, query: str, n: int) -> list[SearchResult]:
            asked.append(n)
            return []

    ask(WebQuerying(Own()), settings={"results": 3})
    assert asked == [3]


def test_pages_come_from_the_cache_until_they_expire(small: Site, tmp_path: Any) -> None:
    file = tmp_path / "web.sqlite"
    for _ in range(2):
        found = ask(action(small, cache=file), depth=2)
        assert found[0].metadata["date"] == "2021-05-12"
    assert small.asked["/answer"] == 1
    ask(action(small, cache=file, cache_seconds=0), depth=2)
    assert small.asked["/answer"] == 1, "what is kept is still used"
    ask(action(small, cache_seconds=0), depth=2)
    assert small.asked["/answer"] == 2


def test_a_page_that_one_setting_allows_does_not_come_out_of_the_cache_under_another(small: Site, tmp_path: Any) -> None:
    file = tmp_path / "web.sqlite"
    assert ask(action(small, cache=file), depth=2)
    closed = WebQuerying(SearXNG(small.base_url), cache=file, encoder=WordEncoder(), results=30, limits=LIMITS)
    assert ask(closed, depth=2) == []


async def test_many_look_ups_at_once_read_a_page_once_and_few_at_a_time(small: Site) -> None:
    web = action(small)
    requests = [ActionRequest(QUESTION, f"{QUESTION} {n}", action_input=str(n), depth=2) for n in range(6)]
    found = await asyncio.gather(*map(web.retrieve, requests))
    assert all(documents[0].page_content.endswith(ANSWER) for documents in found)
    assert small.asked["/answer"] == 1
    assert small.most_running[f"site.test:{small.port}"] <= 2


def test_an_action_serves_one_event_loop_after_another(small: Site) -> None:
    web = action(small, cache_seconds=0)
    assert ask(web, depth=2)
    assert ask(web, depth=2)
    assert small.asked["/answer"] == 2


def test_a_search_that_fails_is_told_and_costs_nothing_else() -> None:
    with Site({}, results=[]) as nothing:
        assert ask(action(nothing)) == []
        address = nothing.base_url
    out = build_graph(actions=[WebQuerying(SearXNG(address, timeout=SECONDS))]).compile().invoke({"question": QUESTION})
    assert out["chain"][0]["status"] == "failed"
    assert "SearXNG cannot be reached" in out["answer"]
