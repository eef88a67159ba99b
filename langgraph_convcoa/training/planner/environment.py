"""The environment of a planner: a sampled plan is played over the real graph (Pan et al. 2024b, appendix I.2)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool

from langgraph_convcoa.actions.base import Action
from langgraph_convcoa.actions.knowledge import Retriever
from langgraph_convcoa.actions.wrap import as_actions
from langgraph_convcoa.chain import ActionChain
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.graph import build_graph
from langgraph_convcoa.reasoning.base import Corrected, CorrectRequest, History, PlanRequest, Reasoner, RepairRequest
from langgraph_convcoa.reasoning.chat_model import ChatModelReasoner
from langgraph_convcoa.reasoning.extractive.reasoner import ExtractiveReasoner
from langgraph_convcoa.reasoning.messages import plan_messages, read_plan
from langgraph_convcoa.state import ConvCoAOutput
from langgraph_convcoa.text.matching import match_answer
from langgraph_convcoa.training.planner.reward import RewardSettings, TurnReward, fault_of, turn_reward

_log = logging.getLogger(__name__)
_PLAN = "convcoa_played_plan"
_LOOKED_AT = 50
_NO_PLAN = '{"optimized_question": "", "chain": [], "final_answer": ""}'
PAPER_FORM = {"look_first": False}
"""Settings of the papers' form: the planner guesses before anything is looked up."""


class PlayedPlan(Reasoner):
    """Plays the plan that the config of an asynchronous run holds. A frozen reasoner writes the second call."""

    def __init__(self, frozen: Reasoner) -> None:
        self.frozen = frozen

    async def aplan(self, request: PlanRequest, config: RunnableConfig | None = None) -> ActionChain:
        text = (config or {}).get("configurable", {}).get(_PLAN)
        if text is None:
            raise _AskedError(plan_messages(request))
        return read_plan(text, request) or ActionChain.single(request.question, next(iter(request.actions)))

    async def acorrect(self, request: CorrectRequest, config: RunnableConfig | None = None) -> Corrected:
        return await self.frozen.acorrect(request, config)

    async def arepair(self, request: RepairRequest, config: RunnableConfig | None = None) -> dict[int, str]:
        return await self.frozen.arepair(request, config)


class _AskedError(Exception):
    """The graph asks for a plan, and there is none to play."""

    def __init__(self, messages: Sequence[BaseMessage]) -> None:
        super().__init__("a plan is asked for")
        self.messages = messages


