"""This library's graph, the conversational chain of action (Pan et al. 2024b, section 3).

A conversation is one thread as long as its history is what the thread has answered itself, so that the knowledge set and the
evidence memory do their work. Where it is not (gold answers, or a conversation resumed in the middle), the turn starts a
thread from the history as messages. Whoever resumes an unfinished conversation in a new process therefore asks its earlier
questions again, which the reply cache answers, and gets the same answers as without the break.
"""

from __future__ import annotations

import re
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.runnables.config import merge_configs
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_convcoa.chain import ChainItem
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.evaluation.methods.base import Kit, Method, conversation
from langgraph_convcoa.evaluation.records import History, Outcome, Turn
from langgraph_convcoa.graph import build_graph
from langgraph_convcoa.reasoning.chat_model import ChatModelReasoner
from langgraph_convcoa.reasoning.prompts import render

_MOST_THREADS = 256
"""Conversations whose threads are kept; more than are ever asked at the same time."""
_LASTS = ("messages", "knowledge_set", "evidence_memory")
_STANDS_IN = "the best evidence stands in"
_PATIENT = 600.0
"""Seconds for a look-up: many questions at a time are slow on a small machine, and no other method has a limit."""
_NOT_COMPARED = re.compile(r"\[\d+\]|\s")


def make_ours(
    kit: Kit,
    name: str = "ours",
    *,
    settings: Mapping[str, Any] = MappingProxyType({}),
    reasoner: type[ChatModelReasoner] = ChatModelReasoner,
    remembers: bool = True,
) -> Method:
    """The graph with the kit's means.

    Malformed are plans that were asked for again, and corrections that left a sub-question to its best evidence.

    Args:
        kit: Model, retriever and actions.
        name: Name of the method.
        settings: Settings that differ from those of the kit.
        reasoner: Class of the reasoner.
        remembers: Keep one thread for each conversation; otherwise the history is text in front of the question.
    """
    given = {"k": kit.settings.k or kit.k, "action_timeout": _PATIENT, **settings}
    context = kit.settings.model_copy(update=given)
    graph = build_graph(reasoner=reasoner(kit.model), actions=kit.all_actions(), context=context)
    conversations = _Conversations(graph, context, remembers, kit.settings.history_budget_tokens)
    return RunnableLambda(conversations.answer, name=name)


@dataclass
class _Thread:
    """A conversation that the graph remembers: what lasts of its state, and the pairs that its history must consist of."""

    state: dict[str, Any]
    pairs: History


class _Unreadable(BaseCallbackHandler):
    """Counts the replies that the graph had to ask for again."""

    run_inline = True

    def __init__(self) -> None:
        self.count = 0
        self._prompt = render("repair")

    def on_chat_model_start(self, serialized: dict[str, Any], messages: list[list[BaseMessage]], **kwargs: Any) -> None:
        if messages and messages[0] and messages[0][-1].text == self._prompt:
            self.count += 1


class _Conversations:
    """The graph with a bounded memory of conversations."""

    def __init__(self, graph: Any, settings: ConvCoAContext, remembers: bool, history_tokens: int) -> None:
        self._saver = InMemorySaver()
        self._graph = graph.compile(checkpointer=self._saver if remembers else None)
        self._settings = settings
        self._remembers = remembers
        self._history_tokens = history_tokens
        self._threads: OrderedDict[str, _Thread] = OrderedDict()

    async def answer(self, turn: Turn, config: RunnableConfig) -> Outcome:
        unreadable = _Unreadable()
        inner = merge_configs(config, {"callbacks": [unreadable]})
        out = await (self._remembered(turn, inner) if self._remembers else self._alone(turn, inner))
        chain: list[ChainItem] = out["chain"]
        corrects = self._settings.max_corrections > 0
        stood_in = corrects and any(item["reason"].startswith(_STANDS_IN) for item in chain)
        ids = dict.fromkeys([id_ for item in chain for id_ in item["evidence"]] + [c["id"] for c in out["citations"]])
        return Outcome(out["answer"], tuple(ids), tuple(chain), unreadable.count + stood_in)

    async def _alone(self, turn: Turn, config: RunnableConfig) -> dict[str, Any]:
        question = f"{conversation(turn, self._history_tokens)}{turn.question}"
        out: dict[str, Any] = await self._graph.ainvoke({"question": question}, config, context=self._settings)
        return out

    async def _remembered(self, turn: Turn, config: RunnableConfig) -> dict[str, Any]:
        """A turn of its conversation's thread, of which only what lasts is kept: checkpoints would add up."""
        thread = self._threads.pop(turn.conversation, None)
        where: RunnableConfig = {"configurable": {"thread_id": str(uuid.uuid4())}}
        given: dict[str, Any] = {"question": turn.question}
        if thread is not None and _plain(thread.pairs) == _plain(turn.history):
            await self._graph.aupdate_state(where, thread.state, as_node="remember")
        else:
            given = {"messages": [*_messages(turn.history), HumanMessage(turn.question)]}
        try:
            await self._graph.ainvoke(given, merge_configs(config, where), context=self._settings, durability="exit")
            values = (await self._graph.aget_state(where)).values
        except BaseException:
            # A turn without an answer leaves the conversation as it was.
            if thread is not None:
                self._threads[turn.conversation] = thread
            raise
        finally:
            self._saver.delete_thread(where["configurable"]["thread_id"])
        pairs = (*turn.history, (turn.question, str(values["answer"])))
        self._threads[turn.conversation] = _Thread({name: values[name] for name in _LASTS if name in values}, pairs)
        if len(self._threads) > _MOST_THREADS:
            self._threads.popitem(last=False)
        return dict(values)


def _messages(pairs: History) -> list[AnyMessage]:
    return [message for question, answer in pairs for message in (HumanMessage(question), AIMessage(answer))]


def _plain(pairs: History) -> list[tuple[str, str]]:
    """Pairs as they are compared: without citation marks, which whoever keeps a history may take out, and the space there."""
    return [(_NOT_COMPARED.sub("", question), _NOT_COMPARED.sub("", answer)) for question, answer in pairs]
