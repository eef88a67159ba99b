"""The node that corrects, in one model call, every guess that its evidence does not bear out, and fills what is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from langchain_core.runnables import RunnableConfig, RunnableLambda

from langgraph_convcoa.actions.runner import reason_of
from langgraph_convcoa.nodes import verify as verifying
from langgraph_convcoa.nodes.act import ActionNodes, Node, Update, emit
from langgraph_convcoa.reasoning.base import Correction, CorrectRequest, Reasoner, Unsolved
from langgraph_convcoa.state import ConvCoAState, pairs_of
from langgraph_convcoa.usage import Attempts

_OFF = "corrections are switched off"


class GuessCorrection:
    """Asks for all corrections of a turn at once; where that fails, the best sentence of the evidence stands in.

    Args:
        nodes: Knows the settings of the run.
        attempts: Counts the call.
        reasoner: The reasoner of the present run.
    """

    def __init__(self, nodes: ActionNodes, attempts: Attempts, reasoner: Callable[[], Reasoner]) -> None:
        self._nodes = nodes
        self._attempts = attempts
        self._reasoner = reasoner

    def node(self) -> Node:
        """The node."""

        def correct(state: ConvCoAState, config: RunnableConfig) -> Update:
            reasoner, request = self._request(state)

            def work(inner: RunnableConfig) -> Update:
                corrections: Sequence[Correction] = ()
                failure = _OFF
                if reasoner is not None:
                    try:
                        corrections, failure = reasoner.correct(request, inner), ""
                    except Exception as error:  # noqa: BLE001 - whatever a reasoner raises, the evidence stands in
                        failure = reason_of(error)
                return self._corrected(state, request, corrections, failure)

            return self._attempts.metered("correct", config, work)

        async def acorrect(state: ConvCoAState, config: RunnableConfig) -> Update:
            reasoner, request = await asyncio.to_thread(self._request, state)

            async def work(inner: RunnableConfig) -> Update:
                corrections: Sequence[Correction] = ()
                failure = _OFF
                if reasoner is not None:
                    try:
                        corrections, failure = await reasoner.acorrect(request, inner), ""
                    except Exception as error:  # noqa: BLE001 - as above
                        failure = reason_of(error)
                # Judging long evidence takes a while, which the loop need not wait for.
                return await asyncio.to_thread(self._corrected, state, request, corrections, failure)

            return await self._attempts.ametered("correct", config, work)

        return RunnableLambda(correct, afunc=acorrect, name="correct")

    def _request(self, state: ConvCoAState) -> tuple[Reasoner | None, CorrectRequest]:
        settings = self._nodes.settings()
        found = verifying.by_index(state["findings"])
        items = [
            Unsolved(index, item["sub_question"], item["guess_answer"], found[index].documents)
            for index, item in ((index, state["items"][index]) for index in state["unsolved"])
        ]
        request = CorrectRequest(
            question=state["plan"]["optimized_question"], items=items, history=pairs_of(state), language=settings.language
        )
        return (self._reasoner() if settings.max_corrections else None), request

    def _corrected(
        self, state: ConvCoAState, request: CorrectRequest, corrections: Sequence[Correction], failure: str
    ) -> Update:
        items = verifying.apply_corrections(state["items"], request.items, corrections, failure, self._nodes.settings())
        for unsolved in request.items:
            emit(verifying.event(unsolved.index, items[unsolved.index]))
        return {"items": items, "unsolved": []}
