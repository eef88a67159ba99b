"""A turn as a planner's environment: a sampled plan is played over the graph as it is (Pan et al. 2024b, appendix I.2)."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool

from langgraph_convcoa.actions.base import Action
from langgraph_convcoa.actions.knowledge import Retriever, retrievers
from langgraph_convcoa.actions.wrap import as_actions
from langgraph_convcoa.chain import ActionChain
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.graph import build_graph
from langgraph_convcoa.reasoning.base import Corrected, CorrectRequest, History, PlanRequest, Reasoner, RepairRequest
from langgraph_convcoa.reasoning.chat_model import ChatModelReasoner, plan_messages, read_plan
from langgraph_convcoa.reasoning.extractive.reasoner import ExtractiveReasoner
from langgraph_convcoa.reasoning.models import described
from langgraph_convcoa.reasoning.wrapped import chat_models
from langgraph_convcoa.retrieval.editing import EditableRetriever
from langgraph_convcoa.retrieval.encoders.base import without_arithmetic
from langgraph_convcoa.retrieval.engine.corpus import EngineCorpus
from langgraph_convcoa.state import ConvCoAOutput
from langgraph_convcoa.text.matching import match_answer
from langgraph_convcoa.training.planner.reward import (
    RewardSettings,
    TurnReward,
    fault_of,
    malformed_reward,
    turn_reward,
)

_log = logging.getLogger(__name__)
_PLAN = "convcoa_played_plan"
_LOOKED_AT, _LOOKED_FOR = 50, 10
PAPER_FORM = {"look_first": False}
"""Settings of the papers' form: the planner guesses before anything is looked up."""

Message = dict[str, str]
"""A chat message as `{"role", "content"}`."""


class PlayedPlan(Reasoner):
    """Plays the plan that a run's configuration holds; what else a turn has written is written by a frozen reasoner.

    Args:
        frozen: Corrects, fills and writes the answer.
    """

    def __init__(self, frozen: Reasoner) -> None:
        self.frozen = frozen

    def plan(self, request: PlanRequest, config: RunnableConfig | None = None) -> ActionChain:
        text = (config or {}).get("configurable", {}).get(_PLAN)
        if text is None:
            raise _AskedError(plan_messages(request))
        return read_plan(text, request) or ActionChain.single(request.question, next(iter(request.actions)))

    async def aplan(self, request: PlanRequest, config: RunnableConfig | None = None) -> ActionChain:
        return self.plan(request, config)

    def correct(self, request: CorrectRequest, config: RunnableConfig | None = None) -> Corrected:
        return self.frozen.correct(request, config)

    async def acorrect(self, request: CorrectRequest, config: RunnableConfig | None = None) -> Corrected:
        return await self.frozen.acorrect(request, config)

    def repair(self, request: RepairRequest, config: RunnableConfig | None = None) -> dict[int, str]:
        return self.frozen.repair(request, config)

    async def arepair(self, request: RepairRequest, config: RunnableConfig | None = None) -> dict[int, str]:
        return await self.frozen.arepair(request, config)


class _AskedError(Exception):
    """A plan is asked for, and none is to be played."""

    def __init__(self, messages: Sequence[BaseMessage]) -> None:
        super().__init__("a plan is asked for")
        self.messages = messages


