"""Requests to models, bare and in wrappers, over HTTP on loopback: schemas, streams and counts."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from langchain.chat_models import init_chat_model
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_openai import ChatOpenAI

from langgraph_convcoa.errors import ModelError, RetrievalError
from langgraph_convcoa.reasoning.chat_model import ChatModelReasoner
from langgraph_convcoa.reasoning.parsing import CHAIN_SCHEMA
from langgraph_convcoa.reasoning.streaming import AnswerStream, streamed_answer
from langgraph_convcoa.reasoning.usage import UsageCounter
from tests.fakes import ScriptedModel
from tests.openai_server import OpenAIServer, Reply

QUICK: dict[str, Any] = {"wait_exponential_jitter": False}
JSON = '{"optimized_question": "q", "chain": []}'
FORMS = pytest.mark.parametrize(("asynchronous", "streamed"), [(a, s) for a in (False, True) for s in (False, True)])


class Shown:
    """A gate that shows everything."""

    streams, shown = True, ""

    def feed(self, text: str, *, done: bool = False) -> str:
        self.shown = text
        return text


async def asked(
    client: ChatModelReasoner, asynchronous: bool, streamed: bool, schema: Any = CHAIN_SCHEMA, config: Any = None
) -> tuple[str, UsageCounter]:
    counter = UsageCounter()
    stream = AnswerStream(Shown(), whole_answer=True) if streamed else None
    given = ("?", schema, {**(config or {}), "callbacks": [counter]}, stream)
    return (await client.aask(*given) if asynchronous else client.ask(*given)), counter


def counted(counter: UsageCounter) -> tuple[int, int, int]:
    return counter.llm_calls, counter.input_tokens, counter.output_tokens


WRAPPERS: dict[str, Callable[[ChatOpenAI], Any]] = {
    "retry": lambda model: model.with_retry(**QUICK),
    "all": lambda model: model.bind(seed=7).with_config(tags=["mine"]).with_retry(**QUICK).with_fallbacks([ScriptedModel()]),
}


@FORMS
async def test_a_bare_model_is_asked_for_structured_output(asynchronous: bool, streamed: bool) -> None:
    with OpenAIServer([JSON]) as server:
        text, counter = await asked(ChatModelReasoner(server.model()), asynchronous, streamed)
    [body] = server.requests
    assert (text, body["response_format"]["type"], body.get("stream", False)) == (JSON, "json_schema", streamed)
    assert counted(counter) == (1, 100, 20)


@FORMS
@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
async def test_a_model_in_wrappers_is_asked_as_it_is(wrap: Any, asynchronous: bool, streamed: bool) -> None:
    with OpenAIServer([JSON]) as server:
        text, counter = await asked(ChatModelReasoner(wrap(server.model())), asynchronous, streamed)
    [body] = server.requests
    assert (text, "response_format" in body, body.get("stream", False)) == (JSON, False, streamed)
    assert counter.llm_calls == 1
    assert counter.output_tokens > 0
    assert body.get("seed") == (7 if wrap is WRAPPERS["all"] else None)


@FORMS
async def test_every_attempt_of_a_retry_counts(asynchronous: bool, streamed: bool) -> None:
    with OpenAIServer([Reply(status=503), Reply(status=503), JSON]) as server:
        text, counter = await asked(ChatModelReasoner(server.model().with_retry(**QUICK)), asynchronous, streamed)
    assert text == JSON
    assert counter.llm_calls == len(server.requests) == 3
    assert counter.output_tokens > 0


@FORMS
async def test_the_request_to_a_fallback_counts(asynchronous: bool, streamed: bool) -> None:
    with OpenAIServer([Reply(status=503)]) as server, OpenAIServer([JSON]) as other:
        model = server.model().with_fallbacks([other.model("b").bind(seed=7)])
        text, counter = await asked(ChatModelReasoner(model), asynchronous, streamed)
    assert text == JSON
    assert counter.llm_calls == 2
    assert counter.input_tokens > 0, "the failed prompt is estimated"
    assert counter.output_tokens > 0
    assert [body["model"] for body in [*server.requests, *other.requests]] == ["a", "b"]
    assert other.requests[0]["seed"] == 7


@FORMS
async def test_a_model_that_rejects_schemas_is_asked_without(asynchronous: bool, streamed: bool) -> None:
    def script(body: dict[str, Any]) -> Reply | str:
        return Reply("no response_format", status=400) if "response_format" in body else JSON

    with OpenAIServer(script) as server:
        client_ = ChatModelReasoner(server.model())
        assert (await asked(client_, asynchronous, streamed))[0] == JSON
        before = len(server.requests)
        text, counter = await asked(client_, asynchronous, streamed)
    assert (text, before, len(server.requests)) == (JSON, 2, 3), "it is not tried again"
    assert counted(counter) == (1, 100, 20)


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("schema", [CHAIN_SCHEMA, None], ids=["schema", "plain"])
async def test_a_server_that_rejects_stream_options_is_asked_without(asynchronous: bool, schema: Any) -> None:
    def script(body: dict[str, Any]) -> Reply | str:
        return Reply("unknown field stream_options", status=400) if "stream_options" in body else JSON

    with OpenAIServer(script) as server:
        client_ = ChatModelReasoner(server.model())
        assert (await asked(client_, asynchronous, True, schema))[0] == JSON
        before = len(server.requests)
        text, _ = await asked(client_, asynchronous, True, schema)
    assert (text, len(server.requests)) == (JSON, before + 1)
    assert ("response_format" in server.requests[-1]) is (schema is not None), "the schema was not what it rejected"


@FORMS
@pytest.mark.parametrize("status", [400, 404, 500, 401])
async def test_what_is_rejected_either_way_is_an_error_and_gives_nothing_up(
    status: int, asynchronous: bool, streamed: bool
) -> None:
    first = [Reply("too long", status=status)] * 4
    with OpenAIServer(lambda body: first.pop() if first else Reply(JSON)) as server:
        client_ = ChatModelReasoner(server.model())
        with pytest.raises(ModelError, match=str(status)):
            await asked(client_, asynchronous, streamed)
        # 400: as it is, and without what could be meant; 404: without the schema; else no more.
        assert len(server.requests) == {400: 4 if streamed else 2, 404: 2}.get(status, 1)
        first.clear()
        await asked(client_, asynchronous, streamed)
    assert "response_format" in server.requests[-1]


@FORMS
async def test_a_reply_that_its_length_limit_broke_off_is_kept(asynchronous: bool, streamed: bool) -> None:
    with OpenAIServer([Reply(JSON[:20], finish_reason="length")]) as server:
        text, _ = await asked(ChatModelReasoner(server.model()), asynchronous, streamed)
    assert text == JSON[:20]


@FORMS
async def test_a_run_chooses_the_model(asynchronous: bool, streamed: bool) -> None:
    with OpenAIServer([JSON, JSON]) as server:
        options = {"base_url": server.base_url, "api_key": "x", "max_retries": 0}
        client_ = ChatModelReasoner(init_chat_model("openai:a", configurable_fields=("model",), **options).with_retry(**QUICK))
        config = {"configurable": {"model": "openai:b", "thread_id": "1"}}
        assert (await asked(client_, asynchronous, streamed, config=config))[0] == JSON
        assert (await asked(client_, asynchronous, streamed))[0] == JSON
    assert [body["model"] for body in server.requests] == ["b", "a"]
    assert [body.get("stream", False) for body in server.requests] == [streamed, streamed]


@FORMS
async def test_a_model_that_a_run_must_choose(asynchronous: bool, streamed: bool) -> None:
    with pytest.raises(ModelError, match="name it in the run's config"):
        await asked(ChatModelReasoner(init_chat_model()), asynchronous, streamed)


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
    text, counter = await asked(ChatModelReasoner(model), asynchronous, streamed)
    assert json.loads(text) == json.loads(JSON)
    assert counter.llm_calls == 1


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_a_stream_that_has_begun_is_not_begun_again(asynchronous: bool) -> None:
    class Broken(ScriptedModel):
        def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
            yield next(super()._stream(messages, stop, run_manager, **kwargs))
            raise ConnectionError("broken off")

    inner, fallback = Broken(replies=["one", "two"]), ScriptedModel(replies=["three"])
    for model in (inner.with_retry(**QUICK), inner.with_fallbacks([fallback])):
        with pytest.raises(ModelError, match="cannot reach"):
            await asked(ChatModelReasoner(model), asynchronous, True)
    assert (len(inner.prompts), len(fallback.prompts)) == (2, 0), "each was asked once"


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_an_error_of_the_verifier_is_not_reported_as_the_models(asynchronous: bool) -> None:
    class Broken(Shown):
        def feed(self, text: str, *, done: bool = False) -> str:
            raise RetrievalError("the verifier cannot be loaded")

    model = ScriptedModel(replies=['{"final_answer": "It rained."}'])
    given = ("?", None, None, AnswerStream(Broken(), whole_answer=True))  # type: ignore[arg-type]
    with pytest.raises(RetrievalError, match="the verifier cannot be loaded"):
        await ChatModelReasoner(model).aask(*given) if asynchronous else ChatModelReasoner(model).ask(*given)
    assert len(model.prompts) == 1


def test_the_answer_is_read_while_the_reply_is_written() -> None:
    reply = '<think>Hm.</think>{"chain": [], "final_answer": "It was \\"big\\" \\ud83d\\ude00.", "x": 1}'
    read = [streamed_answer(reply[:end], whole_answer=False) for end in range(len(reply) + 1)]
    assert read[-1] == ('It was "big" \U0001f600.', True)
    assert next(answer for answer, _ in read if answer) == "I"
    for (one, _), (two, _) in itertools.pairwise(read):
        assert two.startswith(one.rstrip("\ufffd"))
    plan = reply.replace('"chain": []', '"chain": [1]')
    assert streamed_answer(plan, whole_answer=False) == ("", False), "a draft beside a chain is not shown"
    first = ['{"final_answer": "It ', '```json\n{\n  "final_answer": "It ', '<think>Hm.</think> {"final_answer": "It ']
    assert {streamed_answer(one, whole_answer=False) for one in first} == {("It ", False)}
    assert streamed_answer('{"steps": [1], "final_answer": "It ', whole_answer=False) == ("", False)
