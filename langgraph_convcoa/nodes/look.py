"""The node `look`: what the question finds as it stands, before anything is planned, and earlier evidence beside it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig

from langgraph_convcoa.actions.runner import Look
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.nodes.act import action_request
from langgraph_convcoa.nodes.evidence import LOOKED, with_earlier_evidence
from langgraph_convcoa.nodes.parts import GraphParts, TurnRuntime, Update, emit
from langgraph_convcoa.state import ConvCoAState, Finding, pairs_of
from langgraph_convcoa.usage import node_usage

_log = logging.getLogger(__name__)


def look(parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime = None) -> Update:
    """Ask every action that `looks_first` and need not be approved, with the conversation's state; no model call.

    An action for questions of one form is asked for those only, and may be asked alone.
    """
    start, settings = time.perf_counter(), parts.settings(runtime)
    call = _call(parts, state, settings)
    return _found(parts, state, settings, parts.actions.look(*call), start) if call else {}


async def alook(parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime = None) -> Update:
    """As `look`."""
    start, settings = time.perf_counter(), parts.settings(runtime)
    call = await asyncio.to_thread(_call, parts, state, settings)
    return await asyncio.to_thread(_found, parts, state, settings, await parts.actions.alook(*call), start) if call else {}


def _call(parts: GraphParts, state: ConvCoAState, settings: ConvCoAContext) -> tuple[Any, ...]:
    """The arguments of the action runner; none if there is nothing to ask."""
    if not settings.look_first or not parts.reasoner("plan", settings).plans_over_evidence:
        return ()
    question, history = state["asked"], tuple(pairs_of(state))
    requests = {}
    for name in parts.actions.looking(question, history, state["approve"]):
        own = () if settings.of_action(name).get("use_history") is False else history
        requests[name] = action_request(parts, settings, name, question=question, sub_question=question, history=own)
    limits = settings.action_timeout, state["asked_message_id"], settings.max_concurrency
    return (requests, *limits) if requests else ()


def _found(parts: GraphParts, state: ConvCoAState, settings: ConvCoAContext, looks: Sequence[Look], start: float) -> Update:
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
    asked = [None if parts.actions.always_fresh(found.action) else state["asked"] for found in looks]
    leans = bool(state["history"])
    findings, reused = with_earlier_evidence(parts.memory, settings, state, findings, asked, leans=leans)
    errors = [f"{found.action}: {found.error}" for found in looks if found.error]
    for error in errors:
        _log.warning("the question could not be looked up before it is planned: %s", error)
    emit({"type": "look", "found": sum(len(finding["documents"]) for finding in findings), "errors": errors})
    costs = {found.action: node_usage(found.seconds, retrievals=1) for found in looks}
    costs["look"] = node_usage(time.perf_counter() - start)
    return {"findings": findings, "reused": reused, "costs": costs}
