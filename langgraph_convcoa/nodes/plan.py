"""The node `plan`: the action chain in one model call, and which of its sub-questions are answered already."""

from __future__ import annotations

from langchain_core.runnables import RunnableConfig
from langgraph.types import Send

from langgraph_convcoa.chain import ActionChain
from langgraph_convcoa.memory.knowledge_set import ContextualKnowledgeSet
from langgraph_convcoa.memory.recall import RecalledAnswer, recall_answers
from langgraph_convcoa.nodes.runtime import Call, Steps, TurnRuntime, emit
from langgraph_convcoa.reasoning.base import PlanRequest
from langgraph_convcoa.state import ConvCoAState, Plan, pairs_of

MERGED_INDEX = -1
"""The index of the one retrieval of an empty chain."""


def plan(turn: TurnRuntime, state: ConvCoAState, config: RunnableConfig) -> Steps:
    """One model call."""
    settings, reasoner = turn.settings(), turn.reasoner()
    request = PlanRequest(
        question=state["asked"],
        actions=turn.actions.descriptions(),
        history=pairs_of(state),
        knowledge=state["knowledge_view"],
        max_sub_questions=settings.max_sub_questions,
        language=settings.language,
    )
    chain = yield Call(reasoner.plan, reasoner.aplan, (request, config))
    made = _plan_of(chain)
    questions = [node["sub_question"] for node in made["nodes"]]
    emit({"type": "plan", "optimized_question": made["optimized_question"], "sub_questions": questions})
    return {"plan": made, "recalled": _recalled(turn, state, made)}


def after_plan(turn: TurnRuntime, state: ConvCoAState) -> list[Send] | str:
    """One branch a sub-question that is not recalled; an empty chain looks the optimized question up once."""
    made = state["plan"]
    if not made["nodes"]:
        single = _plan_of(ActionChain.single(made["optimized_question"], next(iter(turn.actions.actions))))
        return [turn.send(state, MERGED_INDEX, single["nodes"][0])]
    known = {answer["index"] for answer in state["recalled"]}
    sends = [turn.send(state, index, node) for index, node in enumerate(made["nodes"]) if index not in known]
    # An empty list of branches would end the graph without an answer.
    return sends or "verify"


def _plan_of(chain: ActionChain) -> Plan:
    return {
        "optimized_question": chain.optimized_question,
        "draft_answer": chain.draft_answer,
        "self_contained": chain.self_contained,
        "nodes": [
            {
                "action": node.action,
                "sub_question": node.sub_question,
                "guess_answer": "" if node.is_missing else node.guess_answer,
                "action_input": node.action_input,
            }
            for node in chain.nodes
        ],
    }


def _recalled(turn: TurnRuntime, state: ConvCoAState, made: Plan) -> list[RecalledAnswer]:
    """The sub-questions that need no look-up: an earlier round answered them.

    An action that sets `always_fresh` is asked every time. A sub-question that needs the conversation to be understood means
    another thing in another place.
    """
    settings = turn.settings()
    if not settings.recall_answers or not made["self_contained"]:
        return []
    asked = [
        (index, node["action"], node["sub_question"])
        for index, node in enumerate(made["nodes"])
        if not turn.actions.always_fresh(node["action"])
    ]
    rounds = ContextualKnowledgeSet.load(state.get("knowledge_set")).after(state.get("shared") or []).rounds
    return recall_answers(
        asked,
        rounds[-settings.memory_capacity :],
        state.get("evidence_memory") or [],
        turn.memory.vectors,
        max_age=settings.recall_max_age,
    )
