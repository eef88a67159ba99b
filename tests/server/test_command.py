"""`convcoa serve`: what it refuses at its start, and, in a process of its own, that nothing is lost where it is killed."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from langgraph_convcoa.cli.serve import ServeOptions
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.server.app import address_of, listen
from langgraph_convcoa.server.runs import Run, Runs
from tests import ROOT
from tests.bounds import SECONDS, started, wait_until
from tests.cli.commands import convcoa
from tests.fakes import FACTS, corrections, direct, node, plan
from tests.openai_server import OpenAIServer, Reply, kind_of

TOKEN = "t0ken-of-a-test-0123456789"


@pytest.fixture(autouse=True)
def folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("CONVCOA_TOKEN", "CONVCOA_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-a-test")
    monkeypatch.setenv("CONVCOA_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("CONVCOA_CACHE_DIR", str(tmp_path / "cache"))


def refused(*words: str, **env: str) -> str:
    result = convcoa("serve", *words, env=env, code=2)
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_a_port_that_is_taken_is_told() -> None:
    with listen("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        assert f"the port {port} of 127.0.0.1 is taken" in (told := refused("--port", str(port)))
        assert "--port" in told
        assert address_of(listening) == f"http://127.0.0.1:{port}/"


def test_what_cannot_be_served_is_told_before_documents_are_read() -> None:
    assert "others can reach the server" in refused("--host", "0.0.0.0", "--docs", "demo")
    assert "at least 16" in refused("--host", "0.0.0.0", CONVCOA_TOKEN="short")
    assert "is no address of this machine" in refused("--host", "nowhere.invalid", CONVCOA_TOKEN=TOKEN)
    assert "--trusted-proxy takes" in refused("--user-header", "x-user", "--trusted-proxy", "proxy")
    assert "go together" in refused("--user-header", "x-user")
    for name in ("chat.example.org:443", "https://chat.example.org", "chat.example.org/x", "*.example.org", ""):
        assert "--allow-host takes a name without a port" in refused("--allow-host", name)
    for origin in ("foo", "localhost:3000", "https://", "https://chat.example.org/page", "*", "null"):
        assert "--allow-origin takes an address" in refused("--allow-origin", origin)
    assert "--base-url needs --model" in refused("--base-url", "http://127.0.0.1:1")
    assert "--search needs --web" in refused("--search", "ddgs")
    assert TOKEN not in refused("--host", "0.0.0.0", "--base-url", "x", CONVCOA_TOKEN=TOKEN)


@pytest.mark.parametrize("answering", [True, False])
def test_only_what_was_being_answered_is_said_to_be_resumed(monkeypatch: pytest.MonkeyPatch, answering: bool) -> None:
    async def until_ended() -> Runs:
        runs = Runs()
        if answering:
            runs.start("t", Run("t", "convcoa"), lambda run: asyncio.sleep(SECONDS, dict[str, Any]()))
        await runs.close()
        return runs

    def ended(*_: object) -> None:
        raise KeyboardInterrupt

    service = SimpleNamespace(runs=asyncio.run(until_ended()))
    monkeypatch.setattr("langgraph_convcoa.cli.serve._served", lambda *_: (None, service, []))
    monkeypatch.setattr("langgraph_convcoa.server.app.ConvCoAServer", ended)
    result = convcoa("serve", "--port", "0")
    assert (result.exit_code, "resumed" in result.stderr) == (0, answering)


def test_the_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr("langgraph_convcoa.errors.find_spec", lambda name: None if name == "uvicorn" else found(name))
    assert 'needs uvicorn: pip install "langgraph-convcoa[serve]"' in refused("--docs", "demo")


def test_the_options_are_those_of_a_conversation_without_a_thread() -> None:
    ServeOptions(approve=["plan"]).check("serve")
    with pytest.raises(TypeError):
        ServeOptions(thread="a")  # type: ignore[call-arg]
    with pytest.raises(InputError, match="--base-url"):
        ServeOptions(base_url="x").check("serve")


@contextmanager
def serving(*words: str) -> Iterator[tuple[subprocess.Popen[Any], httpx.Client]]:
    """The command with the fast encoder in a process, ready, and a client for it."""
    command = [sys.executable, "-m", "tests.fake_encoder", "serve", "--port", "0", *words]
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "convcoa is at " in line, process.stderr and process.stderr.read()
        address = re.findall(r"http://\S+", line)[0]
        with httpx.Client(base_url=address, timeout=SECONDS) as client:
            yield process, client


@pytest.mark.slow
def test_a_run_chooses_among_the_models_of_the_command(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(FACTS["hopfield-1982"])
    asked: list[str] = []

    def script(body: dict[str, Any]) -> Reply:
        asked.append(body["model"])
        return Reply(direct("John Hopfield described the Hopfield network in 1982 [1]."))

    with OpenAIServer(script) as model:
        words = ["--docs", str(tmp_path), "--base-url", model.base_url, "--model", "small", "--model", "large"]
        with serving(*words) as (_, client):
            assert client.get("/convcoa/info").json()["models"] == ["small", "large"]
            for context in ({}, {"model": "small"}, {"model": "large"}):
                body = {"input": {"question": "When was it described?"}, "context": context}
                assert "1982" in client.post("/runs/wait", json=body).json()["answer"]
            refused = client.post("/runs/wait", json={"input": {"question": "x"}, "context": {"model": "dear"}})
            assert (refused.status_code, "small, large" in refused.json()["detail"]) == (422, True)
    assert asked == ["small", "small", "large"]


@pytest.mark.slow
def test_a_server_that_is_killed_or_ended_in_the_middle_of_a_turn_loses_nothing(tmp_path: Path) -> None:
    """Killed, the turn is resumed after the next start and no finished call repeated; Ctrl-C ends it within seconds."""
    docs = tmp_path / "docs"
    docs.mkdir()
    for name, text in FACTS.items():
        (docs / f"{name}.md").write_text(text)
    asked: list[str] = []
    late = [True]

    def script(body: dict[str, Any]) -> Reply:
        asked.append(kind_of(body))
        if kind_of(body) == "plan":
            question = "When was the Hopfield network described?"
            return Reply(plan(node(question), node("Who introduced sparsemax?")))
        return Reply(corrections("In 1982.", "Martins.", final="It was in 1982 [1]."), delay=10 * SECONDS if late[0] else 0)

    with OpenAIServer(script) as model:
        words = ["--docs", str(docs), "--model", "openai:test", "--base-url", model.base_url]
        with serving(*words) as (process, client):
            thread = client.post("/threads", json={}).json()["thread_id"]
            client.post(f"/threads/{thread}/runs", json={"input": {"question": "When and who?"}})
            wait_until(lambda: "correct" in asked, "the second call is made")
            process.kill()
            process.wait(SECONDS)
        with serving(*words) as (process, client):
            told = client.get(f"/convcoa/threads/{thread}").json()
            assert (told["status"], told["unfinished"], told["rounds"]) == ("interrupted", "When and who?", [])
            late[0] = False
            output = client.post(f"/threads/{thread}/runs/wait", json={"input": None}).json()
            assert "1982" in output["answer"]
            assert len(client.get(f"/convcoa/threads/{thread}").json()["rounds"]) == 1
            assert asked == ["plan", "correct", "correct"]
            late[0] = True
            body = {"input": {"question": "Who introduced dense passage retrieval?"}, "stream_mode": ["custom"]}
            with client.stream("POST", f"/threads/{thread}/runs/stream", json=body) as stream:
                parts = stream.iter_text()
                next(parts)
                wait_until(lambda: len(asked) > 4, "the model is asked")
                process.send_signal(signal.SIGINT)
                with contextlib.suppress(httpx.HTTPError):
                    assert '"status":"interrupted"' in "".join(parts)
            # Long before the model would have replied.
            assert process.wait(SECONDS) == 0
            assert process.stderr is not None
            last = process.stderr.read()
            assert last.endswith("ended; what was being answered can be resumed on the page\n")
            assert "Traceback" not in last
