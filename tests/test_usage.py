from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from langgraph_convcoa.usage import NodeUsage, UsageCounter, add_costs, node_usage, total_usage

COSTS = st.dictionaries(
    st.sampled_from(["plan", "answer", "web"]),
    st.builds(lambda calls, seconds: {**node_usage(seconds, 1), "llm_calls": calls}, st.integers(0, 3), st.floats(0, 9)),
)


def result(text: str, **more: object) -> LLMResult:
    return LLMResult(generations=[[ChatGeneration(message=AIMessage(text, **more))]])  # type: ignore[arg-type]


@given(COSTS, COSTS)
def test_costs_add_up_whatever_the_order(one: dict[str, NodeUsage], two: dict[str, NodeUsage]) -> None:
    both, other = add_costs(one, two), add_costs(two, one)
    assert total_usage(both, 0)["llm_calls"] == total_usage(one, 0)["llm_calls"] + total_usage(two, 0)["llm_calls"]
    assert {name: cost["llm_calls"] for name, cost in both.items()} == {name: c["llm_calls"] for name, c in other.items()}


def test_reported_tokens_are_counted() -> None:
    counter, run = UsageCounter(), uuid.uuid4()
    counter.on_chat_model_start({}, [[HumanMessage("q")]], run_id=run)
    usage = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
    counter.on_llm_end(result("a", usage_metadata=usage), run_id=run)
    assert counter.cost(1.0) == {"llm_calls": 1, "input_tokens": 7, "output_tokens": 3, "retrievals": 0, "seconds": 1.0}


def test_tokens_are_told_apart_by_the_parts_of_a_prompt() -> None:
    counter, run = UsageCounter(), uuid.uuid4()
    prompt = HumanMessage("i" * 30 + "c" * 20 + "e" * 50, response_metadata={"parts": {"conversation": 20, "evidence": 50}})
    for _ in range(2):
        counter.on_chat_model_start({}, [[prompt]], run_id=run)
        usage = {"input_tokens": 40, "output_tokens": 3, "total_tokens": 43}
        counter.on_llm_end(result("a", usage_metadata=usage), run_id=run)
    parts = {"instructions": 24, "conversation": 16, "evidence": 40, "reply": 6}
    assert counter.cost(1.0)["parts"] == parts
    total = total_usage({"plan": counter.cost(1.0), "recall": node_usage(), "correct": counter.cost(0.0)}, 0)
    assert total["parts"] == {name: 2 * tokens for name, tokens in parts.items()}


def test_a_failed_request_counts_with_its_prompt() -> None:
    counter, run = UsageCounter(), uuid.uuid4()
    counter.on_chat_model_start({}, [[HumanMessage("word " * 100)]], run_id=run)
    counter.on_llm_error(ValueError(), run_id=run)
    assert counter.llm_calls == 1
    assert counter.input_tokens == pytest.approx(125, abs=10)
