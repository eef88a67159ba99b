"""The node `repair`: one model call that rewrites the action inputs that failed, such as invalid SQL."""

from __future__ import annotations

import asyncio

from langchain_core.runnables import RunnableConfig

from langgraph_convcoa.nodes.parts import GraphParts, TurnRuntime, Update
from langgraph_convcoa.reasoning.base import BrokenInput, RepairRequest
from langgraph_convcoa.state import ConvCoAState, PlannedNode
from langgraph_convcoa.text.clean import cut_field


def repair(parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime) -> Update:
    """Ask the model once about all inputs; if the call fails, the sub-questions keep their first failure."""
    reasoner = parts.reasoner("repair", parts.settings(runtime))
    try:
        inputs = reasoner.repair(_request(parts, state), config)
    except Exception:  # noqa: BLE001 - whatever a reasoner raises
        inputs = {}
    return _update(state, inputs)


async def arepair(parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime) -> Update:
    """As `repair`."""
    # In threads: a model may have to be built, and a description may wait for a database.
    reasoner = await asyncio.to_thread(parts.reasoner, "repair", parts.settings(runtime))
    try:
        inputs = await reasoner.arepair(await asyncio.to_thread(_request, parts, state), config)
    except Exception:  # noqa: BLE001 - as above
        inputs = {}
    return _update(state, inputs)


def _request(parts: GraphParts, state: ConvCoAState) -> RepairRequest:
    return RepairRequest(state["plan"]["optimized_question"], broken_inputs(state), parts.actions.descriptions())


def _update(state: ConvCoAState, inputs: dict[int, str]) -> Update:
    plan = state["plan"]
    inputs = {item.index: cut_field(inputs[item.index]) for item in broken_inputs(state) if item.index in inputs}
    nodes: list[PlannedNode] = [
        {**node, "action_input": inputs.get(index, node["action_input"])} for index, node in enumerate(plan["nodes"])
    ]
    return {"plan": {**plan, "nodes": nodes}, "repaired": sorted(inputs)}


def broken_inputs(state: ConvCoAState) -> list[BrokenInput]:
    """The action inputs that the actions could not use."""
    nodes = state["plan"]["nodes"]
    failed = {one["index"]: one["error"] for one in state["findings"] if one["repairable"] and 0 <= one["index"] < len(nodes)}
    return [
        BrokenInput(index, nodes[index]["action"], nodes[index]["sub_question"], nodes[index]["action_input"], failed[index])
        for index in sorted(failed)
    ]
