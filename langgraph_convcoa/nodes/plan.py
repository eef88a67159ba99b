"""The node that plans a turn in one model call, and the way on from it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.types import Send

from langgraph_convcoa.actions.runner import ActionRunner
from langgraph_convcoa.chain import ActionChain
from langgraph_convcoa.memory.conversation_memory import ConversationMemory
from langgraph_convcoa.nodes import remember as remembering
from langgraph_convcoa.nodes.act import MERGED_INDEX, ActionNodes, Node, Update, emit
from langgraph_convcoa.reasoning.base import PlanRequest, Reasoner
from langgraph_convcoa.state import ConvCoAState, Plan, pairs_of
from langgraph_convcoa.usage import Attempts


class Planning:
    """Plans the action chain, and marks the sub-questions that the knowledge set answers already.

    Args:
        actions: The actions that may be planned.
        nodes: Makes the branches.
        attempts: Counts the call.
        reasoner: The reasoner of the present run.
        memory: Finds answers of earlier rounds.
    """

    def __init__(
        self,
        actions: ActionRunner,
        nodes: ActionNodes,
        attempts: Attempts,
        reasoner: Callable[[], Reasoner],
        memory: ConversationMemory,
    ) -> None:
        self._actions = actions
        self._nodes = nodes
        self._attempts = attempts
        self._reasoner = reasoner
        self._memory = memory

    def node(self) -> Node:
        """The node."""

        def plan(state: ConvCoAState, config: RunnableConfig) -> Update:
            reasoner, request = self._request(state)
            return self._attempts.metered("plan", config, lambda inner: self._planned(state, reasoner.plan(request, inner)))

        async def aplan(state: ConvCoAState, config: RunnableConfig) -> Update:
            reasoner, request = await asyncio.to_thread(self._request, state)

            async def work(inner: RunnableConfig) -> Update:
                chain = await reasoner.aplan(request, inner)
                return await asyncio.to_thread(self._planned, state, chain)

            return await self._attempts.ametered("plan", config, work)

        return RunnableLambda(plan, afunc=aplan, name="plan")

    def after(self, state: ConvCoAState) -> list[Send] | str:
        """One branch a sub-question that is not recalled; an empty chain looks the optimized question up once."""
        plan = state["plan"]
        if not plan["nodes"]:
            single = ActionChain.single(plan["optimized_question"], next(iter(self._actions.actions))).nodes[0]
            return [self._nodes.send(state, MERGED_INDEX, single.action, single.sub_question)]
        known = {answer["index"] for answer in state["recalled"]}
        sends = [
            self._nodes.send(state, index, node["action"], node["sub_question"], node["guess_answer"], node["action_input"])
            for index, node in enumerate(plan["nodes"])
            if index not in known
        ]
        # An empty list of branches would end the graph without an answer.
        return sends or "verify"

    def _request(self, state: ConvCoAState) -> tuple[Reasoner, PlanRequest]:
        settings = self._nodes.settings()
        return self._reasoner(), PlanRequest(
            question=state["asked"],
            actions=self._actions.descriptions(),
            history=pairs_of(state),
            knowledge=state["knowledge_view"],
            max_sub_questions=settings.max_sub_questions,
            language=settings.language,
        )

    def _planned(self, state: ConvCoAState, chain: ActionChain) -> Update:
        plan = _plan_of(chain)
        answers = remembering.recalled_answers(self._memory, state, plan, self._actions.actions, self._nodes.settings())
        emit(_event(plan))
        return {"plan": plan, "recalled": answers}


def no_plan(question: str) -> Plan:
    """What stands in the state before there is a plan."""
    return {"optimized_question": question, "draft_answer": "", "self_contained": True, "nodes": []}


def _plan_of(chain: ActionChain) -> Plan:
    return {
        "optimized_question": chain.optimized_question,
        "draft_answer": chain.draft_answer,
        "self_contained": chain.self_contained,
        "nodes": [
            {
                "action": node.action,
                "sub_question": node.sub_question,
                "guess_answer": "" if node.is_missing else node.guess_answer,
                "action_input": node.action_input,
            }
            for node in chain.nodes
        ],
    }


def _event(plan: Plan) -> dict[str, Any]:
    return {
        "type": "plan",
        "optimized_question": plan["optimized_question"],
        "sub_questions": [node["sub_question"] for node in plan["nodes"]],
    }
