"""`convcoa mcp` as a process, over both transports, with the SDK's client; and what it refuses."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.bounds import SECONDS, started
from tests.cli import commands

pytest.importorskip("mcp.server.fastmcp", reason="these tests are written with the client of version 1 of the MCP SDK")
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

SERVER = ["-m", "tests.fake_encoder", "mcp"]
TOKEN = "a-long-random-token"
WHO = "Who introduced sparsemax?"


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mcp") / "sparsemax.md"
    path.write_text("# Sparsemax\n\nSparsemax was introduced by Martins and Astudillo in 2016.")
    return path


@pytest.fixture(scope="module")
def environment(docs: Path) -> dict[str, str]:
    return {**os.environ, "CONVCOA_CACHE_DIR": str(docs.parent / "cache"), "OMP_NUM_THREADS": "1"}


async def used(session: ClientSession) -> None:
    await session.initialize()
    assert {tool.name for tool in (await session.list_tools()).tools} == {"search", "ask"}
    answered = (await session.call_tool("ask", {"question": WHO})).structuredContent
    assert answered is not None
    assert "Martins" in answered["answer"]
    follow_up = {"question": "When was it introduced?", "thread": answered["thread"]}
    later = (await session.call_tool("ask", follow_up)).structuredContent
    assert later is not None
    assert "2016" in later["answer"]
    found = (await session.call_tool("search", {"query": WHO})).structuredContent
    assert found is not None
    [read] = (await session.read_resource(found["passages"][0]["uri"])).contents
    assert "Astudillo" in str(getattr(read, "text", ""))


NOISY = """
import os
from langgraph_convcoa.cli.app import main
from langgraph_convcoa.retrieval import retriever
from tests.fake_encoder import WordEncoder

class Noisy(WordEncoder):
    def encode_queries(self, texts):
        print("printed")
        os.write(1, b"written\\n")
        os.system("echo called")
        return super().encode_queries(texts)

noisy = Noisy()
retriever.as_encoder = lambda _: noisy
main()
"""


@pytest.mark.slow
async def test_a_client_over_standard_output_which_nothing_else_reaches(
    docs: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    broken: list[Exception] = []

    async def seen(message: Any) -> None:
        if isinstance(message, Exception):
            broken.append(message)

    server = StdioServerParameters(
        command=sys.executable, args=["-c", NOISY, "mcp", "--docs", str(docs)], env=environment, cwd=str(ROOT)
    )
    with (tmp_path / "noise").open("w+") as noise:
        async with (
            asyncio.timeout(SECONDS),
            stdio_client(server, noise) as streams,
            ClientSession(*streams, message_handler=seen) as session,
        ):
            await used(session)
        noise.seek(0)
        assert {"printed", "written", "called"} <= set(noise.read().splitlines())
    assert broken == [], "a line that is no message of the protocol"


@pytest.fixture(scope="module")
def url(docs: Path, environment: dict[str, str]) -> Iterator[str]:
    command = [sys.executable, *SERVER, "--docs", str(docs), "--http", "0"]
    with started(command, cwd=ROOT, env={**environment, "CONVCOA_TOKEN": TOKEN}, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        line = next(line for line in server.stderr if line.startswith("MCP is at "))
        yield line.split()[3]


@pytest.mark.slow
async def test_a_client_over_http(url: str) -> None:
    http = create_mcp_http_client(headers={"Authorization": f"Bearer {TOKEN}"})
    async with (
        asyncio.timeout(SECONDS),
        http,
        streamable_http_client(url, http_client=http) as (reading, writing, _),
        ClientSession(reading, writing) as session,
    ):
        await used(session)


def convcoa(*arguments: object) -> str:
    done = commands.convcoa("mcp", *arguments, code=2)
    assert done.stdout == ""
    return done.stderr.strip().removeprefix("error: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to look things up in: write convcoa mcp --docs PATH"),
        (["--docs", "demo", "--approve", "plan"], "--approve asks a person at the terminal, and an MCP client has none"),
        (["--docs", "demo", "--http", "here"], "--http takes a port or an address with one"),
        (["--docs", "demo", "--http", "0.0.0.0:0"], "set CONVCOA_TOKEN to a long random text"),
        (["--docs", "nowhere", "--http", "0"], "nowhere"),
    ],
)
def test_what_is_refused(arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONVCOA_TOKEN", raising=False)
    assert message in convcoa(*arguments)


def test_a_taken_port_and_a_missing_package_are_told_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        assert "is taken by another program" in convcoa("--docs", "nowhere", "--http", other.getsockname()[1])
    monkeypatch.setitem(sys.modules, "mcp", None)
    assert convcoa("--docs", "nowhere") == 'convcoa mcp needs mcp: pip install "langgraph-convcoa[mcp]"'
