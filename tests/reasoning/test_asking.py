"""Requests to models in their wrappers, over HTTP on loopback: schemas, streams and counts hold through each of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from langchain.chat_models import init_chat_model
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_openai import ChatOpenAI

from langgraph_convcoa.errors import ModelError
from langgraph_convcoa.reasoning.asking import Asking
from langgraph_convcoa.reasoning.parsing import CHAIN_SCHEMA
from langgraph_convcoa.usage import UsageCounter
from tests.fakes import ScriptedModel
from tests.openai_server import OpenAIServer, Reply

QUICK: dict[str, Any] = {"wait_exponential_jitter": False}
JSON = '{"optimized_question": "q", "chain": []}'
FORMS = pytest.mark.parametrize(("asynchronous", "streamed"), [(a, s) for a in (False, True) for s in (False, True)])


def client(server: OpenAIServer, name: str = "a") -> ChatOpenAI:
    return ChatOpenAI(model=name, base_url=server.base_url, api_key="x", max_retries=0, timeout=5)


async def asked(
    asking: Asking, asynchronous: bool, streamed: bool, schema: Any = CHAIN_SCHEMA, config: Any = None
) -> tuple[str, UsageCounter]:
    """The text of a reply, and what a usage counter has seen."""
    counter = UsageCounter()
    config = {**(config or {}), "callbacks": [counter]}
    model = asking.streamed(schema) if streamed else asking.whole(schema)
    if streamed and asynchronous:
        text = "".join([piece.text async for piece in model.astream("?", config)])
    elif streamed:
        text = "".join(piece.text for piece in model.stream("?", config))
    else:
        text = (await model.ainvoke("?", config) if asynchronous else model.invoke("?", config)).text
    return text, counter


def counted(counter: UsageCounter) -> tuple[int, int, int]:
    return counter.llm_calls, counter.input_tokens, counter.output_tokens


WRAPPERS: dict[str, Callable[[ChatOpenAI], Any]] = {
    "none": lambda model: model,
    "retry": lambda model: model.with_retry(**QUICK),
    "fallbacks": lambda model: model.with_fallbacks([ScriptedModel()]),
    "bind": lambda model: model.bind(seed=7),
    "config": lambda model: model.with_config(tags=["mine"]),
    "all": lambda model: model.bind(seed=7).with_config(tags=["mine"]).with_retry(**QUICK).with_fallbacks([ScriptedModel()]),
}


@pytest.mark.parametrize(("asynchronous", "streamed"), [(False, True), (True, False)])
@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
async def test_a_schema_goes_through_the_wrappers(wrap: Any, asynchronous: bool, streamed: bool) -> None:
    with OpenAIServer([JSON]) as server:
        text, counter = await asked(Asking(wrap(client(server))), asynchronous, streamed)
    [body] = server.requests
    assert (text, body["response_format"]["type"], body.get("stream", False)) == (JSON, "json_schema", streamed)
    assert counted(counter) == (1, 100, 20)
    assert body.get("seed") == (7 if wrap in (WRAPPERS["bind"], WRAPPERS["all"]) else None)


@FORMS
async def test_without_a_schema(asynchronous: bool, streamed: bool) -> None:
    with OpenAIServer(["Yes."]) as server:
        text, counter = await asked(Asking(client(server)), asynchronous, streamed, schema=None)
    assert (text, counted(counter)) == ("Yes.", (1, 100, 20))
    assert "response_format" not in server.requests[0]


@FORMS
async def test_every_attempt_of_a_retry_counts(asynchronous: bool, streamed: bool) -> None:
    with OpenAIServer([Reply(status=503), Reply(status=503), JSON]) as server:
        text, counter = await asked(Asking(client(server).with_retry(**QUICK)), asynchronous, streamed)
    assert text == JSON
    assert counter.llm_calls == len(server.requests) == 3
    assert counter.output_tokens == 20


@FORMS
async def test_the_request_to_a_fallback_counts_and_has_the_schema(asynchronous: bool, streamed: bool) -> None:
    with OpenAIServer([Reply(status=503)]) as server, OpenAIServer([JSON]) as other:
        model = client(server).with_fallbacks([client(other, "b").bind(seed=7)])
        text, counter = await asked(Asking(model), asynchronous, streamed)
    assert text == JSON
    assert counter.llm_calls == 2
    assert counter.input_tokens > 100, "the failed prompt is estimated"
    assert counter.output_tokens == 20
    assert [body["model"] for body in [*server.requests, *other.requests]] == ["a", "b"]
    assert (other.requests[0]["response_format"]["type"], other.requests[0]["seed"]) == ("json_schema", 7)


@FORMS
async def test_a_model_that_rejects_schemas_is_asked_without_before_its_fallback(asynchronous: bool, streamed: bool) -> None:
    def script(body: dict[str, Any]) -> Reply | str:
        return Reply("no response_format", status=400) if "response_format" in body else JSON

    with OpenAIServer(script) as server:
        asking = Asking(client(server).with_fallbacks([ScriptedModel(replies=["the fallback"])]))
        assert (await asked(asking, asynchronous, streamed))[0] == JSON
        before = len(server.requests)
        text, counter = await asked(asking, asynchronous, streamed)
    assert (text, before, len(server.requests)) == (JSON, 2, 3), "it is not tried again"
    assert counted(counter) == (1, 100, 20)


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("schema", [CHAIN_SCHEMA, None], ids=["schema", "plain"])
async def test_a_server_that_rejects_stream_options_is_asked_without(asynchronous: bool, schema: Any) -> None:
    def script(body: dict[str, Any]) -> Reply | str:
        return Reply("unknown field stream_options", status=400) if "stream_options" in body else JSON

    with OpenAIServer(script) as server:
        asking = Asking(client(server))
        assert (await asked(asking, asynchronous, True, schema))[0] == JSON
        before = len(server.requests)
        text, _ = await asked(asking, asynchronous, True, schema)
    assert (text, len(server.requests)) == (JSON, before + 1)
    assert ("response_format" in server.requests[-1]) is (schema is not None), "the schema was not what it rejected"


@FORMS
@pytest.mark.parametrize("status", [400, 404, 500, 401])
async def test_what_is_rejected_either_way_is_an_error_and_gives_nothing_up(
    status: int, asynchronous: bool, streamed: bool
) -> None:
    first = [Reply("too long", status=status)] * 4
    with OpenAIServer(lambda body: first.pop() if first else Reply(JSON)) as server:
        asking = Asking(client(server))
        with pytest.raises(Exception, match="too long"):
            await asked(asking, asynchronous, streamed)
        # 400: as it is, and without what could be meant; 404: without the schema; else no more.
        assert len(server.requests) == {400: 4 if streamed else 2, 404: 2}.get(status, 1)
        first.clear()
        await asked(asking, asynchronous, streamed)
    assert "response_format" in server.requests[-1]


@FORMS
async def test_a_reply_that_its_length_limit_broke_off_is_kept(asynchronous: bool, streamed: bool) -> None:
    with OpenAIServer([Reply(JSON[:20], finish_reason="length")]) as server:
        model = client(server).with_fallbacks([ScriptedModel(replies=["the fallback"])])
        text, _ = await asked(Asking(model), asynchronous, streamed)
    assert text == JSON[:20]


@FORMS
async def test_a_run_chooses_the_model(asynchronous: bool, streamed: bool) -> None:
    with OpenAIServer([JSON, JSON]) as server:
        options = {"base_url": server.base_url, "api_key": "x", "max_retries": 0}
        asking = Asking(init_chat_model("openai:a", configurable_fields=("model",), **options).with_retry(**QUICK))
        config = {"configurable": {"model": "openai:b", "thread_id": "1"}}
        assert (await asked(asking, asynchronous, streamed, config=config))[0] == JSON
        assert (await asked(asking, asynchronous, streamed))[0] == JSON
    assert [body["model"] for body in server.requests] == ["b", "a"]
    assert [body["response_format"]["type"] for body in server.requests] == ["json_schema", "json_schema"]
    assert [body.get("stream", False) for body in server.requests] == [streamed, streamed]


@FORMS
async def test_a_model_that_a_run_must_choose(asynchronous: bool, streamed: bool) -> None:
    with pytest.raises(ModelError, match="name it in the run's config"):
        await asked(Asking(init_chat_model()), asynchronous, streamed)


class WithTools(ScriptedModel):
    """Structured output by a tool call, as LangChain's default has it."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=tools, **kwargs)

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        text = self._next(messages)
        if not kwargs.get("tools"):
            return ChatResult(generations=[ChatGeneration(message=AIMessage(text))])
        call = {"name": kwargs["tools"][0]["title"], "args": json.loads(text), "id": "1"}
        return ChatResult(generations=[ChatGeneration(message=AIMessage("", tool_calls=[call]))])

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
        text = self._next(messages)
        for start in range(0, len(text), 5):
            name = kwargs["tools"][0]["title"] if not start else None
            piece = {"name": name, "args": text[start : start + 5], "id": "1" if not start else None, "index": 0}
            yield ChatGenerationChunk(message=AIMessageChunk("", tool_call_chunks=[piece]))


@FORMS
async def test_json_in_a_tool_call_is_read_as_text(asynchronous: bool, streamed: bool) -> None:
    model = WithTools(replies=[JSON]).bind(tools=[{"title": "search"}])
    text, counter = await asked(Asking(model), asynchronous, streamed)
    assert json.loads(text) == json.loads(JSON)
    assert counter.llm_calls == 1


@FORMS
async def test_a_model_without_structured_output_is_asked_in_words(asynchronous: bool, streamed: bool) -> None:
    text, _ = await asked(Asking(ScriptedModel(replies=[JSON]).bind(stop=["\n\n"])), asynchronous, streamed)
    assert text == JSON


def test_a_model_keeps_its_place_from_one_request_to_the_next() -> None:
    asking = Asking(FakeListChatModel(responses=["first", "second", "third"]).with_retry())
    replies = [asking.whole(schema).invoke("?").text for schema in (CHAIN_SCHEMA, None, CHAIN_SCHEMA)]
    assert replies == ["first", "second", "third"]
