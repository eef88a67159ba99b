"""Ours in a conversation: its knowledge set from turn to turn, gold answers and failures."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.errors import ModelError
from langgraph_convcoa.evaluation.methods.prompting import Kit
from langgraph_convcoa.evaluation.methods.registry import make_method
from langgraph_convcoa.evaluation.records import Turn
from tests.evaluation.methods.planning import FACT, GUESSING, STEPS, Model, converse, kept_plan, statuses
from tests.fakes import KeywordRetriever


def ours(model: Model, **kit: Any) -> Any:
    return make_method("ours", Kit(model.model, KeywordRetriever(), **{"settings": GUESSING, **kit}))


def test_a_second_turn_knows_the_chain_of_the_first_and_recalls_its_answer() -> None:
    model = Model(kept_plan(), kept_plan())
    outcomes = converse(ours(model), ["When?", "Once more?"])
    assert [item["status"] for item in outcomes[0].chain] == ["kept"]
    assert [item["status"] for item in outcomes[1].chain] == ["recalled"]
    assert FACT in model.plan_prompts[1]
    assert outcomes[0].passages[0] == "hopfield-1982"


def test_gold_answers_are_a_history_of_their_own() -> None:
    model = Model(kept_plan(), kept_plan())
    outcomes = converse(ours(model), ["When?", "Once more?"], gold="In 1899.")
    assert "In 1899." in model.plan_prompts[1]
    assert "1982" not in model.plan_prompts[1]
    assert [item["status"] for item in outcomes[1].chain] == ["kept"], "what was not answered so is not recalled"


def test_conversations_do_not_know_of_each_other() -> None:
    model = Model(kept_plan(), kept_plan())
    method = ours(model)
    converse(method, ["When?"], conversation="a")
    assert converse(method, ["When?"], conversation="b")[0].chain[0]["status"] == "kept"
    assert "[Conversation]" not in model.plan_prompts[1]


def test_a_turn_that_failed_leaves_the_conversation_as_it_was() -> None:
    model = Model(kept_plan(), kept_plan())
    method = ours(model)
    answer = converse(method, ["When?"])[0].answer
    history = (("When?", answer),)
    model.fails = True
    with pytest.raises(ModelError):
        asyncio.run(method.ainvoke(Turn("x", "c", "Lost?", history)))
    model.fails = False
    outcome = asyncio.run(method.ainvoke(Turn("y", "c", "Once more?", history)))
    assert outcome.chain[0]["status"] == "recalled"
    assert "Lost?" not in model.plan_prompts[-1]


def test_ours_corrects_and_fills() -> None:
    chain, model = statuses("ours")
    assert chain == [("corrected", "Corrected from the evidence."), ("filled", "And this one.")]
    assert len(model.prompts) == 2


def test_corrections_that_are_switched_off_are_not_malformed() -> None:
    kit = Kit(Model(STEPS).model, KeywordRetriever(), settings=ConvCoAContext(max_corrections=0, look_first=False))
    outcome = asyncio.run(make_method("ours", kit).ainvoke(Turn("q", "c", "Both?")))
    assert outcome.malformed == 0
    assert [item["answer"] for item in outcome.chain] == [FACT, "Sparsemax was introduced by Martins and Astudillo in 2016."]


def test_the_kits_passages_a_search_hold_unless_the_settings_say_otherwise() -> None:
    def passages(**kit: Any) -> tuple[str, ...]:
        return converse(ours(Model(kept_plan()), **kit), ["When?"])[0].passages

    assert len(passages(k=1, settings=ConvCoAContext())) == 1
    assert len(passages(k=1, settings=ConvCoAContext(k=2))) == 2
    assert len(passages(k=4, settings=ConvCoAContext(threshold=0.1))) > 2
