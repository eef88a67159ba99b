"""How an MCP server is reached: over standard input and output, or over HTTP on a port."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket

    from langgraph_convcoa.server.guard import Access


def take_stdout() -> Any:
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


async def run_stdio(server: Any, wire: Any) -> None:
    """Serve one client over standard input and the stream, until it closes the input."""
    with redirect_stdout(wire):
        await server.run_stdio_async()


async def run_http(server: Any, access: Access, listening: socket.socket, announce: Callable[[], None]) -> None:
    """Serve clients over streamable HTTP at /mcp on a socket that listens, until Ctrl-C or SIGTERM."""
    import uvicorn

    from langgraph_convcoa.server.guard import Guard
    from langgraph_convcoa.server.mcp import http_app
    from langgraph_convcoa.server.serve import uvicorn_config

    serving = uvicorn.Server(uvicorn_config(Guard(http_app(server), access)))
    announce()
    await serving.serve(sockets=[listening])
