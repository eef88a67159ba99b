"""A turn as the environment of a planner."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage

from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.graph import build_graph
from langgraph_convcoa.training.planner.environment import Environment, RewardSettings, answer_matches, playable
from tests.fakes import FixedRetriever, ScriptedModel, corrections, node, plan

TEXT = "John Hopfield described the network in 1982. He was a physicist."
QUESTION, ANSWER = "When did Hopfield describe the network?", "1982"
TURN = Query("1", QUESTION, answer=ANSWER)
HISTORY = (("Who was Hopfield?", "A physicist."),)


def library(text: str = TEXT) -> FixedRetriever:
    return FixedRetriever(found=[Document(text, id="hopfield")])


def plan_of(*steps: tuple[str, str], final: str = "") -> str:
    return plan(*(node(sub, guess) for sub, guess in steps), final=final, optimized=QUESTION)


_LISTED = "1980, 1981, 1982 or 1983"


@pytest.mark.parametrize(
    "planned",
    [
        plan_of(("What does the network store?", ""), (f"Was zyx in {_LISTED}?", "")),
        plan_of(("What does the network store?", ""), (f"Was it zyx? Was it {_LISTED}? It was 1982.", "")),
        plan_of(("What does the network store?", ""), (f"Was zyx {'really and truly ' * 20} zyx? Or {_LISTED}", "")),
        plan_of(final=f"The documents do not say whether it was {_LISTED}."),
        plan_of(("What does the network store?", "The network stores patterns."), final=f"No passage says {_LISTED}."),
        plan_of(final=f"It was {_LISTED}."),
        plan_of(("What does the network store?", f"It was {_LISTED}.")),
        json.dumps({"optimized_question": f"Was it {_LISTED}?", "chain": [], "final_answer": ""}),
    ],
)
async def test_an_answer_listed_among_others_and_not_found_earns_nothing(planned: str) -> None:
    found = await Environment(library("The network stores patterns. A physicist described it.")).reward(planned, TURN)
    assert (found.fault, found.final) == ("", 0)


@pytest.mark.parametrize("title", ["The Who", "Who's Afraid of Virginia Woolf?", "Thank You"])
def test_an_answer_that_looks_like_no_claim_counts_where_the_evidence_holds_it(title: str) -> None:
    settings = RewardSettings()
    item = {"sub_question": "What?", "guess_answer": "", "status": "filled", "answer": title}
    output: Any = {"answer": f"{title} [1]", "chain": [item], "citations": [], "usage": {"retrievals": 1}}
    assert answer_matches(output["answer"], "What?", [title], settings, output) == 1
    quoted = {**output, "chain": [], "citations": [{"quote": f"It is called {title} here."}]}
    assert answer_matches(output["answer"], "What?", [title], settings, quoted) == 1
    nothing = {**output, "chain": [{**item, "status": "unsupported"}]}
    assert answer_matches(f"# Ada, {title} or Bob", "What?", [title], settings, nothing) == 0


@pytest.mark.parametrize("history", [(), HISTORY])
@pytest.mark.parametrize("look_first", [True, False])
async def test_the_prompt_is_what_the_graph_sends(look_first: bool, history: tuple[tuple[str, str], ...]) -> None:
    model = ScriptedModel(replies=[plan_of((QUESTION, ""))])
    graph = build_graph(model=model, retriever=library(), context={"look_first": look_first}).compile()
    earlier = [message for asked, said in history for message in (HumanMessage(asked), AIMessage(said))]
    await graph.ainvoke({"messages": [*earlier, HumanMessage(QUESTION)]})
    environment = Environment(library(), context={"look_first": look_first})
    assert await environment.prompt(QUESTION, history) == [{"role": "user", "content": model.prompts[0]}]


async def test_a_plan_is_played_by_the_graph_and_rewarded() -> None:
    environment = Environment(library())
    for step, verdict, total in (
        ((QUESTION, ""), "declined", 0.95),
        ((QUESTION, "John Hopfield described the network in 1982."), "kept", 1.45),
        ((QUESTION, "Hopfield described it in Paris in 1955."), "corrected", 0.95),
        (("How many moons has Pluto?", "Pluto has five moons in its orbit."), "hallucinated", -1.05),
    ):
        found = await environment.reward(plan_of(step), TURN)
        assert (found.total, found.verdicts) == (pytest.approx(total), (verdict,))


async def test_broken_json_is_not_played() -> None:
    retriever = library()
    found = await Environment(retriever).reward(plan_of((QUESTION, ""))[:-1], TURN)
    assert (found.total, found.fault, retriever.asked) == (-2.0, "no JSON", [])


async def test_equal_plans_of_a_group_are_played_once() -> None:
    retriever, planned = library(), plan_of((QUESTION, ""))
    found = await Environment(retriever).rewards([planned] * 4, [TURN] * 4)
    assert len(retriever.asked) == 1
    assert [reward.total for reward in found if reward is not None] == [0.95] * 4


async def test_of_two_data_sets_each_turn_has_its_own_reward() -> None:
    planned, other = plan_of((QUESTION, "")), Query("1", QUESTION, answer="In Paris.")
    found = await Environment(library()).rewards([planned, planned], [TURN, other])
    assert [reward.final for reward in found if reward is not None] == [1, 0]


def test_a_malformed_plan_earns_less_than_the_longest_that_is_played() -> None:
    longest = {"look_first": False, "max_sub_questions": 20}
    with pytest.raises(InputError, match=r"below the worst reward of a plan that is played, -4\.05, not -2"):
        Environment(library(), context=longest)
    assert Environment(library(), context=longest, reward=RewardSettings(malformed=-4.1)).most == 20


async def test_a_reward_of_the_users_joins_and_one_that_fails_is_no_zero(caplog: pytest.LogCaptureFixture) -> None:
    def own(plan: str, output: Any, references: Sequence[str]) -> float:
        if "Paris" in plan:
            raise RuntimeError("no such city")
        return float("nan") if "Rome" in plan else 0.5

    plans = [plan_of((QUESTION, guess)) for guess in ("", "It was in Paris.", "It was in Rome.")]
    found = await Environment(library(), reward=RewardSettings(own=own)).rewards(plans, [TURN] * 3)
    assert [None if reward is None else reward.total for reward in found] == [1.45, None, None]
    assert "no such city" in caplog.text
    assert "nan" in caplog.text


async def test_documents_that_hold_no_answer_are_an_error() -> None:
    await Environment(library()).check([TURN])
    with pytest.raises(InputError, match="hold none of the answers"):
        await Environment(library("Bread is baked of flour.")).check([TURN])


def test_questions_without_an_answer_are_left_out() -> None:
    assert playable([Query("2", "Why?"), TURN]) == [TURN]
    with pytest.raises(InputError, match="no question with an answer"):
        playable([Query("2", "Why?")])


async def test_a_frozen_chat_model_writes_what_the_second_call_writes() -> None:
    model = ScriptedModel(replies=[corrections("In 1982.", final="1982 [1].")])
    output = await Environment(library(), reasoner=model).play(plan_of((QUESTION, "")), QUESTION)
    assert len(model.prompts) == 1
    assert output["answer"] == "1982 [1]."
