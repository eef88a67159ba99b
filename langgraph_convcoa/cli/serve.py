"""`convcoa serve` and `mcp`: a page to talk to, LangGraph's wire format for programs, and a server for MCP clients."""

from __future__ import annotations

import ipaddress
import re
import sys
import threading
import webbrowser
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import parse_qsl, urlsplit

import typer

from langgraph_convcoa.cli.documents import default_encoder, documents_of, is_engine, is_web, place_of
from langgraph_convcoa.cli.options import AllowHost, ConversationOptions, Token, grouped, named_index, option
from langgraph_convcoa.cli.session import Basis, open_documents, open_session
from langgraph_convcoa.errors import InputError, redact, require
from langgraph_convcoa.server.upload_limits import UPLOAD_BYTES
from langgraph_convcoa.storage import data_folder, default_store

if TYPE_CHECKING:
    from langgraph_convcoa.retrieval.encoders.base import Encoder
    from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
    from langgraph_convcoa.server.collections import Collection
    from langgraph_convcoa.server.guard import Access


_SEVERAL = 'Chat model, such as "openai:gpt-4.1-mini"; may be repeated. The page offers all; the first is the default.'


@dataclass(frozen=True)
class ServeOptions(ConversationOptions):
    """The options of a conversation, without a thread, and with any number of collections and models."""

    # Lists here; the other commands take one value.
    docs: Annotated[list[str] | None, option("[NAME=]PATH", 'Documents, an index or "demo"; may be repeated.')] = None  # type: ignore[assignment]
    model: Annotated[list[str] | None, option("NAME", _SEVERAL, envvar="CONVCOA_MODEL")] = None  # type: ignore[assignment]
    thread: str | None = field(default=None, init=False)

    def check(self, command: str) -> None:
        """Check the sources. There may be no source yet, because documents can be uploaded later."""
        self.check_sources()


@grouped(ServeOptions)
def serve(
    options: ServeOptions,
    host: Annotated[
        str, option("ADDRESS", "Address to listen on. An address other than loopback needs a token or a user header.")
    ] = "127.0.0.1",
    port: Annotated[int, option("N", "The port; 0 for a free one.", min=0, max=65_535)] = 8321,
    token: Token = "",
    user_header: Annotated[str, option("NAME", "Header in which a reverse proxy names the user.", show_default=False)] = "",
    trusted_proxy: Annotated[list[str] | None, option("ADDRESS", "Address or network of the proxy; may be repeated.")] = None,
    allow_host: AllowHost = None,
    allow_origin: Annotated[list[str] | None, option("URL", "Other origin that may call the server; may be repeated.")] = None,
    max_upload_mb: Annotated[float, option("N", "The most megabytes of one upload.", min=0.001, max=1e6)] = UPLOAD_BYTES / 1e6,
    open_page: Annotated[bool, option(None, "Open the page in the browser.", "--open")] = False,
) -> None:
    r"""Serve a page on which to talk to your documents. More documents can be uploaded on the page.

    Conversations are kept in the user's own store, uploaded documents in the user's data folder. Ctrl-C ends the server; turns
    that it interrupts can be resumed on the page.

    [bold]Examples[/bold]
      convcoa serve --docs demo --open
      convcoa serve --docs papers/ --docs Notes=~/notes --model openai:gpt-4.1-mini
      convcoa serve --data sales.csv --approve data_analysis --model openai:gpt-4.1-mini
      CONVCOA_TOKEN=... convcoa serve --docs papers/ --host 0.0.0.0
    """
    require("convcoa serve", "serve", "starlette", "uvicorn", "python_multipart")
    options.check("serve")
    from langgraph_convcoa.server.guard import Access

    try:
        proxies = tuple(ipaddress.ip_network(text, strict=False) for text in trusted_proxy or [])
    except ValueError as error:
        raise InputError(f"--trusted-proxy takes an address or a network, such as 10.0.0.5 or 10.0.0.0/24: {error}") from error
    access = Access(
        host=host,
        token=token,
        user_header=user_header,
        proxies=proxies,
        names=frozenset(name.lower() for name in allow_host or []),
        origins=frozenset(origin.rstrip("/") for origin in allow_origin or []),
        max_upload=int(max_upload_mb * 1e6),
    )
    # The import comes after the access is checked: it takes seconds.
    from langgraph_convcoa.server.app import ConvCoAServer, address_of, listen

    # Take the port first: encoding the documents may take minutes.
    with listen(host, port) as listening:
        url = address_of(listening)
        app, service, closing = _served(options, access)

        def announce() -> None:
            typer.echo(f"convcoa is at {url}  (Ctrl-C ends it)")
            if open_page:
                # The browser is opened in a thread, since a browser in the terminal would block the server.
                threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

        try:
            ConvCoAServer(app, service, announce).run(sockets=[listening])
        except KeyboardInterrupt:
            resumed = "; what was being answered can be resumed on the page" if service.runs.cut_short else ""
            typer.echo(f"ended{resumed}", err=True)
        finally:
            for action in closing:
                action.close()


