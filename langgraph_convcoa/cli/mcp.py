"""`convcoa mcp`: search and verified answers as tools of a Model Context Protocol server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

import typer

from langgraph_convcoa.cli.options import AllowHost, ConversationOptions, Token, grouped, option
from langgraph_convcoa.cli.session import open_sources
from langgraph_convcoa.errors import InputError, require

_LOOPBACK = "127.0.0.1"


@grouped(ConversationOptions)
def mcp(
    options: ConversationOptions,
    http: Annotated[str | None, option("[HOST:]PORT", "Serve HTTP at /mcp of this address; 0 is a free port.")] = None,
    token: Token = "",
    allow_host: AllowHost = None,
) -> None:
    """Serve your documents to MCP clients, such as Claude Desktop: the tools search and ask, and passages as resources.

    A client starts it and talks to it over standard input and output; with --http it is a server. Conversations last as long
    as it runs, unless there is a --store; questions that name no thread join --thread. An index opens at once,
    but documents may have to be encoded first. It needs the extra `mcp`.

    [bold]Examples[/bold]
      convcoa mcp --index papers.index
      convcoa mcp --docs papers/ --data sales.csv --model openai:gpt-4.1-mini
      convcoa mcp --docs papers/ --http 8322
      CONVCOA_TOKEN=... convcoa mcp --docs papers/ --http 0.0.0.0:8322 --allow-host mcp.example.org
    """
    require("convcoa mcp", "mcp", "mcp", "starlette", "uvicorn")
    if options.approve:
        raise InputError("--approve asks a person at the terminal, and an MCP client has none: leave it out")
    options.check("mcp")
    from langgraph_convcoa.server.mcp_transports import run_http, run_stdio, take_stdout

    if http is None:
        if sys.stdin.isatty():
            typer.echo("an MCP client is to start this and talk to it (Ctrl-C ends it); --http makes it a server", err=True)
        wire = take_stdout()
        _serve(options, lambda server: run_stdio(server, wire))
        return
    from langgraph_convcoa.server.guard import Access
    from langgraph_convcoa.server.serve import address_of, listen

    host, port = _address(http)
    access = Access(host=host, token=token, names=frozenset(name.lower() for name in allow_host or []))
    # The port is taken before the documents are encoded.
    with listen(host, port) as listening:
        said = f"MCP is at {address_of(listening)}mcp  (Ctrl-C ends it)"
        _serve(options, lambda server: run_http(server, access, listening, lambda: typer.echo(said, err=True)))


def _serve(options: ConversationOptions, serve: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
    """Open the sources and the store, and serve them until the server ends."""
    from langgraph_convcoa.server.mcp import mcp_server
    from langgraph_convcoa.storage.turns import Turns

    opened = open_sources(options, "mcp")
    also = [*(["their tables"] if options.data else []), *(["the web"] if options.web else [])]

    async def served() -> None:
        async with opened.store.opened() as saver:
            turns = Turns(opened.graph.compile(checkpointer=saver), opened.store, opened.context, opened.sources)
            await serve(mcp_server(turns, opened.retriever, also=also, thread=options.thread))

    try:
        asyncio.run(served())
    finally:
        for action in opened.actions:
            action.close()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) <= 65_535):
        raise InputError(f"--http takes a port or an address with one, such as 8322 or {_LOOPBACK}:8322, not {text[:100]!r}")
    return host.strip("[]") or _LOOPBACK, int(port)
