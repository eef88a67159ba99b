"""The costs, trace and progress events of a node. Nothing here changes an answer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from cachetools import LRUCache
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs
from langgraph._internal._runnable import RunnableCallable  # LangChain's own agents import it too
from langgraph.config import get_stream_writer
from langsmith.run_helpers import get_current_run_tree

from langgraph_convcoa.chain import ChainItem
from langgraph_convcoa.reasoning.usage import NodeUsage, UsageCounter
from langgraph_convcoa.state import ActionState, GraphParts, TurnRuntime, Update

_COUNTERS = 1_000
_LONGEST_FACT = 300


def annotate(given: Mapping[str, Any], update: Update) -> Update:
    """Add the facts of a node, such as `convcoa.1.status`, to the metadata of its trace; returns the update.

    If the client of the trace hides inputs, the sub-questions are left out.
    """
    run = get_current_run_tree()
    if run is None:
        return update
    facts: dict[str, Any] = {}
    chain = update.get("items") or update.get("chain") or (update.get("plan") or {}).get("nodes") or ()
    for number, item in enumerate(chain, start=1):
        for name in ("sub_question", "action", "status", "score", "evidence"):
            if name in item:
                facts[f"convcoa.{number}.{name}"] = item[name]
    findings = update.get("findings")
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


def emit(event: dict[str, Any]) -> None:
    """Emit a progress event (`stream_mode="custom"`)."""
    get_stream_writer()(event)


def emit_status(index: int, step: ChainItem | ActionState, **told: str) -> None:
    """Emit the progress of one sub-question: its guess, and once it is settled, its answer and evidence."""
    if index < 0:
        return  # The search for the question itself, in other words.
    shown = ("sub_question", "action", "guess_answer", "answer", "status", "score", "reason", "evidence", "paths")
    known = {name: value for name, value in step.items() if name in shown}
    emit({"type": "sub_question", "index": index, "score": 0.0, "reason": "", **known, **told})


def as_node(
    parts: GraphParts, name: str, work: Callable[..., Update], awork: Callable[..., Awaitable[Update]] | None = None
) -> RunnableCallable:
    """Make a node of the graph from a function and its async twin. Without a twin, the function runs in a thread.

    Both functions are called as `work(parts, state, config, runtime)`. `config` counts model calls. `runtime.context` has the
    settings of the run or of the graph. The node's costs join its update. A node that fails keeps its count for a resume.
    """
    counters: LRUCache[tuple[Any, str], UsageCounter] = LRUCache(_COUNTERS)
    lock = threading.Lock()

    def turn_of(state: Any, config: RunnableConfig) -> tuple[Any, str]:
        return config.get("configurable", {}).get("thread_id"), state.get("asked_message_id") or ""

    def begin(state: Any, config: RunnableConfig, runtime: TurnRuntime) -> tuple[UsageCounter, tuple[Any, ...]]:
        """The counter of the node, and the arguments of its function."""
        turn = turn_of(state, config)
        with lock:
            # The input of an action node has no message id, and its counter is not kept.
            counter = counters.setdefault(turn, UsageCounter()) if turn[1] else UsageCounter()
        runtime = runtime.override(context=parts.settings(runtime))
        return counter, (parts, state, merge_configs(config, {"callbacks": [counter]}), runtime)

    def finish(state: Any, config: RunnableConfig, update: Update, cost: NodeUsage) -> Update:
        with lock:
            counters.pop(turn_of(state, config), None)
        if name not in update.get("costs", {}):
            update = {**update, "costs": {**update.get("costs", {}), name: cost}}
        return annotate(state, update)

    def run(state: Any, config: RunnableConfig, runtime: TurnRuntime) -> Update:
        start, (counter, given) = time.perf_counter(), begin(state, config, runtime)
        update = work(*given)
        return finish(state, config, update, counter.cost(time.perf_counter() - start))

    async def arun(state: Any, config: RunnableConfig, runtime: TurnRuntime) -> Update:
        if awork is None:
            return await asyncio.to_thread(run, state, config, runtime)
        start, (counter, given) = time.perf_counter(), begin(state, config, runtime)
        update = await awork(*given)
        return finish(state, config, update, counter.cost(time.perf_counter() - start))

    return RunnableCallable(run, arun, name=name, trace=False)
