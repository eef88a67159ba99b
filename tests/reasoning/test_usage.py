from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from langgraph_convcoa.reasoning.usage import NodeUsage, UsageCounter, add_costs, node_usage, total_usage

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


def test_a_failed_request_counts_with_its_prompt() -> None:
    counter, run = UsageCounter(), uuid.uuid4()
    counter.on_chat_model_start({}, [[HumanMessage("word " * 100)]], run_id=run)
    counter.on_llm_error(ValueError(), run_id=run)
    assert counter.llm_calls == 1
    assert counter.input_tokens == pytest.approx(125, abs=10)
