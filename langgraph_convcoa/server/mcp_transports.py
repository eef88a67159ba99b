"""How an MCP server is reached: over standard input and output, or over HTTP on a port."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    import socket

    from mcp.server.fastmcp import FastMCP

    from langgraph_convcoa.server.guard import Access


def take_stdout() -> TextIO:
    """Reserve standard output for the protocol. All other output, also of C code, goes to standard error from now on.

    The stream that is returned is for `run_stdio`.
    """
    sys.stdout.flush()
    wire = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return wire


async def run_stdio(server: FastMCP, wire: TextIO) -> None:
    """Serve one client over standard input and the stream, until the client closes the input."""
    import anyio
    from mcp.server.stdio import stdio_server

    lines: Any = _messages(wire)
    async with stdio_server(lines, anyio.wrap_file(wire)) as (reading, writing):
        await server._mcp_server.run(reading, writing, server._mcp_server.create_initialization_options())


async def _messages(wire: TextIO) -> AsyncIterator[str]:
    """The lines of standard input that are messages. Other lines are answered with an error: the SDK would only log them."""
    import anyio
    from mcp.types import INVALID_REQUEST, JSONRPCMessage

    async for line in anyio.wrap_file(TextIOWrapper(sys.stdin.buffer, encoding="utf-8", errors="replace")):
        if not line.strip():
            continue
        try:
            JSONRPCMessage.model_validate_json(line)
        except ValueError:
            identity = None
            with suppress(ValueError, RecursionError, AttributeError):
                identity = json.loads(line).get("id")
            error = {"code": INVALID_REQUEST, "message": "this is no message of JSON-RPC that can be read"}
            wire.write(json.dumps({"jsonrpc": "2.0", "id": identity, "error": error}) + "\n")
            wire.flush()
        else:
            yield line


async def run_http(server: FastMCP, access: Access, listening: socket.socket, announce: Callable[[], None]) -> None:
    """Serve clients over streamable HTTP at /mcp on a socket that listens, until Ctrl-C or SIGTERM."""
    import uvicorn

    from langgraph_convcoa.server.guard import Guard
    from langgraph_convcoa.server.serve import uvicorn_config

    serving = uvicorn.Server(uvicorn_config(Guard(server.streamable_http_app(), access)))
    announce()
    await serving.serve(sockets=[listening])
