"""The nodes of the actions: one branch a sub-question, in parallel, each with its own end."""

from __future__ import annotations

import time
from typing import Any, Literal

from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from langgraph.errors import NodeError
from langgraph.runtime import get_runtime
from langgraph.types import Command, Send

from langgraph_convcoa.actions.base import ActionInputError, ActionRequest
from langgraph_convcoa.actions.runner import ActionRunner, elapsed, reason_of
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.state import ActionState, ConvCoAState, Finding
from langgraph_convcoa.usage import node_usage

Update = dict[str, Any]
Node = RunnableLambda[Any, Any]
MODEL_K = 5
"""Pieces of evidence for a model to read (Pan et al. 2024b, appendix H)."""
EXTRACTIVE_K = 10
"""Pieces of evidence without a model: they cost no tokens, and the best sentence is often further down."""
MERGED_INDEX = -1
"""The index of the one retrieval of an empty chain."""


class ActionNodes:
    """Makes the nodes of the actions, and the branches that lead to them.

    Args:
        actions: The actions.
        defaults: Settings of a run that gives none.
        k: Pieces of evidence a sub-question where no setting says how many.
    """

    def __init__(self, actions: ActionRunner, defaults: ConvCoAContext, k: int) -> None:
        self._actions = actions
        self._defaults = defaults
        self._k = k

    def settings(self) -> ConvCoAContext:
        """The settings of the present run."""
        return get_runtime(ConvCoAContext).context or self._defaults

    def send(
        self, state: ConvCoAState, index: int, action: str, sub_question: str, guess: str = "", action_input: str = ""
    ) -> Send:
        """A branch that looks up one sub-question."""
        alone = state["plan"]["self_contained"]
        if action == "knowledge_retrieval" and (wanted := self.settings().knowledge_retrieval.use_history) is not None:
            alone = not wanted
        payload: ActionState = {
            "turn": state["asked_message_id"],
            "sent": time.time(),
            "index": index,
            "depth": state["depth"] + 1,
            "action": action,
            "question": state["asked"],
            "sub_question": sub_question,
            "guess_answer": guess,
            "action_input": action_input,
            "history": [] if alone else state["history"],
        }
        return Send(action, payload)

    def node(self, name: str) -> Node:
        """The node of one action."""

        def act(state: ActionState) -> Update:
            start = time.perf_counter()
            _progress(state, "searching")
            return _found(state, self._actions.run(name, self._request(state), **self._limits(state)), start)

        async def aact(state: ActionState) -> Update:
            start = time.perf_counter()
            _progress(state, "searching")
            return _found(state, await self._actions.arun(name, self._request(state), **self._limits(state)), start)

        return RunnableLambda(act, afunc=aact, name=name)

    def failed(self, state: ActionState, error: NodeError) -> Command[Literal["verify"]]:
        """Error handler of every action node: the branch ends with its reason, its siblings go on."""
        reason = reason_of(error.error)
        _progress(state, "failed", reason)
        # A handler does not follow the node's edges; without this a turn whose actions all fail would end without an answer.
        settings = self.settings()
        seconds = min(max(time.time() - state["sent"], 0.0), 2 * settings.action_timeout)
        repairable = isinstance(error.error, ActionInputError)
        return Command(update=_finding(state, [], reason, seconds, repairable), goto="verify")

    def _request(self, state: ActionState) -> ActionRequest:
        settings = self.settings()
        own = settings.of_action(state["action"])
        k = own.get("k") or settings.k or (MODEL_K if settings.model else self._k)
        return ActionRequest(
            question=state["question"],
            sub_question=state["sub_question"],
            guess_answer=state["guess_answer"],
            action_input=state["action_input"],
            history=tuple((question, answer) for question, answer in state["history"]),
            k=k,
            depth=state["depth"],
            settings=own,
        )

    def _limits(self, state: ActionState) -> dict[str, Any]:
        settings = self.settings()
        return {"within": settings.action_timeout, "turn": state["turn"], "limit": settings.max_concurrency}


def emit(event: dict[str, Any]) -> None:
    """A progress event for who streams `custom`."""
    get_runtime(ConvCoAContext).stream_writer(event)


def _found(state: ActionState, documents: list[Document], start: float) -> Update:
    _progress(state, "found", f"{len(documents)} pieces of evidence")
    return _finding(state, documents, "", elapsed(start))


def _finding(state: ActionState, documents: list[Document], error: str, seconds: float, repairable: bool = False) -> Update:
    finding: Finding = {
        "index": state["index"],
        "depth": state["depth"],
        "documents": documents,
        "error": error,
        "repairable": repairable,
        "seconds": seconds,
    }
    return {"findings": [finding], "costs": {state["action"]: node_usage(seconds, retrievals=1)}}


def _progress(state: ActionState, status: str, reason: str = "") -> None:
    emit(
        {
            "type": "sub_question",
            "index": state["index"],
            "sub_question": state["sub_question"],
            "action": state["action"],
            "status": status,
            "score": 0.0,
            "reason": reason,
        }
    )
