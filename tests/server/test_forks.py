"""The last question asked again or edited: the run starts from the state before it, and nothing of the old turn stays."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import wait_until
from tests.fakes import direct
from tests.server.served import ANSWER, QUESTION, Served, events, served

SPARSEMAX = "Sparsemax was introduced by Martins and Astudillo in 2016 [1]."
EDITED = "Who introduced sparsemax?"
MISTAKE = "When was the Hopfield notwerk described?"


def conversation(server: Served, thread: str) -> dict[str, Any]:
    told: dict[str, Any] = server.ask("GET", f"/convcoa/threads/{thread}").json()
    return told


def questions(told: dict[str, Any]) -> list[str]:
    return [one["question"] for one in told["rounds"]]


def forked(server: Served, thread: str, before: str, question: str | None = EDITED) -> dict[str, Any]:
    given = {"input": question and {"question": question}, "checkpoint_id": before}
    output: dict[str, Any] = server.ask("POST", f"/threads/{thread}/runs/wait", json=given).json()
    return output


def test_an_edited_question_leaves_nothing_of_the_earlier_turn(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        thread = server.thread_id()
        server.turn(thread)
        server.turn(thread, MISTAKE)
        server.reply = lambda prompt: direct(SPARSEMAX)
        output = forked(server, thread, conversation(server, thread)["before"])
        assert output["answer"] == SPARSEMAX
        assert [message["content"] for message in output["messages"] if message["type"] == "human"] == [QUESTION, EDITED]
        assert "notwerk" not in server.model.prompts[-1]
        told = conversation(server, thread)
        assert (questions(told), told["status"]) == ([QUESTION, EDITED], "idle")
        assert [one["number"] for one in told["rounds"]] == [1, 2]
        server.turn(thread, "And when was that?")
        assert "notwerk" not in "".join(server.model.prompts[-1:])
        with closing(sqlite3.connect(tmp_path / "store.sqlite")) as connection:
            stored = [
                bytes(part) for table in ("checkpoints", "writes") for row in connection.execute(f"SELECT * FROM {table}")
                for part in row if isinstance(part, bytes)
            ]  # fmt: skip
        assert any(EDITED.encode() in part for part in stored)
        assert not any(b"notwerk" in part for part in stored)


async def test_langgraphs_client_forks_from_the_parent_of_the_last_state(server: Served) -> None:
    sdk = pytest.importorskip("langgraph_sdk")
    async with sdk.get_client(url=server.url, api_key=None) as client:
        thread = (await client.threads.create())["thread_id"]
        await client.runs.wait(thread, "convcoa", input={"question": QUESTION})
        last, before = await client.threads.get_history(thread)
        assert last["parent_checkpoint"] == before["checkpoint"]
        assert (len(last["values"]["messages"]), before["values"]["messages"], before["values"]["answer"]) == (2, [], "")
        asked = server.asked
        # Without an input the same question is asked again, also where it is the first one.
        output = await client.runs.wait(thread, "convcoa", input=None, checkpoint=before["checkpoint"])
        assert (output["answer"], server.asked - asked) == (ANSWER, 1)
        assert questions(conversation(server, thread)) == [QUESTION]
        message = {"role": "user", "content": EDITED, "id": "m2"}
        parent = (await client.threads.get_state(thread))["parent_checkpoint"]
        output = await client.runs.wait(thread, "convcoa", input={"messages": [message]}, checkpoint=parent)
        assert [one["content"] for one in output["messages"] if one["type"] == "human"] == [EDITED]


@pytest.mark.parametrize("how", ["fails", "is stopped"])
def test_an_edit_that_fails_keeps_the_old_turn(server: Served, how: str) -> None:
    thread = server.thread_id()
    server.turn(thread)
    server.turn(thread, "When was that?")
    old = conversation(server, thread)

    def fail(prompt: str) -> str:
        raise ConnectionError("the model cannot be reached")

    if how == "fails":
        own, server.reply = server.reply, fail
        try:
            assert "cannot reach the model" in forked(server, thread, old["before"])["__error__"]["message"]
        finally:
            server.reply = own
    else:
        with server.held():
            asked = server.asked
            given = {"input": {"question": EDITED}, "checkpoint_id": old["before"]}
            run = server.ask("POST", f"/threads/{thread}/runs", json=given).json()["run_id"]
            wait_until(lambda: server.asked > asked, "the model is asked")
            assert conversation(server, thread)["unfinished"] == EDITED
            server.ask("POST", f"/threads/{thread}/runs/{run}/cancel")
    kept = conversation(server, thread)
    assert kept == old
    assert forked(server, thread, kept["before"], None)["answer"] == ANSWER
    assert questions(conversation(server, thread)) == [QUESTION, "When was that?"]


def test_the_last_checkpoint_beside_a_question_or_a_decision_replaces_nothing(server: Served) -> None:
    """Clients of LangGraph send it with all that they submit."""
    thread = server.thread_id()
    server.turn(thread)

    def submit(**given: Any) -> dict[str, Any]:
        given["checkpoint"] = server.ask("POST", f"/threads/{thread}/history", json={"limit": 1}).json()[0]["checkpoint"]
        output: dict[str, Any] = server.ask("POST", f"/threads/{thread}/runs/wait", json=given).json()
        return output

    assert submit(input={"question": EDITED})["answer"] == ANSWER
    assert questions(conversation(server, thread)) == [QUESTION, EDITED]
    waiting = submit(input={"question": "When was that?"}, context={"approve": ["answer"]})
    assert "__interrupt__" in waiting
    assert submit(command={"resume": {"decisions": [{"type": "approve"}]}})["answer"] == ANSWER
    assert questions(conversation(server, thread)) == [QUESTION, EDITED, "When was that?"]


def test_only_the_last_turn_is_replaced(server: Served) -> None:
    thread = server.thread_id()
    server.turn(thread)
    before = conversation(server, thread)["before"]
    server.turn(thread, "When was that?")
    for wrong in (before, "nothing"):
        assert "has gone on since" in forked(server, thread, wrong)["__error__"]["message"]
    told = conversation(server, thread)
    assert (questions(told), told["status"]) == ([QUESTION, "When was that?"], "idle")


def test_an_edited_question_may_wait_for_approval(tmp_path: Path) -> None:
    with served(tmp_path, approve=["plan"]) as server:
        thread = server.thread_id()
        approved = {"command": {"resume": {"decisions": [{"type": "approve"}]}}}
        server.turn(thread)
        assert server.ask("POST", f"/threads/{thread}/runs/wait", json=approved).json()["answer"] == ANSWER
        assert "__interrupt__" in forked(server, thread, conversation(server, thread)["before"])
        told = conversation(server, thread)
        assert (told["rounds"], told["unfinished"], told["before"], told["status"]) == ([], EDITED, "", "interrupted")
        given = {**approved, "stream_mode": ["custom"]}
        text = server.ask("POST", f"/threads/{thread}/runs/stream", json=given).text
        assert events(text)[-1][1]["status"] == "success"
        assert questions(conversation(server, thread)) == [EDITED]
