"""Requests and decisions of a person in LangChain's form, and every decision that cannot be carried out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain.agents.middleware.human_in_the_loop import HITLRequest
from pydantic import TypeAdapter

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.nodes.decisions import Decided, Review, read_decisions, review_request

ACTIONS = ["knowledge_retrieval", "data_analysis"]
STEP = {"action": "data_analysis", "sub_question": "How many?", "guess_answer": "", "action_input": "SELECT 1"}
LOOK_UP = Review(
    "data_analysis",
    {"sub_question": "How many?", "guess_answer": "Two.", "action_input": "SELECT count(*) FROM t"},
    "Look up “How many?”.",
    "sub_question",
)
OTHER = Review("web_querying", {"sub_question": "Who?", "guess_answer": "", "action_input": ""}, "", "sub_question")
PLAN = Review("plan", {"optimized_question": "How many are there?", "chain": [STEP]}, "The plan.", "optimized_question")
ANSWER = Review("answer", {"answer": "Two [1]."}, "The answer.", "answer")


def decide(*decisions: Any, reviews: tuple[Review, ...] = (LOOK_UP,)) -> list[Decided]:
    return read_decisions({"decisions": list(decisions)}, reviews, ACTIONS, 2)


def edit(name: str, **args: Any) -> dict[str, Any]:
    return {"type": "edit", "edited_action": {"name": name, "args": args}}


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
        ([{"type": "approve"}], "resume with"),
        ({"decisions": "approve"}, "resume with"),
        ({"decisions": []}, "in this order: 1, not 0"),
        ({"decisions": [{"type": "approve"}] * 2}, "in this order: 1, not 2"),
        ({"decisions": ["approve"]}, "of type approve, edit or reject, not None"),
        ({"decisions": [{"type": "respond", "message": "x"}]}, "not 'respond'"),
        ({"decisions": [{"type": "edit"}]}, "edited_action"),
        ({"decisions": [{"type": "edit", "edited_action": {"name": "data_analysis"}}]}, "edited_action"),
        ({"decisions": [edit("nonsense", sub_question="q")]}, "another of knowledge_retrieval, data_analysis, not 'nonsense'"),
        ({"decisions": [edit("data_analysis", sql="SELECT 1")]}, "cannot set 'sql'"),
        ({"decisions": [edit("data_analysis", sub_question=" ")]}, "sub_question of the edited data_analysis is empty"),
        ({"decisions": [edit("data_analysis", action_input=1)]}, "must be text, not int"),
        ({"decisions": [edit("data_analysis", action_input="x" * 20_001)]}, "20,001 characters"),
        ({"decisions": [{"type": "reject", "message": ["no"]}]}, "must be text, not list"),
    ],
)
def test_a_decision_that_cannot_be_carried_out(response: Any, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("(", r"\(")) as caught:
        read_decisions(response, [LOOK_UP], ACTIONS, 2)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"chain": "look it up"}, "no JSON"),
        ({"chain": {"action": "data_analysis"}}, "list of steps"),
        ({"chain": ["How many?"]}, "step 1 of the edited chain must be an object"),
        ({"chain": [STEP, {**STEP, "action": "web"}]}, "step 2 .* not 'web'"),
        ({"chain": [{**STEP, "sub_question": ""}]}, "step 1 .* no sub_question"),
        ({"chain": [{**STEP, "sub_question": None}]}, "must be text, not NoneType"),
        ({"chain": [{**STEP, "why": "so"}]}, "'why'"),
        ({"chain": [STEP] * 3}, "3 steps, at most 2"),
        ({"optimized_question": ""}, "optimized_question of the edited plan is empty"),
        ({"nodes": []}, "cannot set 'nodes'"),
    ],
)
def test_an_edit_that_is_no_plan(args: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        decide(edit("plan", **args), reviews=(PLAN,))


def test_an_edit_of_the_plan_or_the_answer_stays_one() -> None:
    for review, other in ((PLAN, "data_analysis"), (ANSWER, "plan"), (LOOK_UP, "plan")):
        with pytest.raises(InputError, match=f"must name {review.name}"):
            decide(edit(other), reviews=(review,))


def test_an_answer_is_edited_but_not_emptied() -> None:
    assert decide(edit("answer", answer="Three [1]."), reviews=(ANSWER,))[0].args == {"answer": "Three [1]."}
    with pytest.raises(InputError, match="empty"):
        decide(edit("answer", answer="\n"), reviews=(ANSWER,))
