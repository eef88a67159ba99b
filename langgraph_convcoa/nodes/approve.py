"""The node `approve`: a person decides about the plan, or about look-ups before they run.

It makes no model call: LangGraph runs a node that interrupted again from its beginning when the turn is resumed. The answer is
decided about in the node `answer`.
"""

from __future__ import annotations

from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command, Overwrite, Send

from langgraph_convcoa.chain import ChainItem
from langgraph_convcoa.nodes.act import by_way_of_approval
from langgraph_convcoa.nodes.decisions import CHAIN, PLAN, Decided, Review, decide
from langgraph_convcoa.nodes.evidence import LOOKED, evidence_of
from langgraph_convcoa.nodes.parts import GraphParts, TurnRuntime, Update
from langgraph_convcoa.nodes.plan import first_look_ups, recall_plan
from langgraph_convcoa.state import ActionState, ConvCoAState, Finding, Plan, PlannedNode, empty_reply


def approve(parts: GraphParts, state: Any, config: RunnableConfig, runtime: TurnRuntime = None) -> Command[Any]:
    """One interrupt for the plan, or for all look-ups of a step (`look_ups`, which come with a `Send`)."""
    if "look_ups" in state:
        return _look_ups(parts, state, runtime)
    return _plan(parts, state, runtime)


def _plan(parts: GraphParts, state: ConvCoAState, runtime: TurnRuntime) -> Command[Any]:
    settings, plan = parts.settings(runtime), state["plan"]
    [decided] = decide([_plan_review(state)], list(parts.actions.actions), settings.max_sub_questions)
    if decided.type == "reject":
        items = [_failed(node, decided.reason) for node in plan["nodes"]]
        return Command(update={"items": items, "reply": empty_reply(decided.sentence), "origin": "person"}, goto="remember")
    update: Update = {}
    if decided.type == "edit":
        nodes: list[PlannedNode] = decided.args[CHAIN]
        draft, question = decided.args["draft_answer"], decided.args["optimized_question"]
        if nodes != plan["nodes"] and draft == plan["draft_answer"]:
            # It answers the chain as it was.
            draft = ""
        edited: Plan = {**plan, "optimized_question": question, "nodes": nodes, "draft_answer": draft}
        looked = [finding for finding in state["findings"] if finding["index"] == LOOKED]
        recalled = recall_plan(parts, state, edited, settings)
        state = {**state, "plan": edited, "recalled": recalled, "findings": looked}
        update = {"plan": edited, "recalled": recalled, "findings": Overwrite(looked)}
    return Command(update=update, goto=by_way_of_approval(state, first_look_ups(parts, state, settings)) or "verify")


def _look_ups(parts: GraphParts, state: Any, runtime: TurnRuntime) -> Command[Any]:
    """Edits change the plan and the chain; a rejection is what the action brought back."""
    look_ups: list[ActionState] = state["look_ups"]
    reviewed = [look_up for look_up in look_ups if look_up["action"] in state["approve"]]
    reviews = [_look_up_review(look_up) for look_up in reviewed]
    decisions = decide(reviews, list(parts.actions.actions), parts.settings(runtime).max_sub_questions)
    plan, items = {**state["plan"], "nodes": [*state["plan"]["nodes"]]}, [*state["items"]]
    sends = [Send(look_up["action"], look_up) for look_up in look_ups if look_up not in reviewed]
    findings: list[Finding] = []
    for look_up, decided in zip(reviewed, decisions, strict=True):
        index = look_up["index"]
        if decided.type == "reject":
            findings.append(_rejected(look_up, decided))
            continue
        if decided.type == "edit":
            step: PlannedNode = {"action": decided.name, **decided.args}  # type: ignore[typeddict-item]
            if index == LOOKED:
                # What was to be looked up as it stands becomes a chain of one step.
                index, plan["nodes"] = 0, [step]
            else:
                plan["nodes"][index] = step
            if items:
                items[index] = {**items[index], **step}
            look_up = {**look_up, **step, "index": index}
        sends.append(Send(look_up["action"], look_up))
    return Command(update={"plan": plan, "items": items, "findings": findings}, goto=sends or "verify")


def _plan_review(state: ConvCoAState) -> Review:
    plan, steps = state["plan"], len(state["plan"]["nodes"])
    what = f"{steps} sub-question{'' if steps == 1 else 's'} to look up" if steps else "the answer at once"
    sources = [f"[{n}] {_source(document)}" for n, document in enumerate(evidence_of(state["findings"]).documents, start=1)]
    about = "\n".join([f"The plan for “{state['asked']}”: {what}.", *(sources if plan["draft_answer"] else ())])
    args = {
        "optimized_question": plan["optimized_question"],
        CHAIN: [dict(node) for node in plan["nodes"]],
        "draft_answer": plan["draft_answer"],
    }
    return Review(PLAN, args, about, "optimized_question")


def _source(document: Document) -> str:
    return str(document.metadata.get("source") or document.id)


def _look_up_review(look_up: ActionState) -> Review:
    args = {"sub_question": look_up["sub_question"], "guess_answer": look_up["guess_answer"]}
    again = ", and deeper than before" if look_up["depth"] > 1 else ""
    about = f"Look up “{look_up['sub_question']}” with {look_up['action']}{again}."
    return Review(look_up["action"], {**args, "action_input": look_up["action_input"]}, about, "sub_question")


def _rejected(look_up: ActionState, decided: Decided) -> Finding:
    return {
        "index": look_up["index"],
        "depth": look_up["depth"],
        "documents": [],
        "error": decided.reason,
        "repairable": False,
        "seconds": 0.0,
    }


def _failed(node: PlannedNode, reason: str) -> ChainItem:
    return {**node, "answer": "", "status": "failed", "score": 0.0, "reason": reason, "evidence": []}  # type: ignore[typeddict-item]  # `paths` may be left out
