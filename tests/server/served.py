"""A server on loopback in a thread of the test's process, with a model that answers at once or waits until it is let."""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx

from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.graph import build_graph
from langgraph_convcoa.retrieval.index.database import is_index
from langgraph_convcoa.retrieval.index.index import open_or_create
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.server.app import ConvCoAServer, create_app, listen
from langgraph_convcoa.server.collections import Collection
from langgraph_convcoa.server.guard import Access
from langgraph_convcoa.server.service import Service, Settings
from langgraph_convcoa.storage.sqlite import SqliteStore
from tests.bounds import SECONDS, joined, wait_until
from tests.fake_encoder import WordEncoder
from tests.fakes import ScriptedModel, direct, documents

QUESTION = "When was the Hopfield network described?"
ANSWER = "John Hopfield described the Hopfield network in 1982 [1]."
PROXY = "x-user"
"""The header of a server that has users."""


class Served:
    """A server that runs, and what is needed to ask it."""

    def __init__(
        self, folder: Path, access: Access | None = None, approve: list[str] | None = None, model: Any = None
    ) -> None:
        self.folder = folder
        self.encoder = WordEncoder()
        # Set: the model answers at once.
        self.let = threading.Event()
        self.let.set()
        self.asked = 0
        self.listening = listen("127.0.0.1", 0)
        self.host = f"127.0.0.1:{self.listening.getsockname()[1]}"
        self.url = f"http://{self.host}"
        self.reply: Callable[[str], Any] = self._reply
        # Looked up at each call: a graph may use a copy of the model.
        self.model = ScriptedModel(by_prompt=lambda prompt: self.reply(prompt))
        retriever = HopfieldRetriever.from_documents(documents(), encoder=self.encoder)
        context = ConvCoAContext(approve=approve or [])
        settings = Settings(
            store=SqliteStore(folder / "store.sqlite"),
            make_graph=lambda found: build_graph(model=model or self.model, retriever=found, context=context),
            context=context,
            folder=folder / "collections",
            new_retriever=self._index,
            collections=[Collection("facts", "Facts", "facts", retriever)],
        )
        self.app = create_app(settings, access or Access(max_upload=1_000_000))
        self.service: Service = self.app.service
        self.server = ConvCoAServer(self.app, self.service)
        self.http = self.client()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        asyncio.run(self.server.serve(sockets=[self.listening]))

    def _reply(self, prompt: str) -> str:
        self.asked += 1
        assert self.let.wait(SECONDS)
        return direct(ANSWER)

    def _index(self, folder: Path) -> HopfieldRetriever:
        if not is_index(folder):
            open_or_create(folder, self.encoder, None, {})
        return HopfieldRetriever.from_pretrained(folder, encoder=self.encoder)

    @contextmanager
    def held(self) -> Iterator[None]:
        """The model does not answer within the block."""
        self.let.clear()
        try:
            yield
        finally:
            self.let.set()

    def stored(self) -> set[str]:
        """The threads of which the store holds anything."""
        with closing(sqlite3.connect(self.folder / "store.sqlite")) as connection:
            rows = connection.execute("SELECT thread_id FROM checkpoints UNION SELECT thread_id FROM writes")
            return {name for (name,) in rows}

    def client(self, **options: Any) -> httpx.Client:
        """A client; to be closed."""
        return httpx.Client(base_url=self.url, timeout=SECONDS, **options)

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """One request."""
        return self.http.request(method, path, **options)

    def thread_id(self, **headers: str) -> str:
        """A new thread."""
        made: str = self.ask("POST", "/threads", json={}, headers=headers).json()["thread_id"]
        return made

    def turn(self, thread: str, question: str = QUESTION, **headers: str) -> dict[str, Any]:
        """A turn of a thread, waited for."""
        response = self.ask("POST", f"/threads/{thread}/runs/wait", json={"input": {"question": question}}, headers=headers)
        assert response.status_code == 200, response.text
        output: dict[str, Any] = response.json()
        return output


@contextmanager
def served(folder: Path, access: Access | None = None, **options: Any) -> Iterator[Served]:
    """A server for a block."""
    found = Served(folder, access, **options)
    found.thread.start()
    wait_until(lambda: found.server.started or not found.thread.is_alive(), "the server starts")
    assert found.server.started
    try:
        yield found
    finally:
        found.let.set()
        found.server.should_exit = True
        joined([found.thread])
        found.http.close()


def raw(host: str, request: bytes) -> bytes:
    """What a server answers to bytes as they are; clients would mend what is wrong with them."""
    name, _, port = host.rpartition(":")
    with socket.create_connection((name, int(port)), timeout=SECONDS) as connection:
        connection.sendall(request)
        parts = []
        while part := connection.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def events(text: str) -> list[tuple[str, Any]]:
    """The names and the data of server-sent events."""
    found = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and not line.startswith(":"))
        if "event" in lines:
            found.append((lines["event"], json.loads(lines["data"])))
    return found
