"""What the nodes of one graph share, and what each node does besides its work: progress events, streams and traces."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from cachetools import LRUCache, TTLCache
from langchain_core.messages import AIMessageChunk
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs
from langgraph._internal._runnable import RunnableCallable  # as LangChain's own agents import it
from langgraph.config import get_stream_writer
from langgraph.graph.message import push_message
from langgraph.pregel._messages import StreamMessagesHandler
from langgraph.runtime import Runtime, get_runtime

from langgraph_convcoa.actions.runner import ActionRunner
from langgraph_convcoa.chain import ChainItem
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.memory.conversation_memory import ConversationMemory
from langgraph_convcoa.nodes.drafts import Checker
from langgraph_convcoa.nodes.evidence import evidence_of
from langgraph_convcoa.nodes.tracing import annotate
from langgraph_convcoa.reasoning.base import Reasoner
from langgraph_convcoa.state import ActionState, ConvCoAState, Finding, PlannedNode, pairs_of
from langgraph_convcoa.usage import NodeUsage, UsageCounter
from langgraph_convcoa.verification.verifier import Verifier

Update = dict[str, Any]
"""The part of the state that a node changes."""
TurnRuntime = Runtime[ConvCoAContext] | None
"""LangGraph's runtime; None where a person edits the state between two nodes."""
_CHECKERS, _CHECKER_SECONDS = 32, 120.0
_OF_A_STEP = frozenset({"guess_answer", "answer", "evidence", "paths"})
"""What a progress event says of a sub-question, where it is known."""


@dataclass(frozen=True)
class GraphParts:
    """What the nodes of one graph share.

    Attributes:
        actions: Runs the actions.
        reasoner_of: Gives the reasoner of a node for a model named at run time, or for None the graph's own.
        without_model: Answers from quotes where a model is down.
        verifier: Judges each sentence.
        memory: The conversation memory.
        defaults: Settings of a run that gives none.
        k: Pieces of evidence for a sub-question where no setting says how many.
    """

    actions: ActionRunner
    reasoner_of: Callable[[str, str | None], Reasoner]
    without_model: Reasoner
    verifier: Verifier
    memory: ConversationMemory
    defaults: ConvCoAContext
    k: int
    _checkers: TTLCache[Any, Checker] = field(default_factory=lambda: TTLCache(_CHECKERS, _CHECKER_SECONDS), repr=False)
    _counters: LRUCache[Any, UsageCounter] = field(default_factory=lambda: LRUCache(1_000), repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def settings(self, runtime: TurnRuntime = None) -> ConvCoAContext:
        """The settings of the present run, whose runtime a node is given and a router is not."""
        runtime = runtime or get_runtime(ConvCoAContext)
        return (runtime.context if runtime else None) or self.defaults

    def reasoner(self, node: str, settings: ConvCoAContext) -> Reasoner:
        """The reasoner of a node in this run; a model that a run names may take a while to build."""
        return self.reasoner_of(node, settings.model_of(node))

    def counting(self, node: str, config: RunnableConfig) -> RunnableConfig:
        """A node's configuration for its model calls, under which they are counted.

        The counter is kept until the node has succeeded: a node that fails commits no costs, and may be run again.
        """
        with self._lock:
            counter = self._counters.setdefault(_counter_key(node, config), UsageCounter())
        return merge_configs(config, {"callbacks": [counter.restarted()]})

    def costs(self, node: str, config: RunnableConfig) -> dict[str, NodeUsage]:
        """The costs of a node that has succeeded."""
        with self._lock:
            counter = self._counters.pop(_counter_key(node, config), None) or UsageCounter()
        return {node: counter.cost()}

    def forget_costs(self, config: RunnableConfig) -> None:
        """Drop the costs of a thread's abandoned turn."""
        with self._lock:
            for node in ("plan", "repair", "correct"):
                self._counters.pop(_counter_key(node, config), None)

    def checker(self, state: ConvCoAState, settings: ConvCoAContext, findings: Sequence[Finding] | None = None) -> Checker:
        """What verifies the sentences of this turn's answer; kept from node to node, so that no sentence is judged twice."""
        evidence = evidence_of(state["findings"] if findings is None else findings).documents
        history, confirmed = pairs_of(state), frozenset(state["reply"]["confirmed"])
        texts = tuple((str(document.id), document.page_content) for document in evidence)
        key = (texts, tuple(history), state["asked"], settings.threshold, confirmed)
        with self._lock:
            checker = self._checkers.get(key)
            if checker is None:
                checker = Checker(evidence, history, self.verifier, state["asked"], settings.threshold, confirmed)
                self._checkers[key] = checker
            return checker


def _counter_key(node: str, config: RunnableConfig) -> tuple[str, str]:
    """The thread, or without one the task, and the node."""
    thread = config.get("configurable", {}).get("thread_id")
    return str(thread or (config.get("metadata") or {}).get("langgraph_checkpoint_ns")), node


def as_node(
    parts: GraphParts, name: str, work: Callable[..., Any], awork: Callable[..., Awaitable[Any]] | None = None
) -> RunnableCallable:
    """A node of the graph from a function and its async twin; without a twin the function runs in a thread.

    Both are called as `work(parts, state, config, runtime)`, and the trace of the node gets the facts of its update.
    """

    def run(state: Any, config: RunnableConfig, runtime: Any = None) -> Any:
        return annotate(state, work(parts, state, config, runtime))

    async def arun(state: Any, config: RunnableConfig, runtime: Any = None) -> Any:
        if awork is None:
            return await asyncio.to_thread(run, state, config, runtime)
        return annotate(state, await awork(parts, state, config, runtime))

    return RunnableCallable(run, arun, name=name, trace=False)


def emit(event: dict[str, Any]) -> None:
    """Emit a progress event (`stream_mode="custom"`)."""
    get_stream_writer()(event)


def emit_progress(
    index: int, step: PlannedNode | ChainItem | ActionState, status: str, score: float = 0.0, reason: str = ""
) -> None:
    """The progress event of one sub-question: with its guess, and once it is settled with its answer and its evidence."""
    about = {"type": "sub_question", "index": index, "sub_question": step["sub_question"], "action": step["action"]}
    known = {name: value for name, value in step.items() if name in _OF_A_STEP}
    emit({**about, "status": status, "score": score, "reason": reason, **known})


def is_followed(config: RunnableConfig) -> bool:
    """Whether somebody streams the graph's messages."""
    callbacks: Any = config.get("callbacks")
    handlers = getattr(callbacks, "handlers", callbacks) or ()
    return any(isinstance(handler, StreamMessagesHandler) for handler in handlers)


def show(text: str, message_id: str) -> None:
    """Put a piece of the answer into the stream of messages."""
    push_message(cast("Any", AIMessageChunk(content=text, id=message_id)), state_key=None)
