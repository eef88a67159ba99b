"""The node that asks the model once for other action inputs, where actions could not use theirs (SQL that fails)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.types import Send

from langgraph_convcoa.actions.runner import ActionRunner
from langgraph_convcoa.nodes.act import ActionNodes, Node, Update
from langgraph_convcoa.reasoning.base import BrokenInput, InputRepairer, Reasoner, RepairRequest
from langgraph_convcoa.state import ConvCoAState, Plan
from langgraph_convcoa.usage import Attempts


class InputRepair:
    """Finds the action inputs of a turn that were no use, asks for others in one call, and sends these out.

    Args:
        actions: The actions; those with `repairs = True` may ask for another input.
        nodes: Makes the branches.
        attempts: Counts the call.
        reasoner: The reasoner of the present run.
    """

    def __init__(
        self, actions: ActionRunner, nodes: ActionNodes, attempts: Attempts, reasoner: Callable[[], Reasoner]
    ) -> None:
        self._actions = actions
        self._nodes = nodes
        self._attempts = attempts
        self._reasoner = reasoner

    def wanted(self, state: ConvCoAState) -> bool:
        """Whether an input was no use, nothing was asked for yet, and the reasoner can write another."""
        return bool(_broken(state)) and isinstance(self._reasoner(), InputRepairer)

    def sends(self, state: ConvCoAState) -> list[Send]:
        """One branch for every input that was written anew."""
        nodes = state["plan"]["nodes"]
        return [
            self._nodes.send(state, index, node["action"], node["sub_question"], node["guess_answer"], node["action_input"])
            for index, node in ((index, nodes[index]) for index in state["repaired"])
        ]

    def node(self) -> Node:
        """The node."""

        def repair(state: ConvCoAState, config: RunnableConfig) -> Update:
            reasoner, request = self._request(state)

            def work(inner: RunnableConfig) -> Update:
                try:
                    return _repaired(state, reasoner.repair(request, inner))
                except Exception:  # noqa: BLE001 - whatever a reasoner raises, the sub-question keeps its first failure
                    return _repaired(state, {})

            return self._attempts.metered("repair", config, work)

        async def arepair(state: ConvCoAState, config: RunnableConfig) -> Update:
            reasoner, request = await asyncio.to_thread(self._request, state)

            async def work(inner: RunnableConfig) -> Update:
                try:
                    return _repaired(state, await reasoner.arepair(request, inner))
                except Exception:  # noqa: BLE001 - as above
                    return _repaired(state, {})

            return await self._attempts.ametered("repair", config, work)

        return RunnableLambda(repair, afunc=arepair, name="repair")

    def _request(self, state: ConvCoAState) -> tuple[InputRepairer, RepairRequest]:
        reasoner = self._reasoner()
        assert isinstance(reasoner, InputRepairer)
        items = _broken(state)
        descriptions = self._actions.descriptions()
        return reasoner, RepairRequest(state["plan"]["optimized_question"], items, descriptions)


def _broken(state: ConvCoAState) -> list[BrokenInput]:
    nodes = state["plan"]["nodes"]
    failed = {f["index"]: f["error"] for f in state["findings"] if f.get("repairable") and 0 <= f["index"] < len(nodes)}
    return [
        BrokenInput(index, nodes[index]["action"], nodes[index]["sub_question"], nodes[index]["action_input"], failed[index])
        for index in sorted(failed)
    ]


def _repaired(state: ConvCoAState, inputs: dict[int, str]) -> dict[str, Any]:
    plan: Plan = {
        **state["plan"],
        "nodes": [
            {**node, "action_input": inputs.get(index, node["action_input"])}
            for index, node in enumerate(state["plan"]["nodes"])
        ],
    }
    asked = {item.index for item in _broken(state)}
    return {"plan": plan, "repaired": sorted(asked & set(inputs))}