class Environment:
    """Turns to train a planner on: asks for a plan as the graph does, plays plans, and rewards them.

    Every turn begins with the data's own earlier turns, so that it depends on no other. The graph is `build_graph`'s; only who
    plans is another.

    Args:
        retriever: What is searched.
        actions: Further actions, or all of them, as `build_graph` takes them.
        reasoner: Writes what the second call of a turn writes: a reasoner, or a chat model; answers are extracted when None.
        context: Settings of the turns; the papers' form when None.
        reward: Weights and parts; the paper's when None.
        concurrency: Turns played at the same time.

    Raises:
        InputError: As `build_graph`; or a malformed plan could earn as much as one that is played.

    Example:
        >>> import asyncio
        >>> from langchain_core.documents import Document
        >>> from langchain_core.retrievers import BaseRetriever
        >>> class Fixed(BaseRetriever):
        ...     def _get_relevant_documents(self, query, *, run_manager):
        ...         return [Document("John Hopfield described the network in 1982.", id="hopfield")]
        >>> turn = Query("1", "When did Hopfield describe the network?", answer="1982")
        >>> step = '{"action": "knowledge_retrieval", "sub": "When did John Hopfield describe the network?", '
        >>> step += '"guess_answer": "", "missing_flag": true, "action_input": ""}'
        >>> plan = '{"optimized_question": "When?", "chain": [' + step + '], "final_answer": ""}'
        >>> asyncio.run(Environment(Fixed()).reward(plan, turn)).total
        0.95
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
        frozen = reasoner or ExtractiveReasoner(encoder)
        self._graph = build_graph(actions=known, reasoner=PlayedPlan(frozen), context=settings).compile()
        self.actions = [action.name for action in known]
        whole = settings if isinstance(settings, ConvCoAContext) else _context(settings)
        self.most = whole.max_sub_questions
        self.reward_settings = reward or RewardSettings()
        self.reward_settings.check(_most_retrievals(known, whole))
        self._known, self._frozen = known, frozen
        self._settings = settings.model_dump(exclude_unset=True) if isinstance(settings, ConvCoAContext) else dict(settings)
        self.seconds = 0.0
        """How long turns were played, those at the same time counted once."""
        self._concurrency = concurrency

    def told(self) -> dict[str, Any]:
        """What the rewards of plans hang on beside their weights: the turns' settings, who answers, and what is searched."""
        asked = chat_models(self._frozen.model) if isinstance(self._frozen, ChatModelReasoner) else []
        return {
            "settings": self._settings,
            "reasoner": " with ".join([type(self._frozen).__name__, *map(described, asked)]),
            "searched": {action.name: _searched(action) for action in self._known},
        }

    async def prompt(self, question: str, history: History = ()) -> list[Message]:
        """The messages that the graph asks a model for the plan of a turn with."""
        try:
            await self._graph.ainvoke({"messages": _messages(question, history)})
        except _AskedError as asked:
            return [{"role": "user", "content": message.text} for message in asked.messages]
        raise InputError(f"No plan is asked for {question[:80]!r}: leave the question out.")

    async def play(self, plan: str, question: str, history: History = ()) -> ConvCoAOutput:
        """The output of a turn whose plan is this text, read as the reasoner reads it: tolerantly.

        Its usage has no call for the plan itself.
        """
        config: RunnableConfig = {"configurable": {_PLAN: plan}}
        output: ConvCoAOutput = await self._graph.ainvoke({"messages": _messages(question, history)}, config)  # type: ignore[assignment]
        return output

    def fault(self, plan: str) -> str:
        """What keeps a plan from being exactly of the form asked for; "" where nothing does."""
        return fault_of(plan, self.actions, self.most)

    async def reward(self, plan: str, turn: Query) -> TurnReward:
        """The reward of a plan for a turn; one that is not of the form asked for is not played.

        Raises:
            InputError: No answer to the question is known, or a judge or a reward of the user's gives no finite number.
        """
        if fault := self.fault(plan):
            return malformed_reward(fault, self.reward_settings)
        output = await self.play(plan, turn.question, turn.history)
        return await turn_reward(plan, output, turn.question, turn.references, self.reward_settings)

    async def rewards(self, plans: Sequence[str], turns: Sequence[Query]) -> list[TurnReward | None]:
        """The rewards of plans, each for its turn, played at the same time, and each plan once for a turn.

        None where a turn or its reward failed, which is logged: nothing is to be learned from that.
        """
        begin = perf_counter()
        slots = asyncio.Semaphore(self._concurrency)

        async def one(plan: str, turn: Query) -> TurnReward | None:
            async with slots:
                try:
                    return await self.reward(plan, turn)
                except Exception as error:  # noqa: BLE001 - also what a user's function raises
                    _log.warning("a plan for %r has no reward: %s: %s", turn.id, type(error).__name__, str(error)[:200])
                    return None

        distinct = {(plan, key_of(turn)): (plan, turn) for plan, turn in zip(plans, turns, strict=True)}
        found = await asyncio.gather(*(one(plan, turn) for plan, turn in distinct.values()))
        of_each = dict(zip(distinct, found, strict=True))
        self.seconds += perf_counter() - begin
        return [of_each[plan, key_of(turn)] for plan, turn in zip(plans, turns, strict=True)]

    async def check(self, turns: Sequence[Query]) -> None:
        """Look the first questions up as they stand.

        Raises:
            InputError: Nothing that was found holds any of their answers.
        """
        looked = [turn for turn in turns if turn.references][:_LOOKED_AT]
        plan = '{"optimized_question": "", "chain": [], "final_answer": ""}'
        for turn in looked:
            output = await self.play(plan, turn.question, turn.history)
            texts = [output["answer"], *(citation["quote"] for citation in output["citations"])]
            if any(match_answer(text, turn.references).get("cover_em") for text in texts):
                return
            if any(identity in turn.gold for item in output["chain"] for identity in item["evidence"]):
                return
        raise InputError(
            f"The documents hold none of the answers to the first {len(looked)} questions: name those that the data are about."
        )


