"""The node `repair`: one model call that rewrites the action inputs that failed, such as invalid SQL."""

from __future__ import annotations

from langchain_core.runnables import RunnableConfig

from langgraph_convcoa.nodes.runtime import Call, Steps, TurnRuntime
from langgraph_convcoa.reasoning.base import BrokenInput, InputRepairer, RepairRequest
from langgraph_convcoa.state import ConvCoAState, PlannedNode
from langgraph_convcoa.text.clean import cut_field


def repair(turn: TurnRuntime, state: ConvCoAState, config: RunnableConfig) -> Steps:
    """One model call for all inputs of the turn; where it fails, the sub-questions keep their first failure."""
    reasoner, items, plan = turn.reasoner("repair"), broken_inputs(state), state["plan"]
    assert isinstance(reasoner, InputRepairer)
    request = RepairRequest(plan["optimized_question"], items, turn.actions.descriptions())
    try:
        inputs: dict[int, str] = yield Call(reasoner.repair, reasoner.arepair, (request, config))
    except Exception:  # noqa: BLE001 - whatever a reasoner raises
        inputs = {}
    inputs = {index: cut_field(text) for index, text in inputs.items()}
    nodes: list[PlannedNode] = [
        {**node, "action_input": inputs.get(index, node["action_input"])} for index, node in enumerate(plan["nodes"])
    ]
    return {"plan": {**plan, "nodes": nodes}, "repaired": sorted({item.index for item in items} & set(inputs))}


def broken_inputs(state: ConvCoAState) -> list[BrokenInput]:
    """The inputs that their actions could not use."""
    nodes = state["plan"]["nodes"]
    failed = {f["index"]: f["error"] for f in state["findings"] if f.get("repairable") and 0 <= f["index"] < len(nodes)}
    return [
        BrokenInput(index, nodes[index]["action"], nodes[index]["sub_question"], nodes[index]["action_input"], failed[index])
        for index in sorted(failed)
    ]
