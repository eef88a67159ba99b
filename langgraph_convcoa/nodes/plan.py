"""The node `plan`: one model call that answers from the evidence, or plans what to look up."""

from __future__ import annotations

import asyncio

from langchain_core.runnables import RunnableConfig
from langgraph.types import Send

from langgraph_convcoa.chain import ActionChain, chain_item
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.memory.evidence import RecalledAnswer, recall_answers
from langgraph_convcoa.memory.knowledge_set import ContextualKnowledgeSet
from langgraph_convcoa.nodes.act import by_way_of_approval, send
from langgraph_convcoa.nodes.decisions import ANSWER, PLAN
from langgraph_convcoa.nodes.evidence import LOOKED, merge_findings
from langgraph_convcoa.nodes.parts import GraphParts, TurnRuntime, Update, emit
from langgraph_convcoa.reasoning.base import PlanRequest
from langgraph_convcoa.reasoning.models import ModelCallError
from langgraph_convcoa.state import ConvCoAState, Finding, Plan, pairs_of
from langgraph_convcoa.text.clean import cut_answer, cut_field
from langgraph_convcoa.text.same_question import words_agree
from langgraph_convcoa.text.words import content_words


def plan(parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime) -> Update:
    """Ask the model once; the sentences of an answer are streamed as they are verified."""
    call = _PlanCall(parts, state, config, runtime)
    try:
        chain = call.reasoner.plan(call.request, config)
    except ModelCallError as error:
        return call.without_model(error)
    return call.update(chain)


async def aplan(parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime) -> Update:
    """As `plan`. Threads make the prompt and read the plan."""
    call = await asyncio.to_thread(_PlanCall, parts, state, config, runtime)
    try:
        chain = await call.reasoner.aplan(call.request, config)
    except ModelCallError as error:
        return await asyncio.to_thread(call.without_model, error)
    return await asyncio.to_thread(call.update, chain)


class _PlanCall:
    """The request of `plan`, and the update made from its reply."""

    def __init__(self, parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime) -> None:
        self._parts, self._state = parts, state
        self._settings = settings = parts.settings(runtime)
        self.reasoner = parts.reasoner("plan", settings)
        evidence = merge_findings(state["findings"]).documents
        streams = evidence and settings.allow_draft_answer
        self.request = PlanRequest(
            question=state["asked"],
            actions=parts.actions.descriptions(),
            history=pairs_of(state),
            knowledge=state["knowledge_view"],
            max_sub_questions=settings.max_sub_questions,
            language=settings.language,
            evidence=evidence,
            recognised=parts.actions.recognised(state["asked"], pairs_of(state)),
            gate=parts.gate(state, settings, config, {PLAN, ANSWER}) if streams else None,
        )

    def without_model(self, error: ModelCallError) -> Update:
        """Plan from the question's words, if the settings allow it and no sentence was streamed; else raise the error."""
        if not self._settings.quote_without_model or (self.request.gate and self.request.gate.shown):
            raise error
        return self.update(self._parts.without_model.plan(self.request), str(error))

    def update(self, chain: ActionChain, error: str = "") -> Update:
        made = _plan_of(chain)
        questions = [node["sub_question"] for node in made["nodes"]]
        emit({"type": "plan", "optimized_question": made["optimized_question"], "sub_questions": questions})
        reply = {**self._state["reply"], "error": error}
        if gate := self.request.gate:
            reply |= {"shown": gate.shown, "message_id": gate.message_id}
        recalled = recall_plan(self._parts, self._state, made, self._settings)
        return {"plan": made, "recalled": recalled, "reply": reply}


def after_plan(parts: GraphParts, state: ConvCoAState) -> list[Send] | str:
    """Route to the look-ups of the plan, or to `approve` if a person decides first."""
    if PLAN in state["approve"]:
        return "approve"
    return by_way_of_approval(state, first_look_ups(parts, state, parts.settings())) or "verify"


def first_look_ups(parts: GraphParts, state: ConvCoAState, settings: ConvCoAContext) -> list[Send]:
    """One branch for each sub-question that is neither recalled nor looked up.

    An empty chain without evidence looks up the question itself.
    """
    made = state["plan"]
    if not made["nodes"]:
        if any(finding["index"] == LOOKED for finding in state["findings"]):
            return []
        action = next(iter(parts.actions.actions))
        return [send(state, LOOKED, chain_item(action, made["optimized_question"]), settings)]
    known = {entry["index"] for entry in (*still_recalled(state), *state["findings"], *looked_up(state))}
    return [send(state, index, node, settings) for index, node in enumerate(made["nodes"]) if index not in known]


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
    """The finding for the question itself, once for each sub-question that repeats it: the same search finds the same."""
    looked = [finding for finding in state["findings"] if finding["index"] == LOOKED and finding["documents"]]
    if len(looked) != 1:
        return []
    asked = sorted(content_words(state["asked"]))
    return [
        {**looked[0], "index": index, "depth": 1, "seconds": 0.0}
        for index, node in enumerate(state["plan"]["nodes"])
        if node["action"] == looked[0]["action"]
        and not node["guess_answer"]
        and sorted(content_words(node["sub_question"])) == asked
    ]


def still_recalled(state: ConvCoAState) -> list[RecalledAnswer]:
    """The recalled answers whose sub-questions are still in the plan, which a person may have edited."""
    nodes = state["plan"]["nodes"]
    return [
        answer
        for answer in state["recalled"]
        if answer["index"] < len(nodes) and words_agree(answer["sub_question"], nodes[answer["index"]]["sub_question"])
    ]


def recall_plan(parts: GraphParts, state: ConvCoAState, made: Plan, settings: ConvCoAContext) -> list[RecalledAnswer]:
    """The answers of earlier rounds to the sub-questions of a plan.

    An action that sets `always_fresh` gets no earlier answers. If the sub-questions depend on the conversation, nothing is
    recalled, because they may mean something else now.
    """
    if not settings.recall_answers or not made["self_contained"]:
        return []
    asked = [
        (index, node["action"], node["sub_question"])
        for index, node in enumerate(made["nodes"])
        if not parts.actions[node["action"]].always_fresh
    ]
    rounds = ContextualKnowledgeSet.load(state.get("knowledge_set")).after(state.get("shared") or []).rounds
    return recall_answers(
        asked,
        rounds[-settings.memory_capacity :],
        state.get("evidence_memory") or [],
        parts.memory.vectors,
        max_age=settings.recall_max_age,
    )
