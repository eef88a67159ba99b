"""The reward of hand-made turns against the paper's formula, and the strict form of plans."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_convcoa.chain import Status
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.training.planner.environment import (
    RewardSettings,
    TurnReward,
    answer_matches,
    fault_of,
    mean_figures,
    reward_of,
    turn_reward,
)
from tests.fakes import chain_item, node, plan

ACTIONS = ["knowledge_retrieval", "docs"]


def plan_of(*guesses: str, answer: str = "", **changes: Any) -> str:
    steps = (node(f"Question {n}?", guess, "docs") for n, guess in enumerate(guesses))
    return json.dumps(json.loads(plan(*steps, final=answer, optimized="Question?")) | changes)


def output_of(*items: tuple[str, Any], retrievals: int = 1, answer: str = "In 1982 [1].") -> Any:
    chain = [chain_item(status, guess, guess_answer=guess) for guess, status in items]
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
    found = reward_of(plan_of(*(guess for guess, _ in items)), output_of(*items, retrievals=retrievals), matched)
    assert found.total == pytest.approx(reward)
    assert (found.final, found.efficiency) == (matched, pytest.approx(-0.05 * retrievals))
    assert found.n == len(items)


def test_an_answer_at_once_is_the_guess_of_the_question() -> None:
    # The graph looks the question up once, and its chain is the question with that answer as the guess.
    assert reward_of(plan_of(answer="In 1982."), output_of(("In 1982.", "kept")), 1).total == pytest.approx(1.45)
    assert reward_of(plan_of(answer="In 1700."), output_of(("In 1700.", "unsupported")), 0).total == pytest.approx(-1.05)
    without_chain = '{"final_answer": "In 1982.", "optimized_question": "When?"}'
    assert reward_of(without_chain, output_of(("In 1982.", "kept")), 1).n == 0
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
    ("text", "fault"),
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
        ('{"final_answer": "It is [1].", "optimized_question": "Is it?"}', ""),
        ('{"chain": [{"action": "docs", "sub": "Who?", "action_input": ""}], "optimized_question": "Who?"}', ""),
        ('{"optimized_question": "Who?"}', "the plan has neither chain nor final_answer"),
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
def test_the_form_of_a_plan_is_read_strictly(text: str, fault: str) -> None:
    assert fault_of(text, ACTIONS) == fault


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
    assert answer_matches(answer, "Who?", ["nobody at all", "Ada Lovelace"], RewardSettings(match=match)) == matched


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_reward_of_ones_own_joins(asynchronous: bool) -> None:
    def short(plan: str, output: Any, references: Any) -> float:
        return -0.001 * len(plan)

    async def later(*given: Any) -> float:
        return short(*given)

    settings = RewardSettings(own=later if asynchronous else short)
    found = await turn_reward(plan_of("g"), output_of(("g", "kept")), "When?", ["1982"], settings)
    assert (found.matched, found.own) == (1, pytest.approx(-0.001 * len(plan_of("g"))))
    assert found.total == pytest.approx(1.45 + found.own)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, "1"])
async def test_a_reward_that_is_no_number_is_an_error(value: Any) -> None:
    own = RewardSettings(own=lambda *_: value)
    with pytest.raises(InputError, match="own reward must return a finite number"):
        await turn_reward(plan_of("g"), output_of(("g", "kept")), "When?", ["1982"], own)


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
