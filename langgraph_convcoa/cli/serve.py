"""`convcoa serve`: a page to talk to, and LangGraph's wire format for programs."""

from __future__ import annotations

import ipaddress
import re
import threading
import webbrowser
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import parse_qsl, urlsplit

import typer

from langgraph_convcoa.cli.documents import default_encoder, documents_of, is_engine, is_web, place_of
from langgraph_convcoa.cli.options import AllowHost, ConversationOptions, Token, grouped, named_index, option
from langgraph_convcoa.cli.session import Basis, open_basis, open_documents
from langgraph_convcoa.errors import InputError, require
from langgraph_convcoa.errors.redaction import redact
from langgraph_convcoa.server import UPLOAD_BYTES
from langgraph_convcoa.storage import data_folder, default_store

if TYPE_CHECKING:
    from langgraph_convcoa.actions.base import BaseAction
    from langgraph_convcoa.retrieval.encoders.base import Encoder
    from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
    from langgraph_convcoa.server.collections import Collection
    from langgraph_convcoa.server.guard import Access


Collections = Annotated[list[str] | None, option("[NAME=]PATH", 'Documents, an index or "demo"; may be repeated.')]


Models = Annotated[
    list[str] | None,
    option(
        "NAME",
        'Chat model, such as "openai:gpt-4.1-mini"; of several the page offers a choice, and the first is the default.',
        envvar="CONVCOA_MODEL",
    ),
]


@dataclass(frozen=True)
class ServeOptions(ConversationOptions):
    """The options of a conversation, with any number of collections and models and without a thread."""

    # Several values; the other commands take one.
    docs: Collections = None  # type: ignore[assignment]
    model: Models = None  # type: ignore[assignment]
    thread: str | None = field(default=None, init=False)

    def check(self, command: str) -> None:
        """Check the sources. None are required: documents may be uploaded later."""
        self.check_sources()


@grouped(ServeOptions)
def serve(
    options: ServeOptions,
    host: Annotated[
        str, option("ADDRESS", "Address to listen on; not loopback: give a token or a user header.")
    ] = "127.0.0.1",
    port: Annotated[int, option("N", "The port; 0 for a free one.", min=0, max=65_535)] = 8321,
    token: Token = "",
    user_header: Annotated[str, option("NAME", "Header in which a reverse proxy names the user.", show_default=False)] = "",
    trusted_proxy: Annotated[list[str] | None, option("ADDRESS", "Address or network of the proxy; may be repeated.")] = None,
    allow_host: AllowHost = None,
    allow_origin: Annotated[list[str] | None, option("URL", "Another page that may call; may be repeated.")] = None,
    max_upload_mb: Annotated[float, option("N", "The most megabytes of one upload.", min=0.001, max=1e6)] = UPLOAD_BYTES / 1e6,
    open_page: Annotated[bool, option(None, "Open the page in the browser.", "--open")] = False,
) -> None:
    r"""Serve a page to talk to, over documents of yours and those that are uploaded on it.

    Conversations are kept in the user's own store, uploaded documents in the user's data folder. Ctrl-C ends the server; turns
    that run then are resumed on the page.

    [bold]Examples[/bold]
      convcoa serve --docs demo --open
      convcoa serve --docs papers/ --docs Notes=~/notes --model openai:gpt-4.1-mini
      convcoa serve --data sales.csv --approve data_analysis --model openai:gpt-4.1-mini
      CONVCOA_TOKEN=... convcoa serve --docs papers/ --host 0.0.0.0
    """
    require("convcoa serve", "serve", "starlette", "uvicorn", "python_multipart")
    options.check("serve")
    from langgraph_convcoa.server.guard import Access
    from langgraph_convcoa.server.serve import ConvCoAServer, address_of, listen

    access = Access(
        host=host,
        token=token,
        user_header=user_header,
        proxies=_networks(trusted_proxy or []),
        names=frozenset(name.lower() for name in allow_host or []),
        origins=frozenset(origin.rstrip("/") for origin in allow_origin or []),
        max_upload=int(max_upload_mb * 1e6),
    )
    # The port is taken before minutes of encoding.
    with listen(host, port) as listening:
        url = address_of(listening)
        app, service, closing = _served(options, access)

        def announce() -> None:
            typer.echo(f"convcoa is at {url}  (Ctrl-C ends it)")
            if open_page:
                # In a thread, since a browser in the terminal would block the server.
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
    """Make the application, its service, and the list of actions to close after the server ended."""
    from langgraph_convcoa.reasoning.models import load_chat_model
    from langgraph_convcoa.server.app import create_app
    from langgraph_convcoa.server.service import Settings

    models = [*dict.fromkeys(options.model or [])]
    single: Any = models[0] if models else None
    basis = open_basis(replace(options, model=single), default_store() if options.store is None else options.store)
    for name in models[1:]:
        # Only to raise errors now: a run loads the model that it names.
        load_chat_model(name, base_url=options.base_url)
    shown = _collections(options, basis)
    made: list[BaseAction] = []
    encoders = [one.retriever.encoder for one in shown if one.retriever is not None]
    encoder = encoders[0] if encoders else default_encoder()

    def make_graph(retriever: HopfieldRetriever | None) -> Any:
        opened = basis.over("", retriever)
        made.extend(action for action in opened.actions if action not in made)
        return opened.graph

    described = [
        ("knowledge_retrieval", "searches the documents"),
        ("overview", "lists, counts, summarises and compares whole documents"),
        *((action.name, _about(action)) for action in basis.tables),
    ]
    described += [("web_querying", "looks things up on the web")] if basis.search else []
    settings = Settings(
        store=basis.store,
        make_graph=make_graph,
        context=basis.context,
        folder=data_folder() / "collections",
        new_retriever=partial(open_index, encoder=encoder, graph=options.graph),
        collections=shown,
        sources=basis.fingerprint("uploaded"),
        models=models,
        actions=[{"name": name, "description": description} for name, description in described],
    )
    app = create_app(settings, access)
    return app, app.service, made


def _collections(options: ServeOptions, basis: Basis) -> list[Collection]:
    from langgraph_convcoa.server.collections import Collection

    shown: dict[str, Collection] = {}
    index = named_index(options.docs, options.index)
    given = [*(options.docs or []), *([documents_of(None, index)] if index else [])]
    for text in given:
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
    """The default name of a collection of documents."""
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


def _about(action: BaseAction) -> str:
    """The first line of the description that the planner reads."""
    text = action.description
    return str(text() if callable(text) else text).strip().partition("\n")[0][:300]


def _networks(texts: list[str]) -> tuple[Any, ...]:
    try:
        return tuple(ipaddress.ip_network(text, strict=False) for text in texts)
    except ValueError as error:
        raise InputError(f"--trusted-proxy takes an address or a network, such as 10.0.0.5 or 10.0.0.0/24: {error}") from error
