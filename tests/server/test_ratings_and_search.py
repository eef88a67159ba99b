"""What a person thinks of an answer, stored with its round; and the search over conversations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from langgraph_convcoa.server.guard import Access
from tests.cli.commands import convcoa
from tests.server.served import ANSWER, PROXY, QUESTION, Served, served
from tests.server.test_forks import conversation, forked

SEARCH = "/convcoa/threads"


def rate(server: Served, thread: str, number: Any, rating: Any) -> int:
    return server.ask("POST", f"{SEARCH}/{thread}/rating", json={"round": number, "rating": rating}).status_code


def ratings(server: Served, thread: str) -> list[str]:
    return [one["rating"] for one in conversation(server, thread)["rounds"]]


def test_a_rating_is_stored_with_its_round_and_exported(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        thread = server.thread_id()
        server.turn(thread)
        server.turn(thread, "When was that?")
        before = conversation(server, thread)["before"]
        assert ratings(server, thread) == ["", ""]
        assert [rate(server, thread, 1, "up"), rate(server, thread, 2, "down")] == [204, 204]
        assert ratings(server, thread) == ["up", "down"]
        # A prompt does not show it, and the next turn keeps it.
        server.turn(thread, "And who?")
        assert "down" not in server.model.prompts[-1]
        assert rate(server, thread, 1, "") == 204
        assert ratings(server, thread) == ["", "down", ""]
        assert [rate(server, thread, 9, "up"), rate(server, thread, 1, "good"), rate(server, thread, "x", "up")] == [422] * 3
        assert rate(server, "nobody", 1, "up") == 404
        markdown = server.ask("GET", f"{SEARCH}/{thread}/export", params={"format": "md"}).text
        assert markdown.count("Rated: down") == 1
        assert before != conversation(server, thread)["before"]
    for name, told in (("t.md", "Rated: down"), ("t.json", '"rating": "down"')):
        words = ["threads", "export", thread, "--out", str(tmp_path / name), "--store", str(tmp_path / "store.sqlite")]
        convcoa(*words, code=0)
        assert (tmp_path / name).read_text().count(told) == 1


def test_a_rated_turn_can_be_asked_again_and_loses_its_rating(server: Served) -> None:
    thread = server.thread_id()
    server.turn(thread)
    before = conversation(server, thread)["before"]
    assert rate(server, thread, 1, "up") == 204
    assert forked(server, thread, before, None)["answer"] == ANSWER
    assert ratings(server, thread) == [""]


def test_a_turn_that_runs_or_was_stopped_is_not_disturbed(server: Served) -> None:
    thread = server.thread_id()
    server.turn(thread)
    with server.held():
        run = server.ask("POST", f"/threads/{thread}/runs", json={"input": {"question": "And then?"}}).json()["run_id"]
        assert rate(server, thread, 1, "up") == 409
        server.ask("POST", f"/threads/{thread}/runs/{run}/cancel")
    assert rate(server, thread, 1, "up") == 422
    output = server.ask("POST", f"/threads/{thread}/runs/wait", json={"input": None}).json()
    assert output["answer"] == ANSWER


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from ipaddress import ip_network

    access = Access(user_header=PROXY, proxies=(ip_network("127.0.0.1"),), max_upload=1_000_000)
    with served(tmp_path_factory.mktemp("users"), access) as found:
        yield found


def test_words_of_questions_and_answers_find_a_users_own_conversations(users: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    ann, bob = {PROXY: "ann"}, {PROXY: "bob"}
    first, second = users.thread_id(**ann), users.thread_id(**ann)
    users.turn(first, QUESTION, **ann)
    users.turn(first, "Where is the xylophone (old)?", **ann)
    users.turn(second, QUESTION, **ann)
    users.turn(users.thread_id(**bob), "Where is the xylophone?", **bob)

    def found(words: str, **headers: str) -> list[str]:
        told = users.ask("GET", SEARCH, params={"words": words}, headers=headers or ann).json()
        assert told["complete"]
        return [one["thread_id"] for one in told["threads"]]

    assert found("XYLOPHONE") == [first]
    assert found("hopfield (old)") == [first]
    # Of an answer; the newest first.
    assert found("described 1982") == [second, first]
    assert found("xylophone violin") == found("") == []
    assert len(found("xylophone", **bob)) == 1
    told = users.ask("GET", SEARCH, params={"words": "xylophone"}, headers=ann).json()["threads"][0]
    assert "the xylophone (old)" in told["excerpt"]
    assert told["metadata"]["title"] == QUESTION
    monkeypatch.setattr("langgraph_convcoa.server.service.MOST_SEARCHED", 1)
    told = users.ask("GET", SEARCH, params={"words": "xylophone"}, headers=ann).json()
    assert told == {"threads": [], "complete": False}
