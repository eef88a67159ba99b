"""A model that is down: the turn fails, or is answered with quotes where the setting says so."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_convcoa import build_graph
from langgraph_convcoa.errors import ModelError
from tests.fakes import BACK, VAGUE, KeywordRetriever, ScriptedModel, direct, node, plan

ASKED = {"question": "When was the Hopfield network described?"}
THREAD: dict[str, Any] = {"configurable": {"thread_id": "a"}}
QUOTES = {"quote_without_model": True}
DOWN = RuntimeError("quota exceeded")


def run(asynchronous: bool, *replies: Any, **context: Any) -> tuple[dict[str, Any], ScriptedModel, str]:
    model = ScriptedModel(replies=list(replies))
    graph = build_graph(model=model, retriever=KeywordRetriever()).compile(checkpointer=InMemorySaver())
    modes: Any = {"stream_mode": ["messages", "values"], "context": context}

    async def collect() -> list[Any]:
        return [part async for part in graph.astream(ASKED, THREAD, **modes)]

    parts = asyncio.run(collect()) if asynchronous else list(graph.stream(ASKED, THREAD, **modes))
    return parts[-1][1], model, "".join(part[0].text for mode, part in parts if mode == "messages")


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_plan_that_fails_is_answered_with_quotes_that_name_the_error(asynchronous: bool) -> None:
    out, model, streamed = run(asynchronous, DOWN, **QUOTES)
    note, answer = out["answer"].split("\n\n")
    assert (
        note == "The model did not answer (the model 'ScriptedModel' failed: RuntimeError: quota exceeded); these are quotes."
    )
    assert "in 1982 [1]." in answer
    assert out["citations"][0]["id"] == "hopfield-1982"
    assert out["unsupported"] == []
    assert len(model.prompts) == out["usage"]["llm_calls"] == 1, "it is not asked again in this turn"
    assert streamed == out["answer"] == out["messages"][-1].text


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_second_call_that_fails_is_answered_with_quotes(asynchronous: bool) -> None:
    out, _, streamed = run(asynchronous, plan(node("Who introduced sparsemax?")), DOWN, **QUOTES)
    assert "quota exceeded" in out["answer"]
    assert "Martins and Astudillo" in out["answer"]
    assert out["citations"]
    assert streamed == out["answer"]


def test_without_the_setting_the_turn_fails_with_the_message_of_the_model() -> None:
    with pytest.raises(ModelError, match="RuntimeError: quota exceeded"):
        run(False, DOWN)


def test_a_model_that_answers_leaves_no_note() -> None:
    out, _, _ = run(False, direct("John Hopfield described it in 1982 [1]."), **QUOTES)
    assert out["answer"] == "John Hopfield described it in 1982 [1]."


def test_the_answer_to_a_question_back_is_not_split_from_its_question() -> None:
    graph = build_graph(retriever=KeywordRetriever()).compile()
    out = graph.invoke({"messages": [("user", VAGUE), ("assistant", BACK), ("user", "Sparsemax")]})
    assert out["answer"] == "Sparsemax was introduced by Martins and Astudillo in 2016 [1]."
    assert [item["sub_question"] for item in out["chain"]] == [f"{VAGUE} {BACK} Sparsemax"]
