"""The whole graph with models as users have them, over HTTP on loopback: in wrappers, chosen by a run, one for each node."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from langchain.chat_models import init_chat_model
from langchain_core.documents import Document
from langchain_core.runnables import ConfigurableField, RunnableLambda
from langchain_core.tools import ToolException, tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_convcoa import ExtractiveReasoner, build_graph
from langgraph_convcoa.errors import InputError, ModelError
from tests.fakes import KeywordRetriever, ScriptedModel, corrections, node, plan, turn
from tests.openai_server import OpenAIServer, Reply

QUESTION = "When was the Hopfield network described?"
ANSWER = "John Hopfield described the Hopfield network in 1982 [1]."
DIRECT = plan(final=ANSWER, optimized=QUESTION)
OPEN = plan(node(QUESTION), optimized=QUESTION)
CORRECTED = corrections("In 1982.", final=ANSWER)
QUICK: dict[str, Any] = {"wait_exponential_jitter": False}
FORMS = pytest.mark.parametrize(("asynchronous", "streamed"), [(a, s) for a in (False, True) for s in (False, True)])


async def ask(model: Any, asynchronous: bool, streamed: bool, chosen: Any = None, **build: Any) -> dict[str, Any]:
    graph = build_graph(model=model, retriever=KeywordRetriever(), **build).compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1", **(chosen or {})}}
    return await turn(graph, QUESTION, config, asynchronous=asynchronous, streamed=streamed)


WRAPPERS: dict[str, Callable[[ChatOpenAI], Any]] = {
    "fields": lambda model: model.configurable_fields(temperature=ConfigurableField("temperature")),
    "all": lambda model: model.bind(seed=7).with_config(tags=["mine"]).with_retry(**QUICK).with_fallbacks([ScriptedModel()]),
}


@FORMS
@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
async def test_a_turn_in_one_call(wrap: Any, asynchronous: bool, streamed: bool) -> None:
    with OpenAIServer([DIRECT]) as server:
        out = await ask(wrap(server.model()), asynchronous, streamed)
    [body] = server.requests
    assert (out["answer"], out["citations"][0]["id"]) == (ANSWER, "hopfield-1982")
    assert out["usage"]["llm_calls"] == 1
    assert out["usage"]["input_tokens"] > 0 < out["usage"]["output_tokens"], "estimated where a stream reports none"
    assert body.get("stream", False) == streamed
    assert body.get("seed") == (7 if wrap is WRAPPERS["all"] else None)


@FORMS
async def test_where_all_fail_the_error_says_so_and_asks_no_more(asynchronous: bool, streamed: bool) -> None:
    with OpenAIServer([Reply(status=503)] * 2) as server, OpenAIServer([Reply(status=503)] * 2) as other:
        model = server.model().with_retry(stop_after_attempt=2, **QUICK).with_fallbacks([other.model("b")])
        with pytest.raises(ModelError, match=r"'a' at .* failed on the server's side \(503\).*; its fallbacks failed too"):
            await ask(model, asynchronous, streamed)
    assert (len(server.requests), len(other.requests)) == (1 if streamed else 2, 1), "a stream falls back at once"


@FORMS
async def test_a_run_chooses_its_model(asynchronous: bool, streamed: bool) -> None:
    with OpenAIServer([DIRECT]) as server:
        options = {"base_url": server.base_url, "api_key": "x", "max_retries": 0}
        model = init_chat_model("openai:a", configurable_fields="any", **options)
        out = await ask(model, asynchronous, streamed, {"model": "openai:b"})
    assert (out["answer"], server.requests[0]["model"]) == (ANSWER, "b")
    assert set(server.requests[0]) <= {"model", "messages", "response_format", "stream", "stream_options"}


@FORMS
async def test_the_planner_and_the_writer_are_two_models(asynchronous: bool, streamed: bool) -> None:
    with OpenAIServer([OPEN]) as cheap, OpenAIServer([CORRECTED]) as strong:
        models = {"correct": strong.model("b").with_retry(**QUICK)}
        out = await ask(cheap.model(), asynchronous, streamed, models=models)
    assert [body["model"] for body in [*cheap.requests, *strong.requests]] == ["a", "b"]
    assert out["answer"] == ANSWER
    per_node = out["usage"]["per_node"]
    assert (per_node["plan"]["llm_calls"], per_node["correct"]["llm_calls"]) == (1, 1)


async def test_a_run_names_a_model_for_a_node() -> None:
    with OpenAIServer([OPEN, CORRECTED] * 4) as server:
        settings: Any = {"model": "a", "base_url": server.base_url, "models": {"plan": "b"}}
        graph = build_graph(retriever=KeywordRetriever(), **settings).compile()
        for context in ({}, {"correct_model": "c"}, {"model": "d"}, {"model": "d", "plan_model": "e"}):
            assert (await graph.ainvoke({"question": QUESTION}, context=context))["answer"] == ANSWER
    named = [body["model"] for body in server.requests]
    assert [named[n : n + 2] for n in (0, 2, 4, 6)] == [["b", "a"], ["b", "c"], ["d", "d"], ["e", "d"]]


def test_another_model_rewrites_what_failed() -> None:
    @tool
    def inhabitants(city: str) -> str:
        """How many live in a city."""
        if city != "London":
            raise ToolException("no such city")
        return "London has 9 million inhabitants."

    asked = node("How many live in London?", action="inhabitants", action_input="Londn")
    model = ScriptedModel(replies=[plan(asked, optimized="q"), CORRECTED])
    mender = ScriptedModel(replies=[json.dumps({"inputs": [{"index": 1, "action_input": "London"}]})])
    graph = build_graph(model=model, models={"repair": mender}, actions=[inhabitants]).compile()
    out = graph.invoke({"question": "How many live in London?"})
    assert len(mender.prompts) == 1
    assert "Londn" in mender.prompts[0]
    assert out["chain"][0]["evidence"], "the tool was called again"
    assert out["usage"]["per_node"]["repair"]["llm_calls"] == 1


@pytest.mark.parametrize(
    ("build", "message"),
    [
        ({"model": ScriptedModel(), "models": {"answer": "a"}}, "no node called 'answer' asks a model; "),
        ({"models": {"plan": ScriptedModel()}}, "models goes with model"),
        ({"reasoner": ExtractiveReasoner(), "models": {"plan": ScriptedModel()}}, "models goes with model"),
        ({"model": ScriptedModel(), "models": ["a"]}, "a dict from a node to its model, not list"),
        ({"model": ScriptedModel() | RunnableLambda(str)}, "a chain .* is no model"),
        ({"model": ScriptedModel(), "models": {"plan": ScriptedModel() | RunnableLambda(str)}}, "a chain .* is no model"),
    ],
)
def test_models_that_cannot_be_used_are_an_error_when_the_graph_is_built(build: Any, message: str) -> None:
    with pytest.raises((InputError, ModelError), match=message):
        build_graph(retriever=KeywordRetriever(), **build)


def best_first(documents: list[Document]) -> list[Document]:
    return sorted(documents, key=lambda document: "1982" not in document.page_content)


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_a_chain_is_the_retriever_of_a_graph_and_one_that_takes_a_dict_is_told_how(asynchronous: bool) -> None:
    out = await turn(build_graph(retriever=KeywordRetriever() | best_first).compile(), QUESTION, asynchronous=asynchronous)
    assert (out["citations"][0]["id"], out["chain"][0]["action"]) == ("hopfield-1982", "knowledge_retrieval")
    takes_dict = RunnableLambda(lambda inputs: inputs["input"]) | KeywordRetriever()
    [item] = (await turn(build_graph(retriever=takes_dict).compile(), QUESTION, asynchronous=asynchronous))["chain"]
    assert item["status"] == "failed"
    assert 'RunnableLambda(lambda question: {"input": question}) | chain' in item["reason"]
