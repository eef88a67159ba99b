"""The node `look`: what the question finds as it stands, before anything is planned, and earlier evidence beside it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from langchain_core.runnables import RunnableConfig

from langgraph_convcoa.actions.base import ActionRequest
from langgraph_convcoa.actions.runner import Look
from langgraph_convcoa.nodes.act import neighbours_wanted, pieces_wanted
from langgraph_convcoa.nodes.memory import with_earlier_evidence
from langgraph_convcoa.nodes.runtime import LOOKED, Call, Steps, TurnRuntime, emit
from langgraph_convcoa.state import ConvCoAState, Finding, pairs_of
from langgraph_convcoa.usage import node_usage

_log = logging.getLogger(__name__)


def look(turn: TurnRuntime, state: ConvCoAState, config: RunnableConfig) -> Steps:
    """No model call. Asks every action that `looks_first` and need not be approved, with the conversation's state.

    An action that is for questions of one form is asked for those only, and may be asked alone.
    """
    settings = turn.settings()
    if not settings.look_first or not turn.plans_over_evidence():
        return {}
    names = turn.actions.looking(state["asked"], pairs_of(state), state["approve"])
    if not names:
        return {}
    requests = {name: _request(turn, state, name) for name in names}
    limits = settings.action_timeout, state["asked_message_id"], settings.max_concurrency
    looks: Sequence[Look] = yield Call(turn.actions.look, turn.actions.alook, (requests, *limits))
    findings: list[Finding] = [
        {
            "index": LOOKED,
            "depth": 0,
            "documents": found.documents,
            "error": found.error,
            "repairable": False,
            "seconds": found.seconds,
            "action": found.action,
        }
        for found in looks
    ]
    asked = [None if turn.actions.always_fresh(found.action) else state["asked"] for found in looks]
    findings, reused = with_earlier_evidence(turn, state, findings, asked, leans=bool(state["history"]))
    errors = [f"{found.action}: {found.error}" for found in looks if found.error]
    for error in errors:
        _log.warning("the question could not be looked up before it is planned: %s", error)
    emit({"type": "look", "found": sum(len(finding["documents"]) for finding in findings), "errors": errors})
    costs = {found.action: node_usage(found.seconds, retrievals=1) for found in looks}
    return {"findings": findings, "reused": reused, "costs": costs}


def _request(turn: TurnRuntime, state: ConvCoAState, name: str) -> ActionRequest:
    settings = turn.settings()
    own = settings.of_action(name)
    return ActionRequest(
        question=state["asked"],
        sub_question=state["asked"],
        history=() if own.get("use_history") is False else tuple(pairs_of(state)),
        k=pieces_wanted(turn, name),
        neighbours=neighbours_wanted(turn),
        depth=1,
        settings=own,
    )
