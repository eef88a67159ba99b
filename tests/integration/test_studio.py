"""LangGraph Studio's server on loopback: it comes up with no key, tells its schemas, and runs a thread of two turns."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests import ROOT
from tests.bounds import started, wait_until

SECONDS_TO_START = 120
SECONDS_IN_ALL = 900


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    port = free_port()
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
        started(command, SECONDS_IN_ALL, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT) as server,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
    ):

        def up() -> bool:
            with contextlib.suppress(httpx.TransportError):
                return client.get("/ok").status_code == 200
            return False

        wait_until(lambda: up() or server.poll() is not None, "the start of langgraph dev", SECONDS_TO_START)
        assert server.poll() is None, f"langgraph dev did not come up:\n{(folder / 'log').read_text()[-3000:]}"
        yield client
        server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(20)


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
