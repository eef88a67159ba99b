"""The server as LangGraph's client sees it: threads, runs, streams, interrupts, state and history."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient
from langgraph_sdk.errors import ConflictError, NotFoundError, UnprocessableEntityError

from tests.bounds import SECONDS
from tests.fakes import BACK, VAGUE, ScriptedModel, asking, direct
from tests.server.served import ANSWER, QUESTION, Served, events, served

ALL = ["values", "messages-tuple", "custom"]


@asynccontextmanager
async def connected(server: Served) -> AsyncIterator[LangGraphClient]:
    client = get_client(url=server.url, api_key=None)
    try:
        yield client
    finally:
        await client.aclose()


async def streamed(client: LangGraphClient, thread: str | None, **options: Any) -> list[Any]:
    given = {"input": {"question": QUESTION}, "stream_mode": ALL, **options}
    return [part async for part in client.runs.stream(thread, "convcoa", **given)]


async def test_a_turn_streams_metadata_progress_verified_text_and_values(server: Served) -> None:
    async with connected(server) as client:
        thread = await client.threads.create()
        parts = await streamed(client, thread["thread_id"])
        names = [part.event for part in parts]
        assert (names[0], names[-1], names[-2]) == ("metadata", "end", "values")
        assert parts[-1].data == {"run_id": parts[0].data["run_id"], "status": "success"}
        assert {part.data["type"] for part in parts if part.event == "custom"} >= {"look", "plan", "answer"}
        text = "".join(chunk["content"] for chunk, _ in (part.data for part in parts if part.event == "messages"))
        values = parts[-2].data
        assert text == values["answer"] == ANSWER
        assert values["citations"][0]["id"] == "hopfield-1982"
        assert [message["type"] for message in values["messages"]] == ["human", "ai"]
        assert [int(part.id) for part in parts] == list(range(1, len(parts) + 1))
        # Only what was asked for.
        assert {part.event for part in await streamed(client, thread["thread_id"], stream_mode="custom")} == {
            "metadata",
            "custom",
            "end",
        }


async def test_a_question_back_is_an_event_and_can_be_replaced(tmp_path: Path) -> None:
    with served(tmp_path, model=ScriptedModel(replies=[asking(), direct(ANSWER)])) as server:
        async with connected(server) as client:
            thread = (await client.threads.create())["thread_id"]
            parts = await streamed(client, thread, input={"question": VAGUE})
            assert {"type": "clarification", "text": BACK} in [part.data for part in parts]
            kept = server.ask("GET", f"/convcoa/threads/{thread}").json()
            assert [(one["answer"], one["chain"][0]["status"]) for one in kept["rounds"]] == [(BACK, "asked")]
            again = await streamed(client, thread, input={"question": "Both?"}, checkpoint_id=kept["before"])
            assert [message["content"] for message in again[-2].data["messages"][::2]] == ["Both?"]


async def test_messages_are_an_input_and_updates_can_be_seen(server: Served) -> None:
    async with connected(server) as client:
        thread = (await client.threads.create())["thread_id"]
        message = {"role": "user", "content": [{"type": "text", "text": QUESTION}], "id": "m1"}
        parts = await streamed(client, thread, input={"messages": [message]}, stream_mode=["updates", "values"])
        assert {"recall", "look", "plan", "answer", "remember"} <= {
            name for part in parts if part.event == "updates" for name in part.data
        }
        assert parts[-2].data["messages"][0]["id"] == "m1"
        assert (await client.threads.get(thread))["metadata"]["title"] == QUESTION


async def test_state_history_and_search_tell_of_a_thread(server: Served) -> None:
    async with connected(server) as client:
        thread = (await client.threads.create(metadata={"kind": "searched"}))["thread_id"]
        assert await client.threads.get_history(thread) == []
        assert (await client.threads.get_state(thread))["values"] == {}
        output = await client.runs.wait(thread, "convcoa", input={"question": QUESTION})
        assert isinstance(output, dict)
        assert output["answer"] == ANSWER
        state = await client.threads.get_state(thread)
        assert (state["values"]["answer"], state["next"], state["tasks"]) == (ANSWER, [], [])  # type: ignore[call-overload]
        assert (await client.threads.get_history(thread))[0]["values"] == state["values"]
        later = (await client.threads.create(metadata={"kind": "searched"}))["thread_id"]
        found = await client.threads.search(metadata={"kind": "searched"})
        assert [one["thread_id"] for one in found] == [later, thread]
        assert found[1]["values"]["messages"][0]["content"] == QUESTION  # type: ignore[call-overload]
        assert await client.threads.count(metadata={"kind": "searched"}) == 2
        assert [one["thread_id"] for one in await client.threads.search(metadata={"kind": "searched"}, offset=1)] == [thread]
        await client.threads.update(later, metadata={"title": " A  title "})
        assert (await client.threads.get(later))["metadata"]["title"] == "A title"
        await client.threads.delete(later)
        with pytest.raises(NotFoundError):
            await client.threads.get(later)


async def test_a_thread_is_made_once_and_a_run_can_make_it(server: Served) -> None:
    async with connected(server) as client:
        await client.threads.create(thread_id="mine")
        with pytest.raises(ConflictError):
            await client.threads.create(thread_id="mine")
        assert (await client.threads.create(thread_id="mine", if_exists="do_nothing"))["thread_id"] == "mine"
        with pytest.raises(NotFoundError):
            await streamed(client, "not-there")
        assert (await streamed(client, "not-there", if_not_exists="create"))[-1].data["status"] == "success"
        with pytest.raises(UnprocessableEntityError):
            await client.threads.create(thread_id="a/b")


async def test_a_run_of_no_thread_is_answered_and_forgotten(server: Served) -> None:
    async with connected(server) as client:
        before = await client.threads.count()
        output = await client.runs.wait(None, "convcoa", input={"question": QUESTION})
        assert isinstance(output, dict)
        assert output["answer"] == ANSWER
        assert (await streamed(client, None))[-1].data["status"] == "success"
        assert await client.threads.count() == before
        assert not [name for name in server.stored() if name.startswith("run-")]


async def test_assistants_are_the_collections(server: Served) -> None:
    async with connected(server) as client:
        found = await client.assistants.search(graph_id="convcoa")
        assert next((one["assistant_id"], one["name"]) for one in found) == ("convcoa", "Facts")
        assert (await client.assistants.get("facts"))["name"] == "Facts"
        schemas = await client.assistants.get_schemas("convcoa")
        assert "question" in schemas["input_schema"]["properties"]  # type: ignore[index,call-overload]
        with pytest.raises(NotFoundError):
            await client.assistants.get("nobody")


async def test_a_join_replays_what_was_missed_and_goes_on(server: Served) -> None:
    async with connected(server) as client:
        thread = (await client.threads.create())["thread_id"]
        with server.held():
            run = await client.runs.create(thread, "convcoa", input={"question": QUESTION}, stream_mode=ALL)
            assert run["status"] == "running" or run["status"] == "pending"
            joining = asyncio.create_task(_joined(client, thread, run["run_id"]))
            await _until_asked(server, thread)
            assert (await client.threads.get(thread))["status"] == "busy"
            assert [one["run_id"] for one in await client.runs.list(thread)] == [run["run_id"]]
        whole = await joining
        assert [part.event for part in whole][-1] == "end"
        rest = await _joined(client, thread, run["run_id"], last_event_id=whole[2].id)
        assert [(part.id, part.event) for part in rest] == [(part.id, part.event) for part in whole[3:]]
        assert (await client.runs.join(thread, run["run_id"]))["answer"] == ANSWER
        assert (await client.runs.get(thread, run["run_id"]))["status"] == "success"
        assert (await client.threads.get(thread))["status"] == "idle"


async def _joined(client: LangGraphClient, thread: str, run: str, **options: Any) -> list[Any]:
    return [part async for part in client.runs.join_stream(thread, run, **options)]


async def _until_asked(server: Served, thread: str) -> None:
    asked = server.asked
    async with asyncio.timeout(SECONDS):
        while not (server.asked > asked or await _is_planning(server, thread)):
            await asyncio.sleep(0.02)


async def _is_planning(server: Served, thread: str) -> bool:
    run = server.service.runs.active.get(thread)
    return run is not None and any(b'"look"' in written for _, written in list(run._events))


async def test_a_cancelled_turn_leaves_the_thread_as_it_was_and_is_resumed(server: Served) -> None:
    async with connected(server) as client:
        thread = (await client.threads.create())["thread_id"]
        await client.runs.wait(thread, "convcoa", input={"question": QUESTION})
        with server.held():
            run = await client.runs.create(thread, "convcoa", input={"question": "When was it?"})
            await _until_asked(server, thread)
            await client.runs.cancel(thread, run["run_id"], wait=True)
            assert (await client.runs.get(thread, run["run_id"]))["status"] == "interrupted"
        told = (await httpx_get(server, f"/convcoa/threads/{thread}")).json()
        assert (told["status"], told["unfinished"], len(told["rounds"])) == ("interrupted", "When was it?", 1)
        output = await client.runs.wait(thread, "convcoa", input=None)
        assert isinstance(output, dict)
        assert len(output["knowledge_set"]["Contextual knowledge set"]) == 2
        with pytest.raises(Exception, match="no interrupted turn"):
            await client.runs.wait(thread, "convcoa", input=None)


async def httpx_get(server: Served, path: str) -> httpx.Response:
    return await asyncio.to_thread(server.ask, "GET", path)


async def test_of_two_runs_of_a_thread_the_second_is_refused_waits_or_takes_over(server: Served) -> None:
    async with connected(server) as client:
        thread = (await client.threads.create())["thread_id"]
        with server.held():
            first = await client.runs.create(thread, "convcoa", input={"question": QUESTION})
            await _until_asked(server, thread)
            for strategy in ({}, {"multitask_strategy": "reject"}):
                with pytest.raises(ConflictError):
                    await client.runs.create(thread, "convcoa", input={"question": "Another?"}, **strategy)  # type: ignore[arg-type]
            second = await client.runs.create(
                thread, "convcoa", input={"question": "Another?"}, multitask_strategy="interrupt"
            )
            assert (await client.runs.get(thread, first["run_id"]))["status"] == "interrupted"
            third = asyncio.create_task(
                client.runs.wait(thread, "convcoa", input={"question": "A third?"}, multitask_strategy="enqueue")
            )
            await asyncio.sleep(0.05)
            assert not third.done()
        output = await third
        assert (await client.runs.get(thread, second["run_id"]))["status"] == "success"
        assert isinstance(output, dict)
        asked = [entry["original_question"] for entry in output["knowledge_set"]["Contextual knowledge set"]]
        assert asked == ["Another?", "A third?"]


async def test_a_turn_goes_on_without_its_listener_unless_that_is_not_wanted(server: Served) -> None:
    async with connected(server) as client:
        ways: list[tuple[Any, str]] = [("continue", "success"), ("cancel", "interrupted")]
        run = ""
        for wanted, status in ways:
            thread = (await client.threads.create())["thread_id"]
            with server.held():
                options: dict[str, Any] = {"input": {"question": QUESTION}, "stream_mode": ALL, "on_disconnect": wanted}
                async with aclosing(client.runs.stream(thread, "convcoa", **options)) as parts:  # type: ignore[type-var]
                    async for part in parts:
                        run = part.data["run_id"] if part.event == "metadata" else run
                        if part.event == "custom":
                            break
                if wanted == "cancel":
                    await client.runs.join(thread, run)
            await client.runs.join(thread, run)
            assert (await client.runs.get(thread, run))["status"] == status


async def test_a_thread_that_is_deleted_elsewhere_ends_its_run(server: Served) -> None:
    async with connected(server) as client:
        thread = (await client.threads.create())["thread_id"]
        with server.held():
            streaming = asyncio.create_task(streamed(client, thread))
            await _until_asked(server, thread)
            await client.threads.delete(thread)
            parts = await streaming
        assert (parts[-1].event, parts[-1].data["status"]) == ("end", "interrupted")
        for path in ("", "/state", "/runs"):
            assert (await httpx_get(server, f"/threads/{thread}{path}")).status_code == 404
        assert (await httpx_get(server, f"/convcoa/threads/{thread}")).status_code == 404
        assert thread not in server.stored()


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"input": {"question": 3}}, "the input must be"),
        ({"input": {"messages": [{"role": "assistant", "content": "x"}]}}, "the input must be"),
        ({"input": {"messages": [7]}}, "a message must be an object"),
        ({"command": {"update": {"answer": "x"}}}, "the command of a run"),
        ({"stream_mode": [3]}, "stream_mode must be"),
        ({"multitask_strategy": "never"}, "multitask_strategy must be"),
        ({"input": {"question": "x"}, "context": {"model": "openai:gpt-4.1"}}, "must be one of the server's"),
        ({"input": {"question": "x"}, "context": {"user_id": "bob"}}, "not one that a run may set"),
        ({"input": {"question": "x"}, "context": {"k": -1}}, "the setting 'k'"),
    ],
)
def test_a_run_that_cannot_be_is_refused_with_the_reason(server: Served, body: dict[str, Any], told: str) -> None:
    thread = server.thread_id()
    response = server.ask("POST", f"/threads/{thread}/runs/wait", json=body)
    assert response.status_code == 422
    assert told in response.json()["detail"]


@pytest.fixture(scope="module")
def approving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("approving"), approve=["answer"]) as found:
        yield found


async def test_what_waits_for_approval_is_decided_by_a_command(approving: Served) -> None:
    async with connected(approving) as client:
        thread = (await client.threads.create())["thread_id"]
        # A client cannot switch it off.
        parts = await streamed(client, thread, context={"approve": []})
        waiting = parts[-2].data["__interrupt__"][0]["value"]
        assert waiting["action_requests"][0]["args"] == {"answer": ANSWER}
        assert parts[-1].data["status"] == "interrupted"
        state = await client.threads.get_state(thread)
        assert state["interrupts"][0]["value"] == waiting
        told = (await httpx_get(approving, f"/convcoa/threads/{thread}")).json()
        assert (told["waiting"], told["status"], told["unfinished"]) == (waiting, "interrupted", QUESTION)
        wrong = await streamed(client, thread, input=None, command={"resume": {"decisions": []}})
        assert [part.data["message"] for part in wrong if part.event == "error"] == [
            'resume with {"decisions": [...]}, one decision for each of answer, in this order: approve, edit or reject '
            "(decisions.0: Field required)"
        ]
        edit = {"type": "edit", "edited_action": {"name": "answer", "args": {"answer": "In 1982 [1]."}}}
        done = await streamed(client, thread, input=None, command={"resume": {"decisions": [edit]}})
        assert done[-2].data["answer"] == "In 1982 [1]."
        assert (await client.threads.get(thread))["status"] == "idle"


def test_events_are_written_one_by_one_without_a_buffer(server: Served) -> None:
    """The first bytes come while the model still has not answered."""
    thread = server.thread_id()
    with server.held(), server.client() as client:
        body = {"input": {"question": QUESTION}, "stream_mode": ALL}
        with client.stream("POST", f"/threads/{thread}/runs/stream", json=body) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            assert response.headers["x-accel-buffering"] == "no"
            parts = response.iter_text()
            text = ""
            while '"look"' not in text:
                text += next(parts)
            assert not [name for name, _ in events(text) if name == "messages"]
            server.let.set()
            text += "".join(parts)
    assert events(text)[-1][0] == "end"


def test_any_last_event_id_is_taken(server: Served) -> None:
    thread = server.thread_id()
    server.turn(thread)
    run = server.ask("GET", f"/threads/{thread}/runs").json()[0]["run_id"]
    for last in ("9" * 5_000, "-1", "x", "²", ""):
        response = server.ask("GET", f"/threads/{thread}/runs/{run}/stream", headers={"last-event-id": last.encode()})
        assert response.status_code == 200, last[:10]
        assert events(response.text)[-1][0] == "end"
