"""What the page asks for besides LangGraph's routes: conversations with their rounds, passages, exports, the page itself."""

from __future__ import annotations

import json
import sqlite3
import threading
from typing import Any

import pytest

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.engine.corpus import EngineCorpus
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.server.collections import Collection
from langgraph_convcoa.server.page import spans
from langgraph_convcoa.server.runs import Run, to_json
from langgraph_convcoa.server.thread_book import key_of
from langgraph_convcoa.storage.thread_export import KIND
from tests.bounds import SECONDS, wait_until
from tests.fakes import FACTS
from tests.memory_engine import MemoryEngine
from tests.server.served import ANSWER, QUESTION, Served


@pytest.fixture(scope="module")
def thread(server: Served) -> str:
    made = server.thread_id()
    server.turn(made)
    server.turn(made, "When was that?")
    return made


def test_a_conversation_comes_with_all_its_rounds_or_the_last(server: Served, thread: str) -> None:
    told = server.ask("GET", f"/convcoa/threads/{thread}").json()
    assert (told["title"], told["collection"], told["status"]) == (QUESTION, "facts", "idle")
    assert (told["run_id"], told["unfinished"], told["waiting"]) == (None, "", None)
    assert [(one["question"], one["answer"]) for one in told["rounds"]] == [(QUESTION, ANSWER), ("When was that?", ANSWER)]
    assert all(one["citations"][0]["id"] == "hopfield-1982" and one["time"] for one in told["rounds"])
    assert [bool(one["usage"]) for one in told["rounds"]] == [False, True]
    last = server.ask("GET", f"/convcoa/threads/{thread}", params={"rounds": 1}).json()
    assert last["rounds"] == told["rounds"][1:]


def test_a_citation_opens_its_passage_with_the_quote(server: Served, thread: str) -> None:
    citation = server.ask("GET", f"/convcoa/threads/{thread}").json()["rounds"][0]["citations"][0]
    query = {"collection": "facts", "id": citation["id"], "quote": citation["quote"]}
    passage = server.ask("GET", "/convcoa/passages", params=query).json()
    assert passage["text"] == FACTS["hopfield-1982"]
    assert [passage["text"][start:end] for start, end in passage["spans"]] == [citation["quote"]]
    assert not server.ask("GET", "/convcoa/passages", params={**query, "quote": "not there"}).json()["spans"]
    assert server.ask("GET", "/convcoa/passages", params={**query, "id": "nobody"}).status_code == 404
    assert server.ask("GET", "/convcoa/passages", params={"collection": "facts"}).status_code == 422


@pytest.mark.timeout(30)
def test_a_quote_that_almost_stands_everywhere_costs_nothing() -> None:
    """As a pattern of its words it would take the better part of a minute, in which no other request is answered."""
    assert spans("a " * 50_000 + "c", "a " * 1_900 + "b") == []
    assert spans("a \n" * 50_000 + " c", "a " * 1_900 + "c … a") == [(0, 1), (150_000 - 3 * 1_900, 150_002)]


