"""The node `look`: looks the question up before it is planned, and adds evidence of earlier turns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from langchain_core.runnables import RunnableConfig

from langgraph_convcoa.actions.base import ActionRequest
from langgraph_convcoa.actions.runner import Look
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.nodes.act import action_request
from langgraph_convcoa.nodes.evidence import LOOKED, finding, with_earlier_evidence
from langgraph_convcoa.nodes.parts import GraphParts, TurnRuntime, Update, emit
from langgraph_convcoa.state import ConvCoAState, pairs_of
from langgraph_convcoa.usage import node_usage

_log = logging.getLogger(__name__)


def look(parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime) -> Update:
    """Ask every action that `looks_first` and needs no approval; no model call.

    An action that recognises the question is asked alone.
    """
    settings = parts.settings(runtime)
    if not (requests := _requests(parts, state, settings)):
        return {}
    limits = settings.action_timeout, state["asked_message_id"], settings.max_concurrency
    return _update(parts, state, settings, parts.actions.look(requests, *limits))


async def alook(parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime) -> Update:
    """As `look`."""
    settings = parts.settings(runtime)
    if not (requests := await asyncio.to_thread(_requests, parts, state, settings)):
        return {}
    limits = settings.action_timeout, state["asked_message_id"], settings.max_concurrency
    return await asyncio.to_thread(_update, parts, state, settings, await parts.actions.alook(requests, *limits))


def _requests(parts: GraphParts, state: ConvCoAState, settings: ConvCoAContext) -> dict[str, ActionRequest]:
    """The request to each action that is asked."""
    if not settings.look_first or not parts.reasoner("plan", settings).plans_over_evidence:
        return {}
    question, history = state["asked"], tuple(pairs_of(state))
    requests = {}
    for name in parts.actions.looking(question, history, state["approve"]):
        own = () if settings.of_action(name).get("use_history") is False else history
        requests[name] = action_request(parts, settings, name, question=question, sub_question=question, history=own)
    return requests


def _update(parts: GraphParts, state: ConvCoAState, settings: ConvCoAContext, looks: Sequence[Look]) -> Update:
    findings = [finding(LOOKED, look.action, look.documents, look.error, depth=0, seconds=look.seconds) for look in looks]
    asked = [None if parts.actions[look.action].always_fresh else state["asked"] for look in looks]
    findings, reused = with_earlier_evidence(parts.memory, settings, state, findings, asked)
    errors = [f"{look.action}: {look.error}" for look in looks if look.error]
    for error in errors:
        _log.warning("the question could not be looked up before it is planned: %s", error)
    emit({"type": "look", "found": sum(len(one["documents"]) for one in findings), "errors": errors})
    costs = {look.action: node_usage(look.seconds, retrievals=1) for look in looks}
    return {"findings": findings, "reused": reused, "costs": costs}