def _served(options: ServeOptions, access: Access) -> tuple[Any, Any, list[Any]]:
    """Make the application, its service, and the list of actions to close at the end."""
    from langgraph_convcoa.reasoning.models import load_chat_model
    from langgraph_convcoa.server.app import create_app
    from langgraph_convcoa.server.service import Settings

    models = [*dict.fromkeys(options.model or [])]
    single: Any = models[0] if models else None
    basis = Basis(replace(options, model=single), default_store() if options.store is None else options.store)
    for name in models[1:]:
        # Load each model now, so that its errors are raised at the start. A run loads its model again.
        load_chat_model(name, base_url=options.base_url)
    shown = _collections(options, basis)
    encoder = next((one.retriever.encoder for one in shown if one.retriever is not None), None) or default_encoder()
    also = [*(action.name for action in basis.tables), *(["web_querying"] if basis.search else [])]
    settings = Settings(
        store=basis.store,
        make_graph=basis.graph,
        context=basis.context,
        folder=data_folder() / "collections",
        new_retriever=partial(open_index, encoder=encoder, graph=options.graph),
        collections=shown,
        sources=basis.fingerprint("uploaded"),
        models=models,
        actions=["knowledge_retrieval", "overview", *also],
    )
    app = create_app(settings, access)
    return app, app.service, basis.actions


def _collections(options: ServeOptions, basis: Basis) -> list[Collection]:
    from langgraph_convcoa.server.collections import Collection

    shown: dict[str, Collection] = {}
    index = named_index(options.docs, options.index)
    for text in [*(options.docs or []), *([documents_of(None, index)] if index else [])]:
        name, _, path = text.partition("=")
        if not path or Path(text).exists() or is_web(text) or is_engine(text):
            name, path = _name_of(text), text
        path = path if is_web(path) or is_engine(path) else str(Path(path).expanduser())
        identity = re.sub(r"[^\w.-]+", "-", name.lower()).strip("-") or "documents"
        if identity in shown:
            raise InputError(f"two collections are called {name!r}: give one another name, as in --docs NAME={redact(path)}")
        files = Path(path) if Path(path).is_dir() else Path(path).parent if Path(path).is_file() else None
        retriever = open_documents(path, options)
        shown[identity] = Collection(identity, name, basis.fingerprint(place_of(path)), retriever, originals=files)
    if not shown and (options.data or options.web):
        shown["sources"] = Collection("sources", "Tables and the web", basis.fingerprint(""))
    return [*shown.values()]


def _name_of(text: str) -> str:
    if is_engine(text):
        return dict(parse_qsl(urlsplit(place_of(text)).query)).get("collection", "documents")
    return text if text == "demo" or is_web(text) else Path(text).expanduser().resolve().name


def open_index(folder: Path, encoder: Encoder, graph: bool | None) -> HopfieldRetriever:
    """Open the index in a folder, or make an empty one if there is none."""
    from langgraph_convcoa.retrieval.index.database import exists
    from langgraph_convcoa.retrieval.index.index import open_or_create
    from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

    if not exists(folder):
        open_or_create(folder, encoder, None, {})
    chosen: dict[str, Any] = {} if graph is None else {"graph": graph}
    return HopfieldRetriever.from_pretrained(folder, encoder=encoder, **chosen)


@grouped(ConversationOptions)
def mcp(
    options: ConversationOptions,
    http: Annotated[str | None, option("[HOST:]PORT", "Serve HTTP at /mcp of this address; 0 is a free port.")] = None,
    token: Token = "",
    allow_host: AllowHost = None,
) -> None:
    """Serve your documents to MCP clients, such as Claude Desktop. The tools are `search` and `ask`; passages are resources.

    A client starts this command and talks to it over standard input and output. With --http, it is a server. Without --store,
    conversations last until the command ends. Questions that name no thread join --thread. An index opens at once, but
    documents may have to be encoded first. The command needs the extra `mcp`.

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
    from langgraph_convcoa.server.mcp import run_http, run_stdio, take_stdout

    if http is None:
        if sys.stdin.isatty():
            typer.echo("an MCP client is to start this and talk to it (Ctrl-C ends it); --http makes it a server", err=True)
        wire = take_stdout()
        _serve_mcp(options, lambda server: run_stdio(server, wire))
        return
    from langgraph_convcoa.server.app import address_of, listen
    from langgraph_convcoa.server.guard import Access

    host, _, port = http.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) <= 65_535):
        raise InputError(f"--http takes a port or an address with one, such as 8322 or 127.0.0.1:8322, not {http[:100]!r}")
    host = host.strip("[]") or "127.0.0.1"
    access = Access(host=host, token=token, names=frozenset(name.lower() for name in allow_host or []))
    # Take the port first: encoding the documents may take minutes.
    with listen(host, int(port)) as listening:
        said = f"MCP is at {address_of(listening)}mcp  (Ctrl-C ends it)"
        _serve_mcp(options, lambda server: run_http(server, access, listening, lambda: typer.echo(said, err=True)))


def _serve_mcp(options: ConversationOptions, serve: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
    from langgraph_convcoa.server.mcp import mcp_server

    also = [*(["their tables"] if options.data else []), *(["the web"] if options.web else [])]
    with open_session(options, "mcp") as session:
        session.run(serve(mcp_server(session.turns, session.retriever, also=also, thread=options.thread)))
