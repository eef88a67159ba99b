"""The action nodes: one parallel branch a sub-question; one that fails leaves the others alone."""

from __future__ import annotations

import time
from typing import Any, Literal

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig
from langgraph.errors import NodeError
from langgraph.types import Command

from langgraph_convcoa.actions.base import ActionInputError, ActionRequest
from langgraph_convcoa.actions.runner import reason_of
from langgraph_convcoa.nodes.runtime import Call, Node, Steps, TurnRuntime, Update, emit_progress
from langgraph_convcoa.nodes.tracing import annotate
from langgraph_convcoa.state import ActionState, Finding
from langgraph_convcoa.usage import node_usage

MODEL_K = 5
"""Pieces of evidence for a model to read (Pan et al. 2024b, appendix H)."""
EXTRACTIVE_K = 10
"""Pieces of evidence without a model: they cost no tokens, and the best sentence is often further down."""


def act_node(turn: TurnRuntime, name: str) -> Any:
    """The node of one action; a branch that fails leaves the others alone."""

    def act(state: ActionState, config: RunnableConfig) -> Steps:
        start = time.perf_counter()
        emit_progress(state["index"], state, "searching")
        settings = turn.settings()
        limits = settings.action_timeout, state["turn"], settings.max_concurrency
        documents = yield Call(turn.actions.run, turn.actions.arun, (name, _request(turn, state), *limits))
        emit_progress(state["index"], state, "found", reason=f"{len(documents)} pieces of evidence")
        return _finding(state, time.perf_counter() - start, documents)

    return Node(name, act)


def action_failed(turn: TurnRuntime, state: ActionState, error: NodeError) -> Command[Literal["verify"]]:
    """Error handler of every action node: the branch ends with its reason."""
    reason = reason_of(error.error)
    emit_progress(state["index"], state, "failed", reason=reason)
    seconds = min(max(time.time() - state["sent"], 0.0), 2 * turn.settings().action_timeout)
    repairable = isinstance(error.error, ActionInputError)
    update = _finding(state, seconds, [], reason, repairable)
    annotate(state, update)
    # A handler does not follow the node's edges; without `goto` a turn whose actions all fail would end without an answer.
    return Command(update=update, goto="verify")


def pieces_wanted(turn: TurnRuntime, action: str) -> int:
    """How many pieces of evidence an action is asked for."""
    settings = turn.settings()
    k: int | None = settings.of_action(action).get("k") or settings.k
    return k or (MODEL_K if settings.model else turn.k)


def neighbours_wanted(turn: TurnRuntime) -> int:
    """How many parts beside each piece: a model reads an excerpt of both, words are compared with what was found alone."""
    return int(turn.plans_over_evidence())


def _request(turn: TurnRuntime, state: ActionState) -> ActionRequest:
    settings = turn.settings()
    own = settings.of_action(state["action"])
    return ActionRequest(
        question=state["question"],
        sub_question=state["sub_question"],
        guess_answer=state["guess_answer"],
        action_input=state["action_input"],
        history=tuple((question, answer) for question, answer in state["history"]),
        k=pieces_wanted(turn, state["action"]),
        neighbours=neighbours_wanted(turn),
        depth=state["depth"],
        settings=own,
    )


def _finding(
    state: ActionState, seconds: float, documents: list[Document], error: str = "", repairable: bool = False
) -> Update:
    finding: Finding = {
        "index": state["index"],
        "depth": state["depth"],
        "documents": documents,
        "error": error,
        "repairable": repairable,
        "seconds": seconds,
        "action": state["action"],
    }
    return {"findings": [finding], "costs": {state["action"]: node_usage(seconds, retrievals=1)}}
