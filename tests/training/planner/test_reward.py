"""The reward of hand-made turns against the paper's formula, and the strict form of plans."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig

from langgraph_convcoa.actions.base import Action, ActionRequest
from langgraph_convcoa.chain import ActionChain, Status
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.graph import build_graph
from langgraph_convcoa.reasoning.base import PlanRequest
from langgraph_convcoa.reasoning.extractive.reasoner import ExtractiveReasoner
from langgraph_convcoa.reasoning.parsing import parse_chain
from langgraph_convcoa.training.planner.reward import (
    RewardSettings,
    TurnReward,
    Verdict,
    fault_of,
    match_of,
    mean_figures,
    reward_of,
    turn_reward,
)
from langgraph_convcoa.verification.verifier import LexicalVerifier

ACTIONS = ["knowledge_retrieval", "docs"]


def plan_of(*guesses: str, answer: str = "", **changes: Any) -> str:
    steps = [
        {"action": "docs", "sub": f"Question {n}?", "guess_answer": guess, "missing_flag": not guess, "action_input": ""}
        for n, guess in enumerate(guesses)
    ]
    return json.dumps({"optimized_question": "Question?", "chain": steps, "final_answer": answer} | changes)


def output_of(*items: tuple[str, str], retrievals: int = 1, answer: str = "In 1982 [1].") -> Any:
    chain = [
        {"sub_question": "Question?", "guess_answer": guess, "status": status, "answer": guess} for guess, status in items
    ]
    return {"answer": answer, "chain": chain, "citations": [], "usage": {"retrievals": retrievals}}


@pytest.mark.parametrize(
    ("items", "matched", "retrievals", "reward"),
    [
        ([("g", "kept")], 1, 1, 1 + 0.5 - 0.05),
        ([("g", "kept")], 0, 1, 0.5 - 0.05),
        ([("g", "unsupported")], 0, 1, -1 - 0.05),  # hallucinated, and nothing was put in its place
        ([("g", "unsupported")], 1, 1, 1 - 1 - 0.05),
        ([("g", "corrected")], 1, 1, 1 - 0.05),
        ([("g", "partial")], 0, 2, -0.1),  # the nearest fact took its place
        ([("", "filled")], 1, 1, 1 - 0.05),  # declined
        ([("", "unsupported")], 0, 2, -0.1),  # declined, and not found
        ([("g", "recalled")], 1, 0, 1),
        ([("g", "failed")], 0, 1, -0.05),
        ([("", "failed")], 0, 1, -0.05),
        ([("g", "kept"), ("g", "unsupported"), ("", "filled")], 1, 3, 1 + (0.5 - 1 + 0) / 3 - 0.15),
        ([("g", "kept"), ("g", "kept")], 1, 2, 1 + 0.5 - 0.1),
        ([("g", "kept"), ("", "recalled")], 1, 1, 1 + 0.25 - 0.05),
    ],
)
def test_hand_made_turns_earn_what_the_formula_says(
    items: list[tuple[str, str]], matched: float, retrievals: int, reward: float
) -> None:
    plan = plan_of(*(guess for guess, _ in items))
    found = reward_of(plan, output_of(*items, retrievals=retrievals), matched)
    assert found.total == pytest.approx(reward)
    assert (found.final, found.efficiency) == (matched, pytest.approx(-0.05 * retrievals))
    assert found.n == len(items)


def test_an_answer_at_once_is_the_guess_of_the_question() -> None:
    # The graph looks the question up once, and its chain is the question with that answer as the guess.
    assert reward_of(plan_of(answer="In 1982."), output_of(("In 1982.", "kept")), 1).total == pytest.approx(1.45)
    assert reward_of(plan_of(answer="In 1700."), output_of(("In 1700.", "unsupported")), 0).total == pytest.approx(-1.05)
    declined = reward_of(plan_of(), output_of(("", "filled")), 1)
    assert (declined.total, declined.n) == (pytest.approx(0.95), 0)
    small_talk = reward_of(plan_of(answer="Hello!"), output_of(retrievals=0), 0)
    assert small_talk.total == 0
    assert small_talk.figures()["empty_chain"] == 1


def test_the_weights_are_arguments() -> None:
    settings = RewardSettings(final=2, kept=1, hallucinated=-3, retrieval=0.5, malformed=-20)
    items = output_of(("g", "kept"), ("g", "unsupported"), retrievals=2)
    assert reward_of(plan_of("g", "g"), items, 0.5, settings).total == pytest.approx(2 * 0.5 + (1 - 3) / 2 - 1)


@given(st.lists(st.tuples(st.sampled_from(["", "g"]), st.sampled_from(get_args(Status))), max_size=6), st.integers(0, 19))
def test_a_malformed_plan_earns_less_than_any_that_is_played(items: list[tuple[str, str]], retrievals: int) -> None:
    played = reward_of(plan_of(*(guess for guess, _ in items)), output_of(*items, retrievals=retrievals), 0)
    assert RewardSettings().malformed < played.total


STEP = json.loads(plan_of(""))["chain"][0]


@pytest.mark.parametrize(
    ("plan", "fault"),
    [
        (plan_of("g", ""), ""),
        (f"  {plan_of()}\n", ""),
        (f"<think>Let me see.</think>\n{plan_of('g')}", ""),
        ("", "no JSON"),
        ("{", "no JSON"),
        ('{"chain": [' * 10_000, "no JSON"),
        (f"```json\n{plan_of('g')}\n```", "no JSON"),
        (plan_of("g")[:-1], "no JSON"),
        (plan_of("g").replace('"', "'"), "no JSON"),
        (plan_of("g") * 2, "no JSON"),
        ("[]", "the plan is no object"),
        ("null", "the plan is no object"),
        (plan_of(chain=None), "chain is no array"),
        (plan_of(chain=["Who?"]), "a step is no object"),
        (plan_of(final_answer=None), "final_answer is no string"),
        (plan_of(optimized_question=" "), "optimized_question is empty"),
        (plan_of(note=""), "the plan has a field 'note' that is not asked for"),
        (plan_of("", chain=[STEP | {"missing_flag": "true"}]), "missing_flag is no boolean"),
        (plan_of("", chain=[STEP | {"missing_flag": 1}]), "missing_flag is no boolean"),
        (plan_of("", chain=[STEP | {"action": "web"}]), "no action is called 'web'"),
        (plan_of("", chain=[STEP | {"sub": " "}]), "a sub-question is empty"),
        (plan_of("", chain=[STEP, STEP | {"sub": "question 0? "}]), "a sub-question is repeated"),
        (plan_of(chain=[{name: STEP[name] for name in STEP if name != "sub"}]), "a step has no sub"),
        (plan_of(*"1234567"), "7 sub-questions, more than 6"),
        ('{"optimized_question": "a", "chain": [], "chain": [], "final_answer": ""}', "no JSON"),
    ],
)
def test_the_form_of_a_plan_is_read_strictly(plan: str, fault: str) -> None:
    assert fault_of(plan, ACTIONS) == fault


def test_a_plan_of_the_right_form_is_read_as_it_is_by_the_reasoner() -> None:
    plan = plan_of("g", "")
    assert fault_of(plan, ACTIONS) == ""
    chain = parse_chain(plan, question="?", actions=ACTIONS)
    assert chain is not None
    assert [(node.action, node.sub_question, node.is_missing) for node in chain.nodes] == [
        ("docs", "Question 0?", False),
        ("docs", "Question 1?", True),
    ]


@pytest.mark.parametrize(
    ("answer", "match", "matched"),
    [
        ("Ada Lovelace wrote it [1].", "cover_em", 1),
        ("Ada Lovelace wrote it [1].", "em", 0),
        ("The Ada Lovelace [1].", "em", 1),
        ("Ada Lovelace wrote [1].", "f1", 1),
        ("A machine that nobody had built, wrote Ada [1].", "f1", 0),
        ("I found nothing about this in the documents. The nearest passage is “Ada Lovelace” [1].", "cover_em", 0),
    ],
)
def test_what_matches_is_a_choice(answer: str, match: Any, matched: float) -> None:
    assert match_of(answer, ["nobody at all", "Ada Lovelace"], match) == matched


async def test_a_judge_and_a_reward_of_ones_own_join_plain_or_async() -> None:
    async def judge(question: str, answer: str, references: Any) -> bool:
        return (question, answer, references) == ("When?", "In 1982 [1].", ["1982"])

    def short(plan: str, output: Any, references: Any) -> float:
        return -0.001 * len(plan)

    plan = plan_of("g")
    settings = RewardSettings(match=judge, own=short)
    found = await turn_reward(plan, output_of(("g", "kept")), "When?", ["1982"], settings)
    assert (found.matched, found.own) == (1, pytest.approx(-0.001 * len(plan)))
    assert found.total == pytest.approx(1.45 + found.own)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, "1"])
async def test_a_reward_that_is_no_number_is_an_error(value: Any) -> None:
    own = RewardSettings(own=lambda *_: value)
    with pytest.raises(InputError, match="own reward must return a finite number"):
        await turn_reward(plan_of("g"), output_of(("g", "kept")), "When?", ["1982"], own)
    judge = RewardSettings(match=lambda *_: value)
    with pytest.raises(InputError, match="judge must return a finite number"):
        await turn_reward(plan_of("g"), output_of(("g", "kept")), "When?", ["1982"], judge)


async def test_a_question_without_an_answer_is_an_error() -> None:
    with pytest.raises(InputError, match="No answer to 'When\\?' is known"):
        await turn_reward(plan_of("g"), output_of(("g", "kept")), "When?", [" "])


@pytest.mark.parametrize("wrong", [{"retrieval": float("nan")}, {"match": "rouge"}, {"malformed": -1.9}, {"retrieval": 0.2}])
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        RewardSettings(**wrong)


def test_means_and_rates_over_turns() -> None:
    one = reward_of(plan_of("g", ""), output_of(("g", "kept"), ("", "filled"), retrievals=2), 1)
    means = mean_figures([one, TurnReward(penalty=-2.0, fault="no JSON")])
    assert means["reward"] == pytest.approx((1 + 0.25 - 0.1 - 2) / 2)
    assert (means["malformed"], means["n"], means["declined_rate"], means["kept_rate"]) == (0.5, 1, 0.5, 0.5)
    assert mean_figures([]) == {}


class Library(Action):
    """Finds one sentence; nothing of Mars, and fails for Pluto."""

    name = "docs"
    description = "documents"

    async def retrieve(self, request: ActionRequest) -> list[Document]:
        if "Pluto" in request.sub_question:
            raise RuntimeError("the library is closed")
        if "Mars" in request.sub_question:
            return []
        return [Document("John Hopfield described the network in 1982. It stores patterns.", id="a")]


class Played(ExtractiveReasoner):
    """Plays a plan's text."""

    def __init__(self, plan: str) -> None:
        super().__init__()
        self.text = plan

    def plan(self, request: PlanRequest, config: RunnableConfig | None = None) -> ActionChain:
        chain = parse_chain(self.text, question=request.question, actions=request.actions)
        assert chain is not None
        return chain


@pytest.mark.parametrize(
    ("sub", "guess", "verdict", "reward"),
    [
        ("When did John Hopfield describe the network?", "John Hopfield described the network in 1982.", "kept", 1.45),
        ("When did John Hopfield describe the network?", "John Hopfield described the network in 1911.", "corrected", 0.95),
        ("When did John Hopfield describe the network?", "", "declined", 0.95),
        ("How many moons has Mars?", "Mars has two moons.", "hallucinated", -1.05),
        ("How many moons has Pluto?", "Pluto has five moons.", "failed", -0.05),
    ],
)
async def test_turns_of_the_graph_earn_what_the_formula_says(sub: str, guess: str, verdict: Verdict, reward: float) -> None:
    step = STEP | {"sub": sub, "guess_answer": guess, "missing_flag": not guess}
    plan = plan_of(chain=[step])
    graph = build_graph(
        actions=[Library()], reasoner=Played(plan), verifier=LexicalVerifier(), context={"look_first": False}
    ).compile()
    output = await graph.ainvoke({"question": sub})
    found = await turn_reward(plan, output, sub, ["1982"])
    assert (found.verdicts, found.total) == ((verdict,), pytest.approx(reward))
