"""The nodes of a turn. `graph.py` wires them; each stands here once, in a plain and an async form."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.types import Overwrite, Send

from langgraph_convcoa.actions.runner import ActionRunner, elapsed
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.memory.asked import Asked, read_conversation
from langgraph_convcoa.memory.conversation_memory import ConversationMemory
from langgraph_convcoa.memory.knowledge_set import ContextualKnowledgeSet
from langgraph_convcoa.nodes import answer as answering
from langgraph_convcoa.nodes import remember as remembering
from langgraph_convcoa.nodes import verify as verifying
from langgraph_convcoa.nodes.act import ActionNodes, Node, Update, emit
from langgraph_convcoa.nodes.correct import GuessCorrection
from langgraph_convcoa.nodes.plan import Planning, no_plan
from langgraph_convcoa.nodes.repair import InputRepair
from langgraph_convcoa.reasoning.base import Answer, AnswerRequest, Reasoner
from langgraph_convcoa.state import ConvCoAState, pairs_of
from langgraph_convcoa.usage import Attempts, node_usage, total_usage


class Turn:
    """What the nodes of a graph share: its actions, its reasoner, and its default settings.

    Args:
        actions: The actions.
        reasoner_for: The reasoner for a model name given at run time, or for None the graph's own.
        defaults: Settings of a run that gives none.
        k: Pieces of evidence a sub-question where no setting says how many.
    """

    def __init__(
        self, actions: ActionRunner, reasoner_for: Callable[[str | None], Reasoner], defaults: ConvCoAContext, k: int
    ) -> None:
        self.actions = actions
        self._reasoner_for = reasoner_for
        self._nodes = ActionNodes(actions, defaults, k)
        self._attempts = Attempts()
        self.memory = ConversationMemory(remembering.encoder_of(actions.actions.values()))
        self.planning = Planning(actions, self._nodes, self._attempts, self._reasoner, self.memory)
        self.repair = InputRepair(actions, self._nodes, self._attempts, self._reasoner)
        self.correction = GuessCorrection(self._nodes, self._attempts, self._reasoner)

    @property
    def action_nodes(self) -> ActionNodes:
        """The nodes of the actions."""
        return self._nodes

    # recall -----------------------------------------------------------------------------------------------------------

    def recall(self, state: ConvCoAState, config: RunnableConfig) -> Update:
        """The question, the history and the view of the knowledge set; clears what an earlier turn left behind."""
        start = time.perf_counter()
        self._attempts.forget(config)
        asked: Asked = read_conversation(state.get("question"), state.get("messages", []), state.get("asked_message_id"))
        knowledge = ContextualKnowledgeSet.load(state.get("knowledge_set"))
        knowledge.seed(asked.history)
        settings = self._nodes.settings()
        shared = remembering.shared_rounds(settings, config)
        recollection = self.memory.recollect(
            remembering.known_to({"shared": shared}, knowledge),
            asked.question,
            asked.history,
            budget_tokens=settings.history_budget_tokens,
            capacity=settings.memory_capacity,
        )
        return {
            "asked": asked.question,
            "asked_message_id": asked.message_id,
            "history": recollection.history,
            "knowledge_view": recollection.view,
            "shared": shared,
            "recalled": [],
            "reused": 0,
            "messages": asked.removals,
            "plan": no_plan(asked.question),
            "findings": Overwrite([]),
            "items": [],
            "unsolved": [],
            "depth": 0,
            "repaired": [],
            "costs": Overwrite({"recall": node_usage(elapsed(start))}),
            "final": "",
            "final_citations": [],
            "final_message_id": "",
        }

    # verify -----------------------------------------------------------------------------------------------------------

    def verify(self, state: ConvCoAState) -> Update:
        """Fan-in, no model call: the faith score of every guess against its evidence and the history."""
        start = time.perf_counter()
        settings = self._nodes.settings()
        memory: Update = {}
        findings = state["findings"]
        if state["depth"] == 0:
            findings, reused = remembering.with_memory(self.memory, state, self.actions.actions, settings)
            memory = {"findings": Overwrite(findings), "reused": reused}
        items, unsolved = verifying.verify_chain(
            state["plan"]["nodes"], verifying.by_index(findings), pairs_of(state), settings, state["recalled"]
        )
        for index, item in enumerate(items):
            if index not in unsolved:
                emit(verifying.event(index, item))
        depth = state["depth"] + 1
        costs = {"verify": node_usage(elapsed(start))}
        return {**memory, "items": items, "unsolved": unsolved, "depth": depth, "costs": costs}

    def after_verify(self, state: ConvCoAState) -> list[Send] | str:
        """What failed goes back once, with another input or to look deeper; then on to `correct`, or past it."""
        if state["depth"] == 1 and self._nodes.settings().max_corrections:
            if self.repair.wanted(state):
                return "repair"
            if deeper := self._deeper(state):
                return deeper
        return "correct" if state["unsolved"] else "answer"

    def after_repair(self, state: ConvCoAState) -> list[Send] | str:
        """The inputs that were written anew, and beside them what goes deeper."""
        again = [*self.repair.sends(state), *self._deeper(state)]
        return again or ("correct" if state["unsolved"] else "answer")

    def _deeper(self, state: ConvCoAState) -> list[Send]:
        return [
            self._nodes.send(state, index, item["action"], item["sub_question"], item["guess_answer"], item["action_input"])
            for index, item in enumerate(state["items"])
            if item["status"] == "unsupported" and self.actions.deepens(item["action"])
        ]

    # answer -----------------------------------------------------------------------------------------------------------

    def answer_node(self) -> Node:
        def answer(state: ConvCoAState, config: RunnableConfig) -> Update:
            def work(inner: RunnableConfig) -> Update:
                request, ready = self._answer_request(state)
                return _final(ready or self._reasoner().answer(request, inner), request)

            return self._attempts.metered("answer", config, work)

        async def aanswer(state: ConvCoAState, config: RunnableConfig) -> Update:
            async def work(inner: RunnableConfig) -> Update:
                request, ready = await asyncio.to_thread(self._answer_request, state)
                if ready is None:
                    reasoner = await asyncio.to_thread(self._reasoner)
                    ready = await reasoner.aanswer(request, inner)
                return await asyncio.to_thread(_final, ready, request)

            return await self._attempts.ametered("answer", config, work)

        return RunnableLambda(answer, afunc=aanswer, name="answer")

    def _answer_request(self, state: ConvCoAState) -> tuple[AnswerRequest, Answer | None]:
        """What is asked of the reasoner, and the draft where it is borne out, which leaves nothing to ask."""
        settings = self._nodes.settings()
        request = answering.answer_request(state, settings.language)
        return request, answering.draft_answer(state, request, settings) if settings.allow_draft_answer else None

    def _reasoner(self) -> Reasoner:
        """The reasoner of the present run; a model that a run names may take a while to build."""
        return self._reasoner_for(self._nodes.settings().model)

    # remember ---------------------------------------------------------------------------------------------------------

    def remember(self, state: ConvCoAState, config: RunnableConfig) -> Update:
        """The only node that writes what lasts: the round, the messages, the output."""
        start = time.perf_counter()
        settings, found = self._nodes.settings(), verifying.by_index(state["findings"])
        items, citations, text = state["items"], state["final_citations"], state["final"]
        knowledge = ContextualKnowledgeSet.load(state.get("knowledge_set"))
        knowledge.seed(pairs_of(state))
        knowledge.add_round(
            state["asked"],
            state["plan"]["optimized_question"],
            [(item["sub_question"], answering.summary(item, found)) for item in items],
            text,
            {
                "chain": items,
                "citations": citations,
                "time": datetime.now(UTC).isoformat(timespec="seconds"),
                "evidence": answering.uncited(items, found, citations),
            },
        )
        entry = knowledge.rounds[-1]
        remembering.share(settings, config, entry)
        messages: list[Any] = []
        if not any(message.id == state["asked_message_id"] for message in state.get("messages", [])):
            # As a dict, which becomes a message in the state but is not taken for part of the answer by a message stream.
            messages.append({"role": "user", "content": state["asked"], "id": state["asked_message_id"]})
        messages.append(AIMessage(text, id=state["final_message_id"] or str(uuid.uuid4())))
        costs = {**state["costs"], "remember": node_usage(elapsed(start))}
        return {
            "messages": messages,
            "knowledge_set": knowledge.export(),
            "answer": text,
            "citations": citations,
            "chain": items,
            "evidence_memory": remembering.remembered(state, list(self.actions.actions), entry["round"], settings),
            "usage": total_usage(
                costs,
                verifying.turn_seconds(costs, state["findings"], set(self.actions.actions)),
                len(state["recalled"]),
                state["reused"],
            ),
            # Nothing is abandoned from here on; and evidence is not carried from turn to turn in every checkpoint.
            "asked_message_id": "",
            "findings": Overwrite([]),
            "recalled": [],
            "shared": [],
        }


def _final(answer: Answer, request: AnswerRequest) -> Update:
    text, citations, message_id = answering.finish(answer, request)
    if message_id:
        # Written by a model and shown already: what it cites in vain is told, not taken back.
        unsupported = answering.unsupported_sentences(text, request)
        emit({"type": "answer", "unsupported": unsupported, "removed_citations": answer.removed_citations})
    return {"final": text, "final_citations": citations, "final_message_id": message_id}
