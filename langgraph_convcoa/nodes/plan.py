"""The node `plan`: one model call that answers from what was found, or says what is to be looked up."""

from __future__ import annotations

import asyncio

from langchain_core.runnables import RunnableConfig
from langgraph.types import Send

from langgraph_convcoa.chain import ActionChain
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.memory.knowledge_set import ContextualKnowledgeSet
from langgraph_convcoa.memory.recall import RecalledAnswer, recall_answers
from langgraph_convcoa.nodes.act import by_way_of_approval, send
from langgraph_convcoa.nodes.decisions import ANSWER, PLAN
from langgraph_convcoa.nodes.drafts import SentenceGate
from langgraph_convcoa.nodes.evidence import LOOKED, evidence_of
from langgraph_convcoa.nodes.parts import GraphParts, TurnRuntime, Update, emit, is_followed, show
from langgraph_convcoa.reasoning.base import PlanRequest
from langgraph_convcoa.reasoning.models import ModelCallError
from langgraph_convcoa.state import ConvCoAState, Finding, Plan, PlannedNode, pairs_of
from langgraph_convcoa.text.clean import cut_answer, cut_field
from langgraph_convcoa.text.same_question import words_agree
from langgraph_convcoa.text.words import content_words


def plan(parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime = None) -> Update:
    """One model call; the sentences of an answer are shown as they are verified."""
    settings, inner = parts.settings(runtime), parts.counting("plan", config)
    request = _request(parts, state, settings, config)
    try:
        chain, error = parts.reasoner("plan", settings).plan(request, inner), ""
    except ModelCallError as failure:
        chain, error = _without_model(parts, settings, request, failure)
    return _planned(parts, state, settings, request, chain, error, config)


async def aplan(parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime = None) -> Update:
    """As `plan`; prompts are made, and the plan is read, in threads."""
    settings, inner = parts.settings(runtime), parts.counting("plan", config)
    request = await asyncio.to_thread(_request, parts, state, settings, config)
    reasoner = await asyncio.to_thread(parts.reasoner, "plan", settings)
    try:
        chain, error = await reasoner.aplan(request, inner), ""
    except ModelCallError as failure:
        chain, error = _without_model(parts, settings, request, failure)
    return await asyncio.to_thread(_planned, parts, state, settings, request, chain, error, config)


def after_plan(parts: GraphParts, state: ConvCoAState) -> list[Send] | str:
    """The look-ups of the plan, or `approve` where a person decides about it first."""
    if PLAN in state["approve"]:
        return "approve"
    return by_way_of_approval(state, first_look_ups(parts, state, parts.settings())) or "verify"


def first_look_ups(parts: GraphParts, state: ConvCoAState, settings: ConvCoAContext) -> list[Send]:
    """One branch for each sub-question that is neither recalled nor looked up; an empty chain needs no more than one look."""
    made = state["plan"]
    if not made["nodes"]:
        if any(finding["index"] == LOOKED for finding in state["findings"]):
            return []
        single = _plan_of(ActionChain.single(made["optimized_question"], next(iter(parts.actions.actions))))
        return [send(state, LOOKED, single["nodes"][0], settings)]
    known = {entry["index"] for entry in (*still_recalled(state), *state["findings"], *looked_up(state))}
    return [send(state, index, node, settings) for index, node in enumerate(made["nodes"]) if index not in known]


def _request(parts: GraphParts, state: ConvCoAState, settings: ConvCoAContext, config: RunnableConfig) -> PlanRequest:
    evidence = evidence_of(state["findings"]).documents
    shows = evidence and settings.allow_draft_answer and is_followed(config) and not {PLAN, ANSWER} & {*state["approve"]}
    return PlanRequest(
        question=state["asked"],
        actions=parts.actions.descriptions(),
        history=pairs_of(state),
        knowledge=state["knowledge_view"],
        max_sub_questions=settings.max_sub_questions,
        language=settings.language,
        evidence=evidence,
        recognised=parts.actions.recognised(state["asked"], pairs_of(state)),
        gate=SentenceGate(lambda: parts.checker(state, settings), show) if shows else None,
    )


