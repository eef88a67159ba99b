"""The MCP server, with the SDK's own client: tools, passages as resources, errors, and who may reach it over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import httpx
import pytest
from langchain_core.documents import Document

from langgraph_convcoa.graph import build_graph
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.storage import open_store
from langgraph_convcoa.storage.turns import Turns
from tests import fakes
from tests.bounds import SECONDS
from tests.fake_encoder import WordEncoder
from tests.fakes import KeywordRetriever, ScriptedModel, corrections, direct, documents, node, plan

pytest.importorskip("mcp.server.fastmcp", reason="these tests are written with the client of version 1 of the MCP SDK")
from mcp.shared.exceptions import McpError
from mcp.shared.memory import create_connected_server_and_client_session as connected

from langgraph_convcoa.server import mcp as module
from langgraph_convcoa.server.guard import Access, Guard
from langgraph_convcoa.server.mcp import TEXT, mcp_server, passage_uri, run_stdio

WHO = "Who introduced sparsemax?"
ODD = ["a b/c.md#1", "x:page-3#2", "a%20b", "a b", "../up", "/abs", "ünï?x=1&y#z"]


@pytest.fixture(scope="module")
def retriever() -> HopfieldRetriever:
    more = [Document(f"Text of number {n}.", id=id_, metadata={"source": "odd.md"}) for n, id_ in enumerate(ODD)]
    long = Document("Elephants are large. " * 60, id="long", metadata={"source": "zoo.md", "title": "Zoo\n# x", "year": 2020})
    return HopfieldRetriever.from_documents([*documents(), *more, long], encoder=WordEncoder())


@asynccontextmanager
async def serving(retriever: HopfieldRetriever | None, **more: Any) -> AsyncIterator[Any]:
    store = open_store(None)
    async with store.opened() as saver:
        searched = KeywordRetriever() if (model := more.pop("model", None)) else retriever
        graph = build_graph(model=model, retriever=searched, actions=more.pop("actions", None)).compile(checkpointer=saver)
        yield mcp_server(Turns(graph, store), retriever, **more)


@asynccontextmanager
async def client(retriever: HopfieldRetriever | None, **more: Any) -> AsyncIterator[Any]:
    async with asyncio.timeout(SECONDS), serving(retriever, **more) as server, connected(server) as session:
        yield session


async def call(session: Any, tool: str, **arguments: Any) -> dict[str, Any]:
    done = await session.call_tool(tool, arguments)
    assert not done.isError, done.content[0].text
    return dict(done.structuredContent)


async def error(session: Any, tool: str, **arguments: Any) -> str:
    done = await session.call_tool(tool, arguments)
    assert done.isError
    return str(done.content[0].text)


async def test_tools_and_every_one_of_their_parameters_are_described(retriever: HopfieldRetriever) -> None:
    async with client(retriever, also=["the web"]) as session:
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        [template] = (await session.list_resource_templates()).resourceTemplates
    assert tools.keys() == {"search", "ask"}
    for tool in tools.values():
        assert all(parameter["description"] for parameter in tool.inputSchema["properties"].values())
        assert tool.outputSchema is not None
        assert tool.annotations.readOnlyHint
    assert set(tools["search"].inputSchema["properties"]) == {"query", "conversation", "k", "filter"}
    assert set(tools["ask"].inputSchema["properties"]) == {"question", "thread"}
    assert tools["ask"].description.startswith("Answer a question from the user's own documents and the web.")
    assert tools["ask"].annotations.openWorldHint
    assert template.uriTemplate == "passage://{id}"


async def test_search_finds_passages_in_conversation_within_bounds(retriever: HopfieldRetriever) -> None:
    turns = [{"question": "What is sparsemax?", "answer": "Sparsemax gives sparse probabilities."}]
    async with client(retriever) as session:
        found = (await call(session, "search", query=WHO, k=2))["passages"]
        assert (found[0]["id"], found[0]["source"], len(found)) == ("sparsemax-2016", "sparsemax-2016.md", 2)
        assert found[0]["score"] > found[1]["score"]
        follow_up = (await call(session, "search", query="When was it introduced?", conversation=turns))["passages"]
        assert follow_up[0]["id"] == "sparsemax-2016"
        [long] = (await call(session, "search", query=WHO, filter={"year": {"$gte": 2000}}))["passages"]
        assert long["source"] == "zoo.md"
        assert len(long["text"]) <= TEXT
        assert "less than or equal to 20" in await error(session, "search", query=WHO, k=21)
        assert "The question is empty" in await error(session, "search", query=" ")
        assert "operator '$foo'" in await error(session, "search", query=WHO, filter={"year": {"$foo": 1}})
        assert "at most 10000 characters" in await error(session, "search", query="w" * 10_001)


async def test_passages_are_resources_whatever_their_ids(retriever: HopfieldRetriever) -> None:
    async with client(retriever) as session:
        for number, id_ in enumerate(ODD):
            [read] = (await session.read_resource(passage_uri(id_))).contents
            assert read.text == f"source: odd.md\n\nText of number {number}."
        [zoo] = (await session.read_resource("passage://long")).contents
        assert zoo.text.startswith("title: Zoo # x\nsource: zoo.md\n\nElephants")
        assert zoo.text.count("Elephants") == 60
        with pytest.raises(McpError, match="there is no passage 'no/such': ids are those that search returns"):
            await session.read_resource(passage_uri("no/such"))


async def test_ask_answers_with_citations_and_continues_its_thread(retriever: HopfieldRetriever) -> None:
    said: list[str | None] = []

    async def progress(_done: float, _total: float | None, message: str | None) -> None:
        said.append(message)

    async with client(retriever) as session:
        first = await session.call_tool("ask", {"question": WHO}, progress_callback=progress)
        first = first.structuredContent
        assert "Martins" in first["answer"]
        [cited] = first["citations"]
        assert (cited["number"], cited["id"], cited["uri"]) == (1, "sparsemax-2016", "passage://sparsemax-2016")
        assert cited["quote"] in (await session.read_resource(cited["uri"])).contents[0].text
        assert [(step["sub_question"], step["status"]) for step in first["steps"]] == [(WHO, "filled")]
        assert said[-1] == f"knowledge_retrieval filled: {WHO}"
        then = await call(session, "ask", question="When was it introduced?", thread=first["thread"])
        assert "2016" in then["answer"]
        assert then["thread"] == first["thread"]
        assert (await call(session, "ask", question=WHO))["thread"] != first["thread"]
        assert "the question is empty" in (await error(session, "ask", question=" ")).lower()


async def test_sentences_that_no_evidence_supports_are_named() -> None:
    made_up = "It sold nine million copies in Brazil."
    model = ScriptedModel(
        replies=[plan(node(WHO)), corrections("By Martins.", final=f"Martins and Astudillo introduced it [1]. {made_up}")]
    )
    async with client(None, model=model) as session:
        answered = await call(session, "ask", question=WHO)
    assert answered["unsupported"] == [made_up]


async def test_a_question_back_is_named_and_answered_in_its_thread() -> None:
    model = ScriptedModel(replies=[fakes.asking(), direct("It was described in 1982 [1].")])
    async with client(None, model=model) as session:
        back = await call(session, "ask", question=fakes.VAGUE)
        then = await call(session, "ask", question="The network.", thread=back["thread"])
    assert (back["clarification"], back["answer"], back["steps"][0]["status"]) == (fakes.BACK, fakes.BACK, "asked")
    assert (then["clarification"], then["answer"]) == ("", "It was described in 1982 [1].")


async def test_turns_of_one_thread_that_are_asked_at_once_are_all_kept(retriever: HopfieldRetriever) -> None:
    store = open_store(None)
    async with store.opened() as saver:
        turns = Turns(build_graph(retriever=retriever).compile(checkpointer=saver), store)
        async with connected(mcp_server(turns, retriever, thread="mine")) as session:
            await asyncio.gather(*(call(session, "ask", question=WHO) for _ in range(3)))
        kept = (await turns.snapshot("mine")).values["knowledge_set"]
    assert len(kept["Contextual knowledge set"]) == 3


async def test_a_server_keeps_the_last_conversations_in_memory(
    retriever: HopfieldRetriever, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_THREADS_IN_MEMORY", 2)
    store = open_store(None)
    async with store.opened() as saver:
        turns = Turns(build_graph(retriever=retriever).compile(checkpointer=saver), store)
        async with connected(mcp_server(turns, retriever)) as session:
            for name in ("a", "b", "a", "c"):
                await call(session, "ask", question=WHO, thread=name)
        left = {part.config["configurable"]["thread_id"] async for part in turns.saver.alist(None)}
    assert left == {"a", "c"}


async def test_an_error_nobody_thought_of_gives_nothing_away(
    retriever: HopfieldRetriever, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("sk-secret-0123456789")

    monkeypatch.setattr(WordEncoder, "encode_queries", broken)
    async with client(retriever) as session:
        assert "internal error (RuntimeError at " in await error(session, "search", query="What do networks store?")
        asked = await session.call_tool("ask", {"question": "What do networks store?"})
    assert "secret" not in asked.content[0].text
    assert "secret" not in caplog.text


async def test_without_documents_there_is_nothing_to_search() -> None:
    class Nothing:
        name = "tables"
        description = "finds nothing"

        async def retrieve(self, request: Any) -> list[Document]:
            return [Document("Sparsemax was introduced by Martins.", id="row-1", metadata={"source": "a.csv"})]

    async with client(None, actions=[Nothing()], also=["their tables"]) as session:
        assert [tool.name for tool in (await session.list_tools()).tools] == ["ask"]
        assert (await session.list_resource_templates()).resourceTemplates == []
        [cited] = (await call(session, "ask", question=WHO))["citations"]
    assert (cited["id"], cited["uri"]) == ("row-1", "")


TOKEN = "0123456789abcdef"
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


@pytest.mark.parametrize(
    ("token", "headers", "status"),
    [
        ("", {}, 200), ("", {"host": "localhost:8322"}, 200), ("", {"host": "attacker.example"}, 421),
        ("", {"origin": "https://attacker.example"}, 403), ("", {"content-type": "text/plain"}, 415), (TOKEN, {}, 401),
        (TOKEN, {"authorization": f"Bearer {TOKEN[:-1]}"}, 401), (TOKEN, {"authorization": f"Bearer {TOKEN}"}, 200),
    ],
)  # fmt: skip
async def test_who_may_reach_it_over_http(
    retriever: HopfieldRetriever, token: str, headers: dict[str, str], status: int
) -> None:
    async with serving(retriever) as server:
        app = server.streamable_http_app()
        transport = httpx.ASGITransport(Guard(app, Access(token=token)))
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8322", timeout=SECONDS) as http,
        ):
            accepted = {"accept": "application/json, text/event-stream", **headers}
            answered = await http.post("/mcp", json=HELLO, headers=accepted)
    assert answered.status_code == status
    named = f'"serverInfo":{{"name":"convcoa","version":"{version("langgraph-convcoa")}"}}'
    assert (named in answered.text) == (status == 200)


async def test_a_line_that_is_no_message_is_answered_over_standard_output(
    retriever: HopfieldRetriever, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def message(identity: str, params: str) -> str:
        return f'{{"jsonrpc": "2.0", "id": {identity}, "method": "ping", "params": {params}}}\n'

    lines = [
        "\n",
        message("1", r'{"a": "\ud800"}'),
        message("2", "[]"),
        message("9" * 5_000, "{}"),
        "[" * 5_000 + "\n",
        "[]\n",
    ]
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO("".join([*lines, message("3", "{}")]).encode())))
    with (tmp_path / "wire").open("w+") as wire:
        async with asyncio.timeout(SECONDS), serving(retriever) as server:
            await run_stdio(server, wire)
        wire.seek(0)
        *refused, answered = map(json.loads, wire)
    assert [(one["id"], one["error"]["code"]) for one in refused] == [(id_, -32600) for id_ in (1, 2, None, None, None)]
    assert answered == {"jsonrpc": "2.0", "id": 3, "result": {}}
