"""How an MCP server is reached: over standard input and output, or over HTTP on a port."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, redirect_stdout
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, TextIO

from langgraph_convcoa.server.wire import to_json

if TYPE_CHECKING:
    import socket

    from mcp.server.fastmcp import FastMCP
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from langgraph_convcoa.server.guard import Access

_NO_JSON, _NO_REQUEST = -32700, -32600


def take_stdout() -> TextIO:
    """Standard output for the protocol alone: whatever else writes there, code in C too, writes to standard error from now on.

    The stream that is returned is for `run_stdio`.
    """
    sys.stdout.flush()
    wire = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return wire


@asynccontextmanager
async def prints_to_stderr(_server: Any) -> AsyncIterator[dict[str, Any]]:
    """The lifespan of a server over standard output, which it has opened by now: what Python prints goes elsewhere."""
    with redirect_stdout(sys.stderr):
        yield {}


async def run_stdio(server: FastMCP, wire: TextIO) -> None:
    """Serve one client over standard input and the stream, until it closes the input."""
    from mcp.server.stdio import stdio_server

    lines: Any = _readable_lines(wire)
    with redirect_stdout(wire):
        async with stdio_server(lines) as (reading, writing):
            await server._mcp_server.run(reading, writing, server._mcp_server.create_initialization_options())


async def _readable_lines(wire: TextIO) -> AsyncIterator[str]:
    """The lines of standard input that the SDK can read; the others are answered here."""
    import anyio

    async for line in anyio.wrap_file(TextIOWrapper(sys.stdin.buffer, encoding="utf-8", errors="replace")):
        if (refused := refusal(line)) is None:
            yield line
        elif line.strip():
            wire.buffer.write(refused + b"\n")
            wire.buffer.flush()


def refusal(message: str | bytes) -> bytes | None:
    r"""The JSON-RPC error for a message that the SDK cannot read and would leave without an answer; None if it can.

    Example:
        >>> refusal('{"jsonrpc": "2.0", "id": 1, "method": "ping"}')
        >>> refusal('{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}')
        b'{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"this is no message of JSON-RPC that can be read"}}'
    """
    from mcp.types import JSONRPCMessage

    identity, code = None, _NO_JSON
    try:
        given = json.loads(message)
        code = _NO_REQUEST
        if isinstance(given, dict) and type(given.get("id")) in (str, int):
            identity = given["id"]
        JSONRPCMessage.model_validate_json(message)
    except (ValueError, RecursionError):
        error = {"code": code, "message": "this is no message of JSON-RPC that can be read"}
        return to_json({"jsonrpc": "2.0", "id": identity, "error": error})
    return None


class _Answered:
    """An ASGI application that answers what the SDK's, behind it, would fail on."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            from starlette.requests import ClientDisconnect, Request
            from starlette.responses import Response

            try:
                body = await Request(scope, receive).body()
            except ClientDisconnect:
                return
            if (refused := refusal(body)) is not None:
                await Response(refused, 400, media_type="application/json")(scope, receive, send)
                return
            receive = _after(body, receive)
        await self._app(scope, receive, send)


def _after(body: bytes, receive: Receive) -> Receive:
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return left.pop() if left else await receive()

    return replayed


async def run_http(server: FastMCP, access: Access, listening: socket.socket, announce: Callable[[], None]) -> None:
    """Serve clients over streamable HTTP at /mcp on a socket that listens, until Ctrl-C or SIGTERM."""
    import uvicorn

    from langgraph_convcoa.server.guard import Guard
    from langgraph_convcoa.server.serve import uvicorn_config

    serving = uvicorn.Server(uvicorn_config(Guard(_Answered(server.streamable_http_app()), access)))
    announce()
    await serving.serve(sockets=[listening])