def _without_model(
    parts: GraphParts, settings: ConvCoAContext, request: PlanRequest, failure: ModelCallError
) -> tuple[ActionChain, str]:
    """A plan from the question's words, and why there is none of the model; raises the failure where that is not wanted."""
    if not settings.quote_without_model or (request.gate is not None and request.gate.shown):
        raise failure
    return parts.without_model.plan(request), str(failure)


def _planned(
    parts: GraphParts,
    state: ConvCoAState,
    settings: ConvCoAContext,
    request: PlanRequest,
    chain: ActionChain,
    error: str,
    config: RunnableConfig,
) -> Update:
    made = _plan_of(chain)
    questions = [node["sub_question"] for node in made["nodes"]]
    emit({"type": "plan", "optimized_question": made["optimized_question"], "sub_questions": questions})
    reply = {**state["reply"], "error": error}
    if isinstance(request.gate, SentenceGate):
        reply |= {"shown": request.gate.shown, "message_id": request.gate.message_id}
    recalled = recall_plan(parts, state, made, settings)
    return {"plan": made, "recalled": recalled, "reply": reply, "costs": parts.costs("plan", config)}


def _plan_of(chain: ActionChain) -> Plan:
    return {
        "optimized_question": cut_field(chain.optimized_question),
        "draft_answer": cut_answer(chain.draft_answer),
        "self_contained": chain.self_contained,
        "nodes": [
            {
                "action": node.action,
                "sub_question": cut_field(node.sub_question),
                "guess_answer": "" if node.is_missing else cut_field(node.guess_answer),
                "action_input": cut_field(node.action_input),
            }
            for node in chain.nodes
        ],
    }


def looked_up(state: ConvCoAState) -> list[Finding]:
    """The finding for the question itself, for a sub-question that repeats it: its action would find the same again."""
    looked = [finding for finding in state["findings"] if finding["index"] == LOOKED and finding["documents"]]
    if len(looked) != 1:
        return []
    asked = sorted(content_words(state["asked"]))

    def repeats(node: PlannedNode) -> bool:
        return (
            node["action"] == looked[0].get("action")
            and not node["guess_answer"]
            and sorted(content_words(node["sub_question"])) == asked
        )

    repeated = [index for index, node in enumerate(state["plan"]["nodes"]) if repeats(node)]
    return [{**looked[0], "index": index, "depth": 1, "seconds": 0.0} for index in repeated]


def still_recalled(state: ConvCoAState) -> list[RecalledAnswer]:
    """The recalled answers whose sub-questions still stand in the plan, which a person may have edited."""
    nodes = state["plan"]["nodes"]
    return [
        answer
        for answer in state["recalled"]
        if answer["index"] < len(nodes) and words_agree(answer["sub_question"], nodes[answer["index"]]["sub_question"])
    ]


def recall_plan(parts: GraphParts, state: ConvCoAState, made: Plan, settings: ConvCoAContext) -> list[RecalledAnswer]:
    """The answers of earlier rounds to the sub-questions of a plan.

    An action that sets `always_fresh` is asked every time. A sub-question that needs the conversation to be understood may
    mean something else now.
    """
    if not settings.recall_answers or not made["self_contained"]:
        return []
    asked = [
        (index, node["action"], node["sub_question"])
        for index, node in enumerate(made["nodes"])
        if not parts.actions.always_fresh(node["action"])
    ]
    rounds = ContextualKnowledgeSet.load(state.get("knowledge_set")).after(state.get("shared") or []).rounds
    return recall_answers(
        asked,
        rounds[-settings.memory_capacity :],
        state.get("evidence_memory") or [],
        parts.memory.vectors,
        max_age=settings.recall_max_age,
    )
