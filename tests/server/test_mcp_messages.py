"""Messages that the MCP SDK cannot read are answered with an error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp.server.fastmcp")
from langgraph_convcoa.server.mcp_transports import refusal
from tests import ROOT
from tests.bounds import SECONDS

PING = '{"jsonrpc": "2.0", "id": 1, "method": "ping"}'
BROKEN = {
    '{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "\\ud800"}}': 7,
    '{"jsonrpc": "2.0", "id": "a", "method": "ping", "params": [1]}': "a",
    '{"jsonrpc": "2.0", "id": ' + "9" * 5_000 + ', "method": "ping"}': None,
    "[" * 100_000: None,
    "no JSON": None,
    "[]": None,
    '{"jsonrpc": "2.0", "id": true, "method": 1}': None,
}


@pytest.mark.parametrize("message", BROKEN)
def test_what_cannot_be_read_is_refused_by_its_id(message: str) -> None:
    told = refusal(message)
    assert told is not None
    error = json.loads(told)
    assert (error["id"], error["error"]["code"] in (-32700, -32600)) == (BROKEN[message], True)
    assert refusal(PING) is None


@pytest.mark.slow
def test_every_line_of_a_client_is_answered(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A\n\nA text.")
    command = [sys.executable, "-m", "tests.fake_encoder", "mcp", "--docs", str(tmp_path / "a.md"), "--no-cache"]
    start: dict[str, Any] = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    first = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": start})
    lines = "\n".join([first, *BROKEN, PING]) + "\n"
    done = subprocess.run(command, input=lines, capture_output=True, text=True, cwd=ROOT, timeout=SECONDS, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(BROKEN) + 2
    assert {str(answer["id"]) for answer in answers} == {"0", "1", *map(str, BROKEN.values())}
