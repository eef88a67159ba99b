"""What every node has at run time: the parts of its graph, its costs and trace, and the events that it emits."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from cachetools import LRUCache, TTLCache
from langchain_core.messages import AIMessageChunk
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs
from langgraph._internal._runnable import RunnableCallable  # LangChain's own agents import it too
from langgraph.config import get_stream_writer
from langgraph.graph.message import push_message
from langgraph.pregel._messages import StreamMessagesHandler
from langgraph.runtime import Runtime, get_runtime
from langgraph.types import Command
from langsmith.run_helpers import get_current_run_tree

from langgraph_convcoa.actions.runner import ActionRunner
from langgraph_convcoa.chain import ChainItem
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.memory.conversation_memory import ConversationMemory
from langgraph_convcoa.reasoning.base import Reasoner
from langgraph_convcoa.reasoning.streaming import SentenceGate
from langgraph_convcoa.reasoning.usage import NodeUsage, UsageCounter
from langgraph_convcoa.state import ActionState, ConvCoAState, merge_findings, pairs_of, question_of
from langgraph_convcoa.verification.answer_check import Checker
from langgraph_convcoa.verification.verifier import Verifier

Update = dict[str, Any]  # The part of the state that a node changes.
TurnRuntime = Runtime[ConvCoAContext]  # LangGraph's runtime: the context of the run and its store.
_CHECKERS, _CHECKER_SECONDS = 32, 120.0
_COUNTERS = 1_000
_LONGEST_FACT = 300


@dataclass(frozen=True)
class GraphParts:
    """The parts that the nodes of one graph share."""

    actions: ActionRunner
    reasoner: Callable[[str, ConvCoAContext], Reasoner]  # (node, settings) -> its reasoner; may take a while to build a model.
    without_model: Reasoner  # Answers with quotes if the model is down.
    verifier: Verifier
    memory: ConversationMemory
    defaults: ConvCoAContext  # Settings for runs that give no settings.
    _checkers: TTLCache[Any, Checker] = field(default_factory=lambda: TTLCache(_CHECKERS, _CHECKER_SECONDS), repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def settings(self, runtime: TurnRuntime | None = None) -> ConvCoAContext:
        """The settings of the present run. Nodes pass their runtime; routers have none."""
        # There is no run while a person edits the state between two nodes.
        runtime = runtime or get_runtime(ConvCoAContext)
        return (runtime.context if runtime else None) or self.defaults

    def checker(self, state: ConvCoAState, settings: ConvCoAContext) -> Checker:
        """The checker of this turn's answer. The nodes of a turn share it, so that no sentence is judged twice."""
        evidence, history = merge_findings(state["findings"]).documents, pairs_of(state)
        texts = tuple((str(document.id), document.page_content) for document in evidence)
        key = (texts, tuple(history), question_of(state), settings.threshold)
        with self._lock:
            new = Checker(evidence, history, self.verifier, question_of(state), settings.threshold)
            return self._checkers.setdefault(key, new)

    def gate(
        self, state: ConvCoAState, settings: ConvCoAContext, config: RunnableConfig, reviewed: set[str]
    ) -> SentenceGate | None:
        """The gate that streams the answer; None without a stream of messages, or if a person approves a `reviewed` node."""
        if not is_followed(config) or reviewed & {*state["approve"]}:
            return None
        return SentenceGate(self.checker(state, settings), show, state["reply"]["message_id"])


