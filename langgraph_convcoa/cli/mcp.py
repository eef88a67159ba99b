"""`convcoa mcp`: search and verified answers as tools of a Model Context Protocol server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from langgraph_convcoa.cli.options import ConversationOptions, grouped, option
from langgraph_convcoa.cli.session import Opened, open_sources
from langgraph_convcoa.errors import InputError

if TYPE_CHECKING:
    from langgraph_convcoa.server.guard import Access

_PACKAGES = ("mcp", "starlette", "uvicorn")
_LOOPBACK = "127.0.0.1"


@grouped(ConversationOptions)
def mcp(
    options: ConversationOptions,
    http: Annotated[
        str | None,
        option(
            "[HOST:]PORT", "Serve streamable HTTP at /mcp of this address, not standard input and output; 0 is a free port."
        ),
    ] = None,
    token: Annotated[
        str,
        option(
            "TEXT", "What HTTP requests must carry; better in the environment.", envvar="CONVCOA_TOKEN", show_default=False
        ),
    ] = "",
    allow_host: Annotated[
        list[str] | None, option("NAME", "A name under which clients reach the HTTP server; may be repeated.")
    ] = None,
) -> None:
    """Serve your documents to MCP clients, such as Claude Desktop: the tools search and ask, and passages as resources.

    A client starts it and talks to it over standard input and output; with --http it is a server. Conversations last as long
    as it runs, unless there is a --store; --thread names the one of questions that name none. An index opens at once, where
    documents may have to be encoded first. It needs the extra `mcp`.

    [bold]Examples[/bold]
      convcoa mcp --index papers.index
      convcoa mcp --docs papers/ --data sales.csv --model openai:gpt-4.1-mini
      convcoa mcp --docs papers/ --http 8322
      CONVCOA_TOKEN=... convcoa mcp --docs papers/ --http 0.0.0.0:8322 --allow-host mcp.example.org
    """
    if missing := [name for name in _PACKAGES if find_spec(name) is None]:
        raise InputError(f'convcoa mcp needs {missing[0]}: pip install "langgraph-convcoa[mcp]"')
    if options.approve:
        raise InputError("--approve asks a person at the terminal, and an MCP client has none: leave it out")
    options.check("mcp")
    if http is None:
        _over_stdio(options)
        return
    host, port = _address(http)
    from langgraph_convcoa.server.guard import Access
    from langgraph_convcoa.server.serve import listen

    access = Access(host=host, token=token, names=frozenset(name.lower() for name in allow_host or []))
    # Before minutes of encoding.
    with listen(host, port) as listening:
        _over_http(options, access, listening)


def _over_stdio(options: ConversationOptions) -> None:
    from langgraph_convcoa.server.mcp_transports import run_stdio, take_stdout

    if sys.stdin.isatty():
        typer.echo("an MCP client is to start this and talk to it (Ctrl-C ends it); --http makes it a server", err=True)
    wire = take_stdout()
    _run(options, lambda server: run_stdio(server, wire))


def _over_http(options: ConversationOptions, access: Access, listening: Any) -> None:
    from langgraph_convcoa.server.mcp_transports import run_http
    from langgraph_convcoa.server.serve import address_of

    def announce() -> None:
        typer.echo(f"MCP is at {address_of(listening)}mcp  (Ctrl-C ends it)", err=True)

    _run(options, lambda server: run_http(server, access, listening, announce))


def _run(options: ConversationOptions, serve: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
    opened = open_sources(options, "mcp")
    try:
        asyncio.run(_served(options, opened, serve))
    finally:
        for action in opened.actions:
            action.close()


async def _served(options: ConversationOptions, opened: Opened, serve: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
    from langgraph_convcoa.server.mcp import mcp_server
    from langgraph_convcoa.storage.turns import Turns

    async with opened.store.opened() as saver:
        turns = Turns(opened.graph.compile(checkpointer=saver), opened.store, opened.context, opened.sources)
        also = [*(["their tables"] if options.data else []), *(["the web"] if options.web else [])]
        await serve(mcp_server(turns, opened.retriever, also=also, thread=options.thread))


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) <= 65_535):
        raise InputError(f"--http takes a port or an address with one, such as 8322 or {_LOOPBACK}:8322, not {text[:100]!r}")
    return host.strip("[]") or _LOOPBACK, int(port)
