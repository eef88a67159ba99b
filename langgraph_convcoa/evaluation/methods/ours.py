"""Two methods: this library's graph (the chain of action of Pan et al. 2024b, sec. 3), and LangChain's agent.

A turn continues the thread of its conversation if the turn's history equals the thread's turns. Otherwise (gold answers, or a
resumed conversation) the turn starts a new thread with its history as messages.
"""

from __future__ import annotations

import re
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.runnables.config import merge_configs
from langchain_core.tools import BaseTool, create_retriever_tool
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_convcoa.agent import VerifiedAnswers, evidence_of
from langgraph_convcoa.chain import ChainItem
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.methods.prompting import Answerer, Kit
from langgraph_convcoa.evaluation.records import History, Outcome, Turn
from langgraph_convcoa.graph import build_graph
from langgraph_convcoa.nodes.plan import MODEL_K
from langgraph_convcoa.nodes.verify import STANDS_IN
from langgraph_convcoa.reasoning.base import Reasoner
from langgraph_convcoa.reasoning.chat_model import ChatModelReasoner, render
from langgraph_convcoa.reasoning.extractive.reasoner import ExtractiveReasoner
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

_ReasonerFactory = Callable[[Kit], Reasoner]
_MOST_THREADS = 256  # Number of conversations whose threads are kept. It must exceed the number that runs at once.
_PATIENT = 600.0  # Seconds for a look-up. On a small machine, look-ups are slow; the other methods have no limit.
_NOT_COMPARED = re.compile(r"\[\d+\]|\s")
PROMPT = render("evaluate_agent").rstrip()


def make_extractive(kit: Kit, name: str = "extractive") -> Answerer:
    """Make the graph without a model. It compares sentences by the vectors of the retriever's encoder."""
    encoder = kit.retriever.encoder if isinstance(kit.retriever, HopfieldRetriever) else None
    return make_ours(kit, name, reasoner=lambda _kit: ExtractiveReasoner(encoder))


def make_ours(
    kit: Kit, name: str = "ours", *, settings: Mapping[str, Any] | None = None, reasoner: _ReasonerFactory | None = None
) -> Answerer:
    """Make the graph with the kit's model and retriever. `settings` override those of the kit.

    A reply counts as malformed if the model had to be asked again, or if the reply lacks a requested correction.
    """
    given = {"k": kit.settings.k or kit.k, "action_timeout": _PATIENT, **(settings or {})}
    context = kit.settings.model_copy(update=given)
    made = ChatModelReasoner(kit.chat_model()) if reasoner is None else reasoner(kit)
    graph, saver = build_graph(reasoner=made, retriever=kit.retriever, context=context), InMemorySaver()
    return RunnableLambda(_Conversations(graph.compile(checkpointer=saver), saver, context).answer, name=name)


class _Unreadable(BaseCallbackHandler):
    """Counts the replies that the graph had to ask for again."""

    run_inline = True

    def __init__(self) -> None:
        self.count = 0
        self._prompt = render("plan_again")

    def on_chat_model_start(self, serialized: dict[str, Any], messages: list[list[BaseMessage]], **kwargs: Any) -> None:
        if messages and messages[0] and messages[0][-1].text == self._prompt:
            self.count += 1


class _Conversations:
    """The compiled graph with the threads of the latest conversations."""

    def __init__(self, graph: Any, saver: InMemorySaver, settings: ConvCoAContext) -> None:
        self._graph, self._saver, self._settings = graph, saver, settings
        self._threads: OrderedDict[str, tuple[str, History]] = OrderedDict()

    async def answer(self, turn: Turn, config: RunnableConfig) -> Outcome:
        thread, pairs = self._threads.pop(turn.conversation, ("", ()))
        given: dict[str, Any] = {"question": turn.question}
        if not thread or _plain(pairs) != _plain(turn.history):
            self._saver.delete_thread(thread)
            thread, pairs = str(uuid.uuid4()), turn.history
            earlier = [message for asked, said in pairs for message in (HumanMessage(asked), AIMessage(said))]
            given = {"messages": [*earlier, HumanMessage(turn.question)]}
        unreadable = _Unreadable()
        config = merge_configs(config, {"callbacks": [unreadable], "configurable": {"thread_id": thread}})
        try:
            out = await self._graph.ainvoke(given, config, context=self._settings, durability="exit")
            pairs = (*turn.history, (turn.question, str(out["answer"])))
        finally:
            # A failed turn stays in the thread; the next question discards it.
            self._threads[turn.conversation] = (thread, pairs)
            if len(self._threads) > _MOST_THREADS:
                self._saver.delete_thread(self._threads.popitem(last=False)[1][0])
        chain: list[ChainItem] = out["chain"]
        stood_in = self._settings.max_corrections > 0 and any(item["reason"].startswith(STANDS_IN) for item in chain)
        ids = dict.fromkeys([id_ for item in chain for id_ in item["evidence"]] + [c["id"] for c in out["citations"]])
        return Outcome(out["answer"], tuple(ids), tuple(chain), unreadable.count + stood_in)


def _plain(pairs: History) -> list[tuple[str, str]]:
    return [(_NOT_COMPARED.sub("", question), _NOT_COMPARED.sub("", answer)) for question, answer in pairs]


def make_agent(kit: Kit, name: str = "agent", *, middleware: Sequence[AgentMiddleware[Any, Any, Any]] = ()) -> Answerer:
    """Make an agent that searches as often as it likes, within `Kit.max_steps`: n + 1 model calls for n searches."""
    agent = create_agent(kit.chat_model(), tools=[_tool(kit)], system_prompt=PROMPT, middleware=middleware)

    async def answer(turn: Turn, config: RunnableConfig) -> Outcome:
        history = [
            message for question, reply in turn.history for message in (HumanMessage(question), AIMessage(reply or "(none)"))
        ]
        given: Any = {"messages": [*history, HumanMessage(turn.question)]}
        limited = merge_configs(config, {"recursion_limit": 4 * kit.max_steps})
        messages = (await agent.ainvoke(given, limited))["messages"]
        found = [document.id for one in messages if isinstance(one, ToolMessage) for document in evidence_of([one])]
        return Outcome(messages[-1].text, tuple(dict.fromkeys(map(str, found))))

    return RunnableLambda(answer, name=name)


def make_verified_agent(kit: Kit, name: str = "agent-verified") -> Answerer:
    """Make the agent with `VerifiedAnswers`: one more model call if no evidence supports a sentence of the answer."""
    return make_agent(kit, name, middleware=[VerifiedAnswers()])


def _tool(kit: Kit) -> BaseTool:
    if kit.retriever is None:
        raise InputError("an agent needs a retriever: give documents or an index, or leave it out")
    if isinstance(kit.retriever, HopfieldRetriever):
        return kit.retriever.model_copy(update={"k": kit.k or MODEL_K}).as_tool()
    description = "Search the documents."
    return create_retriever_tool(kit.retriever, "search_documents", description, response_format="content_and_artifact")