def annotate(given: Mapping[str, Any], update: Any) -> Any:
    """Add the facts of a node, such as `convcoa.1.status`, to the metadata of its trace; returns the update.

    If the client of the trace hides inputs, the sub-questions are left out.
    """
    changed = update.update if isinstance(update, Command) else update
    run = get_current_run_tree()
    if run is None or not isinstance(changed, Mapping):
        return update
    facts: dict[str, Any] = {}
    chain = changed.get("items") or changed.get("chain") or (changed.get("plan") or {}).get("nodes") or ()
    for number, item in enumerate(chain, start=1):
        for name in ("sub_question", "action", "status", "score", "evidence"):
            if name in item:
                facts[f"convcoa.{number}.{name}"] = item[name]
    findings = changed.get("findings")
    # `remember` and `recall` write an `Overwrite`, which is no list.
    if not chain and isinstance(findings, list) and findings:
        facts["convcoa.sub_question"] = given.get("sub_question") or given.get("asked") or ""
        facts["convcoa.action"] = ", ".join(dict.fromkeys(one["action"] for one in findings))
        facts["convcoa.status"] = "found" if any(not one["error"] for one in findings) else "failed"
        facts["convcoa.evidence"] = [str(document.id)[:_LONGEST_FACT] for one in findings for document in one["documents"]]
    hidden = getattr(run.client, "_hide_inputs", False)
    short = {name: fact[:_LONGEST_FACT] if isinstance(fact, str) else fact for name, fact in facts.items()}
    run.add_metadata({name: fact for name, fact in short.items() if not (hidden and name.endswith("sub_question"))})
    return update


def is_followed(config: RunnableConfig) -> bool:
    """Whether somebody follows the stream of messages of a run."""
    callbacks: Any = config.get("callbacks")
    return any(isinstance(handler, StreamMessagesHandler) for handler in getattr(callbacks, "handlers", callbacks) or ())


def emit(event: dict[str, Any]) -> None:
    """Emit a progress event (`stream_mode="custom"`)."""
    get_stream_writer()(event)


def emit_status(index: int, step: ChainItem | ActionState, **told: str) -> None:
    """Emit the progress of one sub-question, with its guess, and with its answer and evidence once it is settled."""
    shown = ("sub_question", "action", "guess_answer", "answer", "status", "score", "reason", "evidence", "paths")
    known = {name: value for name, value in step.items() if name in shown}
    emit({"type": "sub_question", "index": index, "score": 0.0, "reason": "", **known, **told})


def show(text: str, message_id: str) -> None:
    """Put a piece of the answer into the stream of messages."""
    push_message(cast("Any", AIMessageChunk(content=text, id=message_id)), state_key=None)


def as_node(
    parts: GraphParts, name: str, work: Callable[..., Any], awork: Callable[..., Awaitable[Any]] | None = None
) -> RunnableCallable:
    """Make a node of the graph from a function and its async twin. Without a twin, the function runs in a thread.

    Both are called as `work(parts, state, config, runtime)` with a config that counts model calls. The costs of the node are
    added to its update, and its facts to the trace. If a node fails, its counter is kept until the turn is resumed.
    """
    counters: LRUCache[tuple[Any, str], UsageCounter] = LRUCache(_COUNTERS)
    lock = threading.Lock()

    def turn_of(state: Any, config: RunnableConfig) -> tuple[Any, str]:
        return config.get("configurable", {}).get("thread_id"), state.get("asked_message_id") or ""

    def counter_of(state: Any, config: RunnableConfig) -> UsageCounter:
        turn = turn_of(state, config)
        with lock:
            # The input of an action node has no message id, and its counter is not kept.
            return counters.setdefault(turn, UsageCounter()) if turn[1] else UsageCounter()

    def finish(state: Any, config: RunnableConfig, update: Any, cost: NodeUsage) -> Any:
        with lock:
            counters.pop(turn_of(state, config), None)
        if isinstance(update, dict) and name not in update.get("costs", {}):
            update = {**update, "costs": {**update.get("costs", {}), name: cost}}
        return annotate(state, update)

    def run(state: Any, config: RunnableConfig, runtime: TurnRuntime) -> Any:
        start, counter = time.perf_counter(), counter_of(state, config)
        update = work(parts, state, merge_configs(config, {"callbacks": [counter]}), runtime)
        return finish(state, config, update, counter.cost(time.perf_counter() - start))

    async def arun(state: Any, config: RunnableConfig, runtime: TurnRuntime) -> Any:
        if awork is None:
            return await asyncio.to_thread(run, state, config, runtime)
        start, counter = time.perf_counter(), counter_of(state, config)
        update = await awork(parts, state, merge_configs(config, {"callbacks": [counter]}), runtime)
        return finish(state, config, update, counter.cost(time.perf_counter() - start))

    return RunnableCallable(run, arun, name=name, trace=False)
