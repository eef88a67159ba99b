"""The node `approve`: a person decides about the plan, or about look-ups before they run.

It makes no model call, because LangGraph runs an interrupted node from its beginning when the turn is resumed. The node
`answer` lets a person decide about the answer.
"""

from __future__ import annotations

from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.types import Command, Overwrite, Send

from langgraph_convcoa.chain import chain_item
from langgraph_convcoa.nodes.act import by_way_of_approval
from langgraph_convcoa.nodes.decisions import PLAN, NeededText, Review, Text, arguments, chain_type, decide
from langgraph_convcoa.nodes.evidence import LOOKED, finding, merge_findings
from langgraph_convcoa.nodes.parts import GraphParts, TurnRuntime, Update
from langgraph_convcoa.nodes.plan import first_look_ups, recall_plan
from langgraph_convcoa.state import ActionState, ConvCoAState, Finding, Plan, PlannedNode, empty_reply


def approve(parts: GraphParts, state: Any, config: RunnableConfig, runtime: TurnRuntime) -> Command[Any]:
    """Interrupt the turn once: for the plan, or for all look-ups of a step (`look_ups`, which come with a `Send`)."""
    return _look_ups(parts, state) if "look_ups" in state else _plan(parts, state, runtime)


def _plan(parts: GraphParts, state: ConvCoAState, runtime: TurnRuntime) -> Command[Any]:
    settings, plan = parts.settings(runtime), state["plan"]
    [decided] = decide([_plan_review(state, chain_type(parts.actions.actions, settings.max_sub_questions))])
    if decided.type == "reject":
        items = [chain_item(**node, status="failed", reason=decided.reason) for node in plan["nodes"]]
        return Command(update={"items": items, "reply": empty_reply(decided.sentence), "origin": "person"}, goto="remember")
    update: Update = {}
    if decided.type == "edit":
        edited: Plan = {**plan, "optimized_question": decided.args["optimized_question"], "nodes": decided.args["chain"]}
        # An unchanged draft belongs to the old chain: it is dropped if the chain changed.
        old_draft = edited["nodes"] != plan["nodes"] and decided.args["draft_answer"] == plan["draft_answer"]
        edited["draft_answer"] = "" if old_draft else decided.args["draft_answer"]
        looked = [one for one in state["findings"] if one["index"] == LOOKED]
        recalled = recall_plan(parts, state, edited, settings)
        state = {**state, "plan": edited, "recalled": recalled, "findings": looked}
        update = {"plan": edited, "recalled": recalled, "findings": Overwrite(looked)}
    return Command(update=update, goto=by_way_of_approval(state, first_look_ups(parts, state, settings)) or "verify")


def _look_ups(parts: GraphParts, state: Any) -> Command[Any]:
    """Ask about look-ups. An edit changes the plan and the chain; a rejection becomes the finding of the look-up."""
    look_ups: list[ActionState] = state["look_ups"]
    reviewed = [look_up for look_up in look_ups if look_up["action"] in state["approve"]]
    decisions = decide([_look_up_review(look_up, list(parts.actions.actions)) for look_up in reviewed])
    plan, items = {**state["plan"], "nodes": [*state["plan"]["nodes"]]}, [*state["items"]]
    sends = [Send(look_up["action"], look_up) for look_up in look_ups if look_up["action"] not in state["approve"]]
    findings: list[Finding] = []
    for look_up, decided in zip(reviewed, decisions, strict=True):
        index = look_up["index"]
        if decided.type == "reject":
            findings.append(finding(index, "", error=decided.reason, depth=look_up["depth"]))
            continue
        if decided.type == "edit":
            step: PlannedNode = {"action": decided.name, **decided.args}  # type: ignore[typeddict-item]
            if index == LOOKED:
                # The question itself becomes a chain of one step.
                index, plan["nodes"] = 0, [step]
            else:
                plan["nodes"][index] = step
            if items:
                items[index] = {**items[index], **step}
            look_up = {**look_up, **step, "index": index}
        sends.append(Send(look_up["action"], look_up))
    return Command(update={"plan": plan, "items": items, "findings": findings}, goto=sends or "verify")


def _plan_review(state: ConvCoAState, chain: Any) -> Review:
    plan, steps = state["plan"], len(state["plan"]["nodes"])
    what = f"{steps} sub-question{'' if steps == 1 else 's'} to look up" if steps else "the answer at once"
    lines = [f"The plan for “{state['asked']}”: {what}."]
    if plan["draft_answer"]:
        evidence = merge_findings(state["findings"]).documents
        lines += [f"[{n}] {document.metadata.get('source') or document.id}" for n, document in enumerate(evidence, 1)]
    form = arguments(
        optimized_question=(NeededText, plan["optimized_question"]),
        chain=(chain, [dict(node) for node in plan["nodes"]]),
        draft_answer=(Text, plan["draft_answer"]),
    )
    return Review(PLAN, form, "\n".join(lines))


def _look_up_review(look_up: ActionState, actions: list[str]) -> Review:
    form = arguments(
        sub_question=(NeededText, look_up["sub_question"]),
        guess_answer=(Text, look_up["guess_answer"]),
        action_input=(Text, look_up["action_input"]),
    )
    again = ", and deeper than before" if look_up["depth"] > 1 else ""
    about = f"Look up “{look_up['sub_question']}” with {look_up['action']}{again}."
    return Review(look_up["action"], form, about, actions)
