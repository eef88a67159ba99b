"""The action nodes: one parallel branch for each sub-question. A branch that fails does not stop the others."""

from __future__ import annotations

import time
from typing import Any, Literal

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig
from langgraph.errors import NodeError
from langgraph.types import Command, Send

from langgraph_convcoa.actions.base import ActionInputError, ActionRequest
from langgraph_convcoa.actions.runner import reason_of
from langgraph_convcoa.chain import ChainItem
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.nodes.evidence import finding
from langgraph_convcoa.nodes.parts import GraphParts, TurnRuntime, Update, emit_status
from langgraph_convcoa.nodes.tracing import annotate
from langgraph_convcoa.state import ActionState, ConvCoAState, PlannedNode
from langgraph_convcoa.usage import node_usage

MODEL_K = 5
"""Pieces of evidence for a model to read (Pan et al. 2024b, appendix H)."""
EXTRACTIVE_K = 10
"""Pieces of evidence without a model. They cost no tokens, and the best sentence is often further down."""


def act(parts: GraphParts, state: ActionState, config: RunnableConfig, runtime: TurnRuntime) -> Update:
    """Look one sub-question up."""
    start = time.perf_counter()
    documents = parts.actions.run(state["action"], *_asked(parts, state, parts.settings(runtime)))
    return _update(state, documents, time.perf_counter() - start)


async def aact(parts: GraphParts, state: ActionState, config: RunnableConfig, runtime: TurnRuntime) -> Update:
    """As `act`."""
    start = time.perf_counter()
    documents = await parts.actions.arun(state["action"], *_asked(parts, state, parts.settings(runtime)))
    return _update(state, documents, time.perf_counter() - start)


def act_failed(parts: GraphParts, state: ActionState, error: NodeError, runtime: Any = None) -> Command[Literal["verify"]]:
    """Handle the error of an action node: its reason becomes the finding of the branch."""
    seconds = min(max(time.time() - state["sent"], 0.0), 2 * parts.settings(runtime).action_timeout)
    update = _update(state, [], seconds, reason_of(error.error), repairable=isinstance(error.error, ActionInputError))
    # A handler does not follow the node's edges; without `goto`, a turn whose actions all fail would end without an answer.
    return Command(update=annotate(state, update), goto="verify")


def send(state: ConvCoAState, index: int, step: PlannedNode | ChainItem, settings: ConvCoAContext) -> Send:
    """A branch to the action that looks one sub-question up."""
    with_history = settings.of_action(step["action"]).get("use_history")
    if with_history is None:
        with_history = not state["plan"]["self_contained"]
    payload: ActionState = {
        "turn": state["asked_message_id"],
        "sent": time.time(),
        "index": index,
        "depth": state["depth"] + 1,
        "action": step["action"],
        "question": state["asked"],
        "sub_question": step["sub_question"],
        "guess_answer": step["guess_answer"],
        "action_input": step["action_input"],
        "history": state["history"] if with_history else [],
    }
    return Send(step["action"], payload)


def by_way_of_approval(state: ConvCoAState, look_ups: list[Send]) -> list[Send]:
    """Return the look-ups, or one branch to `approve` with all of them if a person approves any of them."""
    if not {look_up.node for look_up in look_ups} & {*state["approve"]}:
        return look_ups
    needed = {name: state[name] for name in ("approve", "asked", "plan", "items")}
    return [Send("approve", {**needed, "look_ups": [look_up.arg for look_up in look_ups]})]


def action_request(parts: GraphParts, settings: ConvCoAContext, action: str, **asked: Any) -> ActionRequest:
    """The request to an action, with its settings and the number of pieces.

    A model reads an excerpt of each piece and its neighbours; without a model, each piece is read alone.
    """
    own = settings.of_action(action)
    k = own.get("k") or settings.k or (MODEL_K if settings.model else parts.k)
    neighbours = int(parts.reasoner("plan", settings).plans_over_evidence)
    return ActionRequest(k=k, neighbours=neighbours, settings=own, **asked)


def _asked(parts: GraphParts, state: ActionState, settings: ConvCoAContext) -> tuple[ActionRequest, float, str, int]:
    """The request, the time limit, the turn, and the number of actions that may run at the same time."""
    emit_status(state["index"], state, "searching")
    request = action_request(
        parts,
        settings,
        state["action"],
        question=state["question"],
        sub_question=state["sub_question"],
        guess_answer=state["guess_answer"],
        action_input=state["action_input"],
        depth=state["depth"],
        history=tuple((question, answer) for question, answer in state["history"]),
    )
    return request, settings.action_timeout, state["turn"], settings.max_concurrency


def _update(
    state: ActionState, documents: list[Document], seconds: float, error: str = "", *, repairable: bool = False
) -> Update:
    reason = error or f"{len(documents)} pieces of evidence"
    emit_status(state["index"], state, "failed" if error else "found", reason=reason)
    found = finding(
        state["index"], state["action"], documents, error, depth=state["depth"], seconds=seconds, repairable=repairable
    )
    return {"findings": [found], "costs": {state["action"]: node_usage(seconds, retrievals=1)}}
