"""LangGraph Studio's server on loopback: schemas, turns, its state editor at every node, forks, and approval by a person."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import ROOT
from tests.bounds import SECONDS, started, wait_until
from tests.integration.workers import free_ports

QUESTION = "Who introduced the Hopfield network?"


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    [port] = free_ports(1)
    folder = tmp_path_factory.mktemp("studio")
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("OPENAI", "LANGSMITH", "LANGCHAIN"))
    }
    environment |= {
        "CONVCOA_CACHE_DIR": str(folder / "cache"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    # Strict checkpoints are what the graph is tested with everywhere else; here they would bind the server's own code too.
    environment.pop("LANGGRAPH_STRICT_MSGPACK", None)
    command = ["langgraph", "dev", "--no-browser", "--no-reload", "--host", "127.0.0.1", "--port", str(port)]
    with (
        (folder / "log").open("w") as log,
        started(command, 6 * SECONDS, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT) as server,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=SECONDS) as client,
    ):

        def up() -> bool:
            with contextlib.suppress(httpx.TransportError):
                return client.get("/ok").status_code == 200
            return False

        wait_until(lambda: up() or server.poll() is not None, "the start of langgraph dev")
        assert server.poll() is None, f"langgraph dev did not come up:\n{(folder / 'log').read_text()[-3000:]}"
        yield client
        server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(SECONDS)


def assistant(studio: httpx.Client, graph: str) -> str:
    found = studio.post("/assistants/search", json={"graph_id": graph}).raise_for_status().json()
    return str(found[0]["assistant_id"])


@pytest.mark.slow
def test_the_schemas_name_what_goes_in_what_comes_out_and_the_settings(studio: httpx.Client) -> None:
    schemas = studio.get(f"/assistants/{assistant(studio, 'convcoa')}/schemas").raise_for_status().json()
    assert {"question", "messages"} <= set(schemas["input_schema"]["properties"])
    assert {"answer", "citations", "chain", "knowledge_set", "usage"} <= set(schemas["output_schema"]["properties"])
    assert {"model", "k", "threshold", "knowledge_retrieval"} <= set(schemas["context_schema"]["properties"])
    nodes = studio.get(f"/assistants/{assistant(studio, 'convcoa')}/graph").raise_for_status().json()["nodes"]
    assert {"recall", "plan", "knowledge_retrieval", "verify", "correct", "answer", "remember"} <= {n["id"] for n in nodes}


@pytest.mark.slow
def test_mcp_lists_the_graphs_with_what_they_do_and_calls_them(studio: httpx.Client) -> None:
    def call(method: str, **params: Any) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answered = studio.post("/mcp", json=body, headers={"accept": "application/json, text/event-stream"})
        return dict(answered.raise_for_status().json()["result"])

    tools = {tool["name"]: tool for tool in call("tools/list")["tools"]}
    assert tools.keys() == {"convcoa", "retriever"}
    assert tools["convcoa"]["description"].startswith("Answers a question from the user's own documents.")
    assert tools["retriever"]["description"].startswith("Finds the passages of the user's own documents")
    given = tools["convcoa"]["inputSchema"]["properties"]
    assert {name for name, parameter in given.items() if parameter["description"]} == {"question", "messages"}
    for arguments in ({"question": QUESTION}, {"messages": QUESTION}):
        [told] = call("tools/call", name="convcoa", arguments=arguments)["content"]
        assert "John Hopfield" in told["text"]


@pytest.mark.slow
def test_a_thread_of_two_turns(studio: httpx.Client) -> None:
    thread = studio.post("/threads", json={}).raise_for_status().json()["thread_id"]

    def ask(question: str) -> dict[str, object]:
        body = {
            "assistant_id": assistant(studio, "convcoa"),
            "input": {"messages": [{"role": "user", "content": question}]},
            "stream_mode": ["values", "messages-tuple"],
        }
        with studio.stream("POST", f"/threads/{thread}/runs/stream", json=body) as response:
            events = response.read().decode()
        assert "event: error" not in events, events[-2000:]
        assert "event: messages" in events
        return dict(studio.get(f"/threads/{thread}/state").raise_for_status().json()["values"])

    first = ask("Who introduced the Hopfield network?")
    assert "Hopfield" in str(first["answer"])
    second = ask("When was it published?")
    assert "1982" in str(second["answer"])
    assert second["citations"]
    assert len(second["messages"]) == 4  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_retriever_runs_alone(studio: httpx.Client) -> None:
    body = {
        "assistant_id": assistant(studio, "retriever"),
        "input": {
            "messages": [
                {"role": "user", "content": "Who introduced sparsemax?"},
                {"role": "assistant", "content": "Sparsemax was introduced by Martins and Astudillo."},
                {"role": "user", "content": "When was it?"},
            ]
        },
    }
    found = studio.post("/runs/wait", json=body).raise_for_status().json()["documents"]
    assert any(document["id"].startswith("sparsemax.md") for document in found[:3]), "the first turn says what 'it' is"


def new_thread(studio: httpx.Client) -> str:
    return str(studio.post("/threads", json={}).raise_for_status().json()["thread_id"])


def run(studio: httpx.Client, thread: str, **body: Any) -> dict[str, Any]:
    body = {"assistant_id": assistant(studio, "convcoa"), **body}
    output = dict(studio.post(f"/threads/{thread}/runs/wait", json=body).raise_for_status().json())
    assert "__error__" not in output, output
    return output


def state_of(studio: httpx.Client, thread: str) -> dict[str, Any]:
    return dict(studio.get(f"/threads/{thread}/state").raise_for_status().json())


def history_of(studio: httpx.Client, thread: str) -> list[dict[str, Any]]:
    history = studio.post(f"/threads/{thread}/history", json={"limit": 100}).raise_for_status().json()
    return list(reversed(history))


def edit(studio: httpx.Client, thread: str, values: dict[str, Any], as_node: str, **at: Any) -> dict[str, Any]:
    body = {"values": values, "as_node": as_node, **at}
    done = studio.post(f"/threads/{thread}/state", json=body)
    assert done.status_code == 200, f"{as_node}: {done.text}"
    return dict(done.json()["checkpoint"])


@pytest.mark.slow
def test_the_state_editor_and_forks_work_at_every_node_of_a_turn(studio: httpx.Client) -> None:
    thread = new_thread(studio)
    run(studio, thread, input={"question": QUESTION})
    history = history_of(studio, thread)
    # What comes next at a state wrote the state after it.
    states = [(before["next"][0], after) for before, after in pairwise(history) if before["next"]]
    nodes = [node for node, _ in states if not node.startswith("__")]
    assert nodes[0] == "recall"
    assert nodes[-1] == "remember"
    for node, state in states:
        if node in nodes[:-1]:
            fork = edit(studio, thread, {"asked": f"{QUESTION} Say it."}, node, checkpoint=state["checkpoint"])
            out = run(studio, thread, input=None, checkpoint=fork)
            assert "Hopfield" in out["answer"], node
            asked = [entry["original_question"] for entry in out["knowledge_set"]["Contextual knowledge set"]]
            assert asked == [f"{QUESTION} Say it."], node


@pytest.mark.slow
def test_a_state_can_be_written_as_any_node(studio: httpx.Client) -> None:
    nodes = studio.get(f"/assistants/{assistant(studio, 'convcoa')}/graph").raise_for_status().json()["nodes"]
    for node in (n["id"] for n in nodes if not n["id"].startswith("__")):
        thread = new_thread(studio)
        run(studio, thread, input={"question": QUESTION}, interrupt_after=["recall"])
        edit(studio, thread, {"asked": "When was sparsemax introduced?"}, node)
        assert state_of(studio, thread)["values"]["asked"] == "When was sparsemax introduced?"


@pytest.mark.slow
def test_an_edited_plan_is_resumed(studio: httpx.Client) -> None:
    thread = new_thread(studio)
    run(studio, thread, input={"question": QUESTION}, interrupt_after=["plan"])
    made = state_of(studio, thread)["values"]["plan"]
    step = {
        "action": "knowledge_retrieval", "sub_question": "Who introduced sparsemax?", "guess_answer": "", "action_input": "",
    }  # fmt: skip
    edit(studio, thread, {"asked": "Who introduced sparsemax?", "plan": {**made, "nodes": [step]}}, "plan")
    out = run(studio, thread, input=None)
    assert [item["sub_question"] for item in out["chain"]] == ["Who introduced sparsemax?"]
    assert "Martins" in out["answer"]


@pytest.mark.slow
def test_a_person_approves_edits_and_rejects(studio: httpx.Client) -> None:
    thread = new_thread(studio)
    run(studio, thread, input={"question": QUESTION}, context={"approve": ["knowledge_retrieval", "answer"]})

    def waiting() -> dict[str, Any]:
        (task,) = state_of(studio, thread)["tasks"]
        (request,) = task["interrupts"][0]["value"]["action_requests"]
        return dict(request)

    def decide(decision: dict[str, Any]) -> dict[str, Any]:
        return run(studio, thread, command={"resume": {"decisions": [decision]}})

    assert studio.get(f"/threads/{thread}").json()["status"] == "interrupted", "what Agent Inbox lists"
    assert waiting()["name"] == "knowledge_retrieval"
    wrong = {"assistant_id": assistant(studio, "convcoa"), "command": {"resume": {"decisions": []}}}
    refused = studio.post(f"/threads/{thread}/runs/wait", json=wrong).raise_for_status().json()
    assert "one decision for each of knowledge_retrieval" in str(refused["__error__"])
    assert waiting()["name"] == "knowledge_retrieval"
    args = {"sub_question": "Who introduced sparsemax?"}
    decide({"type": "edit", "edited_action": {"name": "knowledge_retrieval", "args": args}})
    assert waiting()["name"] == "answer"
    assert "Martins" in waiting()["args"]["answer"]
    out = decide({"type": "reject", "message": "not that"})
    assert out["answer"] == "The answer was rejected: not that"
    assert state_of(studio, thread)["next"] == []


@pytest.mark.slow
def test_the_final_message_carries_its_citations(studio: httpx.Client) -> None:
    thread = new_thread(studio)
    out = run(studio, thread, input={"messages": [{"role": "user", "content": QUESTION}]})
    (block,) = out["messages"][-1]["content"]
    assert block["text"] == out["answer"]
    # A source has an annotation for each sentence that cites it.
    cited = dict.fromkeys(a["extras"]["id"] for a in block["annotations"])
    assert [*cited] == [citation["id"] for citation in out["citations"]]