def test_of_a_whole_document_the_beginning_is_shown(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langgraph_convcoa.server.page._MOST_TEXT", 20)
    query = {"collection": "facts", "id": "hopfield-1982", "quote": FACTS["hopfield-1982"][-10:]}
    passage = server.ask("GET", "/convcoa/passages", params=query).json()
    assert (passage["text"], passage["spans"]) == (FACTS["hopfield-1982"][:20], [])


def test_an_export_is_a_file_that_the_command_line_imports(server: Served, thread: str) -> None:
    response = server.ask("GET", f"/convcoa/threads/{thread}/export")
    assert response.headers["content-disposition"].startswith("attachment")
    assert (response.json()["kind"], response.json()["thread"]) == (KIND, thread)
    server.ask("PATCH", f"/threads/{thread}", json={"metadata": {"title": "../<b>\r\nx: y"}})
    text = server.ask("GET", f"/convcoa/threads/{thread}/export", params={"format": "md"})
    assert text.headers["content-disposition"] == "attachment; filename*=UTF-8''b-x-y.md"
    assert text.headers["content-type"].startswith("text/markdown")
    assert f"## {QUESTION}" in text.text
    assert server.ask("GET", f"/convcoa/threads/{thread}/export", params={"format": "html"}).status_code == 422


def test_the_page_is_told_what_the_server_does(server: Served) -> None:
    told = server.ask("GET", "/convcoa/info").json()
    assert (told["models"], told["upload"]["max_mb"]) == ([], 1)
    assert {".pdf", ".md"} <= set(told["upload"]["extensions"])


@pytest.mark.slow
def test_a_collection_that_does_not_answer_is_listed_as_unavailable(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    answers, asked = threading.Event(), list[str]()

    class Failing(MemoryEngine):
        def count(self) -> int:
            asked.append(self.name)
            if self.name == "slow":
                assert answers.wait(SECONDS)
            elif self.name == "dead":
                raise RetrievalError("The collection cannot be reached")
            return 7

    def one(name: str) -> Collection:
        return Collection(name, name, name, HopfieldRetriever(corpus=EngineCorpus(Failing(name)), encoder=server.encoder))

    monkeypatch.setattr("langgraph_convcoa.server.collections._TELL_SECONDS", 5.0)
    shown = {"slow": one("slow"), "dead": one("dead"), "up": one("up"), **server.service.collections.shown}
    monkeypatch.setattr(server.service.collections, "shown", shown)

    def listed() -> dict[str, tuple[Any, ...]]:
        found = server.ask("GET", "/convcoa/collections").json()
        told = {one["id"]: (one["status"], one["message"], one["documents"], one["passages"]) for one in found}
        return {name: told[name] for name in shown}

    others = {
        "dead": ("unavailable", "The collection cannot be reached", None, None),
        "up": ("ready", "", None, 7),
        "facts": ("ready", "", len(FACTS), len(FACTS)),
    }
    for _ in range(2):
        assert listed() == {"slow": ("unavailable", "it does not answer at the moment", None, None), **others}
    assert sorted(asked) == ["dead", "dead", "slow", "up", "up"]
    answers.set()
    wait_until(lambda: listed()["slow"] == ("ready", "", None, 7), "it answers again")


@pytest.mark.parametrize("path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//etc/passwd"])
def test_nothing_but_the_pages_files_is_served(server: Served, path: str) -> None:
    assert server.ask("GET", path).status_code == 404


async def test_the_events_of_a_run_are_bounded_and_the_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langgraph_convcoa.server.runs._MOST_BYTES", 10_000)
    run = Run("t", "convcoa")
    for number in range(1_000):
        run.publish("custom", {"number": number})
    run.end()
    parts = [part async for part in run.follow()]
    assert sum(map(len, parts)) == run.size <= 10_000
    assert b'{"number":999}' in parts[-2]
    assert [part[:8] async for part in run.follow(999)] == [b"id: 1000", b"id: 1001"]
    assert [part async for part in run.follow(10**9)] == []


async def test_a_comment_keeps_an_idle_stream_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langgraph_convcoa.server.runs.PING_SECONDS", 0.01)
    run = Run("t", "convcoa")
    parts = run.follow()
    assert (await anext(parts)).startswith(b": ")
    run.publish("custom", 1)
    assert b"event: custom" in await anext(parts)
    run.end()
    assert [part.split(b"\n")[1] async for part in parts] == [b"event: end"]


def test_a_store_that_fails_is_told(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async def locked(user: str) -> None:
        raise sqlite3.OperationalError("database is locked")

    monkeypatch.setattr(server.service.book, "all", locked)
    response = server.ask("POST", "/threads/search", json={})
    assert (response.status_code, "is in use by another program" in response.json()["detail"]) == (503, True)


def test_no_users_thread_has_the_name_of_anothers() -> None:
    names = {key_of(user, thread) for user in ("", "a", "ab", "a/b", "é") for thread in ("t", "b/t", "x")}
    assert len(names) == 15


@pytest.mark.parametrize("limit", ["Infinity", "-Infinity", "NaN", "1e400"])
def test_a_number_that_is_none_is_told(server: Served, limit: str) -> None:
    response = server.ask(
        "POST", "/threads/search", content=f'{{"limit": {limit}}}', headers={"content-type": "application/json"}
    )
    assert (response.status_code, "whole number" in response.json()["detail"]) == (422, True)


def test_whatever_a_document_says_is_json() -> None:
    value = {"text": "\ud800\u2028</script>", "numbers": [float("inf"), float("nan")], "set": {1}}
    assert json.loads(to_json(value)) == {"text": "\ud800\u2028</script>", "numbers": [None, None], "set": [1]}
