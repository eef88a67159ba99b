"""Requests and decisions of a person in LangChain's form, and every decision that cannot be carried out."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from langchain.agents.middleware.human_in_the_loop import HITLRequest
from pydantic import TypeAdapter

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.nodes.approve import Decided, NeededText, Review, Text, arguments, chain_type, review_request
from tests.fakes import decided_by
from tests.nodes.test_approve import edit

ACTIONS = ["knowledge_retrieval", "data_analysis"]
STEP = {"action": "data_analysis", "sub_question": "How many?", "guess_answer": "", "action_input": "SELECT 1"}


def look_up(name: str, sub_question: str, guess_answer: str = "", action_input: str = "") -> Review:
    form = arguments(
        sub_question=(NeededText, sub_question), guess_answer=(Text, guess_answer), action_input=(Text, action_input)
    )
    return Review(name, form, f"Look up “{sub_question}”.", ACTIONS)


LOOK_UP = look_up("data_analysis", "How many?", "Two.", "SELECT count(*) FROM t")
OTHER = look_up("web_querying", "Who?")
PLAN = Review(
    "plan",
    arguments(optimized_question=(NeededText, "How many are there?"), chain=(chain_type(ACTIONS, 2), [STEP])),
    "The plan.",
)
ANSWER = Review("answer", arguments(answer=(NeededText, "Two [1].")), "The answer.")


def decide(*decisions: Any, reviews: tuple[Review, ...] = (LOOK_UP,)) -> list[Decided]:
    return decided_by({"decisions": list(decisions)}, reviews)


def test_the_request_is_langchains_and_plain_json() -> None:
    request = review_request([LOOK_UP, PLAN])
    TypeAdapter(HITLRequest).validate_python(request, strict=True, extra="forbid")
    assert json.loads(json.dumps(request)) == request
    assert [r["name"] for r in request["action_requests"]] == ["data_analysis", "plan"]
    assert [c["action_name"] for c in request["review_configs"]] == ["data_analysis", "plan"]


def test_an_edit_changes_what_it_names_and_may_name_another_action() -> None:
    (decided,) = decide(edit("knowledge_retrieval", action_input="SELECT 2"))
    assert decided.name == "knowledge_retrieval"
    assert decided.args == {"sub_question": "How many?", "guess_answer": "Two.", "action_input": "SELECT 2"}


def test_a_rejection_has_a_message_or_none() -> None:
    assert decide({"type": "reject", "message": "Too dear."})[0].message == "Too dear."
    assert decide({"type": "reject"})[0].message == ""
    assert decide({"type": "reject", "message": None})[0].message == ""


def test_decisions_go_by_their_order() -> None:
    decided = decide({"type": "reject", "message": "no"}, {"type": "approve"}, reviews=(LOOK_UP, OTHER))
    assert [(d.type, d.name) for d in decided] == [("reject", "data_analysis"), ("approve", "web_querying")]


@pytest.mark.parametrize("as_text", [False, True])
def test_an_edited_plan_may_come_as_text_and_leave_out_what_is_empty(as_text: bool) -> None:
    chain = [{"action": "knowledge_retrieval", "sub_question": "Who counted?"}]
    (decided,) = decide(edit("plan", chain=json.dumps(chain) if as_text else chain), reviews=(PLAN,))
    assert decided.args["chain"] == [{**chain[0], "guess_answer": "", "action_input": ""}]
    assert decided.args["optimized_question"] == "How many are there?"


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (None, "resume with"),
        ("approve", "resume with"),
        ([{"type": "approve"}], "one decision for each of data_analysis, in this order: approve, edit or reject"),
        ({"decisions": "approve"}, "decisions: "),
        ({"decisions": []}, "decisions.0: Field required"),
        ({"decisions": [{"type": "approve"}] * 2}, "decisions: .* at most 1 item .* not 2"),
        ({"decisions": ["approve"]}, "decisions.0: "),
        ({"decisions": [{"type": "respond", "message": "x"}]}, "decisions.0: .*'respond' .* 'approve', 'edit', 'reject'"),
        ({"decisions": [{"type": "edit"}]}, "edited_action: Field required"),
        ({"decisions": [{"type": "edit", "edited_action": {"name": "data_analysis"}}]}, "args: Field required"),
        (
            {"decisions": [edit("nonsense", sub_question="q")]},
            "name: Input should be 'data_analysis' or 'knowledge_retrieval'",
        ),
        ({"decisions": [edit("data_analysis", sql="SELECT 1")]}, "args.sql: Extra inputs are not permitted"),
        ({"decisions": [edit("data_analysis", sub_question=" ")]}, "args.sub_question: it is empty"),
        ({"decisions": [edit("data_analysis", action_input=1)]}, "args.action_input: Input should be a valid string"),
        ({"decisions": [edit("data_analysis", action_input="x" * 20_001)]}, "at most 20000 characters"),
        ({"decisions": [{"type": "reject", "message": ["no"]}]}, "message: Input should be a valid string"),
    ],
)
def test_a_decision_that_cannot_be_carried_out(response: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        decided_by(response, [LOOK_UP])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"chain": "look it up"}, "chain: it is no JSON"),
        ({"chain": {"action": "data_analysis"}}, "chain: Input should be a valid list"),
        ({"chain": ["How many?"]}, "chain.0: Input should be"),
        ({"chain": [STEP, {**STEP, "action": "web"}]}, "chain.1.action: Input should be 'knowledge_retrieval' or"),
        ({"chain": [{**STEP, "sub_question": ""}]}, "chain.0.sub_question: it is empty"),
        ({"chain": [{**STEP, "sub_question": None}]}, "chain.0.sub_question: Input should be a valid string"),
        ({"chain": [{**STEP, "why": "so"}]}, "chain.0.why: Extra inputs"),
        ({"chain": [STEP] * 3}, "chain: .* at most 2 items .* not 3"),
        ({"optimized_question": ""}, "optimized_question: it is empty"),
        ({"nodes": []}, "nodes: Extra inputs"),
    ],
)
def test_an_edit_that_is_no_plan(args: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        decide(edit("plan", **args), reviews=(PLAN,))


def test_an_edit_of_the_plan_or_the_answer_stays_one() -> None:
    for review, other in ((PLAN, "data_analysis"), (ANSWER, "plan"), (LOOK_UP, "plan")):
        with pytest.raises(InputError, match=re.escape(f"name: Input should be '{review.name}'")):
            decide(edit(other), reviews=(review,))


def test_an_answer_is_edited_but_not_emptied() -> None:
    assert decide(edit("answer", answer="Three [1]."), reviews=(ANSWER,))[0].args == {"answer": "Three [1]."}
    with pytest.raises(InputError, match="empty"):
        decide(edit("answer", answer="\n"), reviews=(ANSWER,))