class Environment:
    """Plays and rewards plans over the graph of `build_graph`, in which only the planner is replaced.

    Every turn begins with the earlier turns of the data, so it does not depend on other plans. `retriever` and `actions` are
    those of `build_graph`. `reasoner`, a reasoner or a chat model, writes the second call; answers are extracted when None.
    `context` are the settings of the turns, the papers' form when None. `concurrency` turns are played at the same time.

    Raises:
        InputError: As `build_graph`, or if a malformed plan could earn as much as a played plan.
    """

    def __init__(
        self,
        retriever: Retriever | None = None,
        *,
        actions: Sequence[Action | BaseTool | BaseRetriever] | None = None,
        reasoner: Reasoner | BaseChatModel | None = None,
        context: ConvCoAContext | dict[str, Any] | None = None,
        reward: RewardSettings | None = None,
        concurrency: int = 8,
    ) -> None:
        known = as_actions(retriever, actions)
        encoder = next((one for action in known if (one := getattr(action, "encoder", None)) is not None), None)
        if isinstance(reasoner, BaseChatModel):
            reasoner = ChatModelReasoner(reasoner)
        settings = PAPER_FORM if context is None else context
        played = PlayedPlan(reasoner or ExtractiveReasoner(encoder))
        self._graph = build_graph(actions=known, reasoner=played, context=settings).compile()
        self.actions = [action.name for action in known]
        if not isinstance(settings, ConvCoAContext):
            # The settings of actions are left out.
            settings = ConvCoAContext.model_validate({n: v for n, v in settings.items() if n in ConvCoAContext.model_fields})
        self.most = settings.max_sub_questions
        self.reward_settings = reward or RewardSettings()
        self.reward_settings.check(self.most)
        self._concurrency = concurrency

    async def prompt(self, question: str, history: History = ()) -> list[dict[str, str]]:
        """The messages with which the graph asks a model for the plan of a turn."""
        try:
            await self._graph.ainvoke({"messages": _messages(question, history)})
        except _AskedError as asked:
            return [{"role": "user", "content": message.text} for message in asked.messages]
        raise InputError(f"No plan is asked for {question[:80]!r}: leave the question out.")

    async def play(self, plan: str, question: str, history: History = ()) -> ConvCoAOutput:
        """The output of a turn with this plan. It is read as tolerantly as in a graph. Usage does not count its call."""
        config: RunnableConfig = {"configurable": {_PLAN: plan}}
        output: ConvCoAOutput = await self._graph.ainvoke({"messages": _messages(question, history)}, config)  # type: ignore[assignment]
        return output

    def fault(self, plan: str) -> str:
        """What is wrong with the form of a plan; "" if nothing is."""
        return fault_of(plan, self.actions, self.most)

    async def reward(self, plan: str, turn: Query) -> TurnReward:
        """The reward of a plan for a turn. A malformed plan is not played.

        Raises:
            InputError: No answer to the question is known, or the user's own reward is no finite number.
        """
        if fault := self.fault(plan):
            return TurnReward(penalty=self.reward_settings.malformed, fault=fault)
        output = await self.play(plan, turn.question, turn.history)
        return await turn_reward(plan, output, turn.question, turn.references, self.reward_settings)

    async def rewards(self, plans: Sequence[str], turns: Sequence[Query]) -> list[TurnReward | None]:
        """The rewards of plans, each for its turn. A plan that is there twice for a turn is played once.

        A reward is None if its turn failed, which is logged. TRL leaves such a plan out.
        """
        slots = asyncio.Semaphore(self._concurrency)

        async def one(plan: str, turn: Query) -> TurnReward | None:
            async with slots:
                try:
                    return await self.reward(plan, turn)
                except Exception as error:  # noqa: BLE001 - also what a user's function raises
                    _log.warning("a plan for %r has no reward: %s: %s", turn.id, type(error).__name__, str(error)[:200])
                    return None

        played: dict[tuple[str, str], asyncio.Task[TurnReward | None]] = {}
        for plan, turn in zip(plans, turns, strict=True):
            # Not by id: turns of two data sets may have the same id.
            if (plan, repr(turn)) not in played:
                played[plan, repr(turn)] = asyncio.ensure_future(one(plan, turn))
        return [await played[plan, repr(turn)] for plan, turn in zip(plans, turns, strict=True)]

    async def check(self, turns: Sequence[Query]) -> None:
        """Raise InputError if the documents contain none of the answers to the first questions."""
        looked = [turn for turn in turns if turn.references][:_LOOKED_AT]
        for turn in looked:
            output = await self.play(_NO_PLAN, turn.question, turn.history)
            texts = [output["answer"], *(citation["quote"] for citation in output["citations"])]
            if any(match_answer(text, turn.references).get("cover_em") for text in texts):
                return
            if any(identity in turn.gold for item in output["chain"] for identity in item["evidence"]):
                return
        raise InputError(f"The documents hold none of the answers to {len(looked)} questions: name the documents of the data.")


def playable(queries: Sequence[Query]) -> list[Query]:
    """The turns with a known answer; InputError if there are none."""
    found = [query for query in queries if any(reference.strip() for reference in query.references)]
    if not found:
        raise InputError("The data hold no question with an answer, so no final answer can earn a reward: name other data.")
    if left_out := len(queries) - len(found):
        _log.info("%d questions without a known answer are left out", left_out)
    return found


def _messages(question: str, history: History) -> list[AnyMessage]:
    earlier = [message for asked, said in history for message in (HumanMessage(asked), AIMessage(said))]
    return [*earlier, HumanMessage(question)]