def key_of(turn: Query) -> str:
    """What tells a turn from others: of several data sets, two may have one id."""
    return repr((turn.id, turn.question, turn.history, turn.references))


def playable(queries: Sequence[Query]) -> list[Query]:
    """The turns with a known answer.

    Raises:
        InputError: There is none.
    """
    found = [query for query in queries if any(reference.strip() for reference in query.references)]
    if not found:
        raise InputError("The data hold no question with an answer, so no final answer can earn a reward: name other data.")
    if left_out := len(queries) - len(found):
        _log.info("%d questions without a known answer are left out", left_out)
    return found


def _messages(question: str, history: History) -> list[AnyMessage]:
    earlier = [message for asked, said in history for message in (HumanMessage(asked), AIMessage(said))]
    return [*earlier, HumanMessage(question)]


def _context(settings: dict[str, Any]) -> ConvCoAContext:
    """The settings that the library's own contexts have; an action's own are of no use here."""
    return ConvCoAContext(**{name: value for name, value in settings.items() if name in ConvCoAContext.model_fields})


def _most_retrievals(actions: Sequence[Action], settings: ConvCoAContext) -> int:
    """The look-ups of a turn at most: of the question as it stands, and of each sub-question, deeper or with another input."""
    first = sum(getattr(action, "looks_first", False) for action in actions) if settings.look_first else 0
    each = max(1 + getattr(action, "deepens", False) + getattr(action, "repairs", False) for action in actions)
    return first + each * settings.max_sub_questions


def _searched(action: Action) -> str:
    """What an action searches, by its kind and, where it has them, the ids of its documents or the size of its engine."""
    found = []
    for retriever in retrievers(getattr(action, "retriever", None)):
        told = type(retriever).__name__
        if isinstance(retriever, EditableRetriever) and isinstance(retriever.corpus, EngineCorpus):
            # It lists no documents.
            engine = retriever.corpus.engine
            told += f" of {engine.count()} passages of {getattr(engine, 'tenant', 'all')} in {engine.name}"
        elif isinstance(retriever, EditableRetriever):
            ids = sorted(listed.id for listed in retriever.corpus.snapshot().listed())
            digest = hashlib.sha256("\n".join(ids).encode("utf-8", "surrogatepass")).hexdigest()[:16]
            told += f" of {len(ids)} documents ({digest}) by {without_arithmetic(retriever.encoder.name)}"
        found.append(told)
    return ", ".join(found) or type(action).__name__
