"""The graph: one conversational turn as a state machine (Pan et al. 2024b, section 3, Pan et al. 2024a, algorithm 1)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cachetools import LRUCache
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import merge_configs
from langchain_core.tools import BaseTool
from langgraph._internal._runnable import RunnableCallable  # LangChain's own agents import it too
from langgraph.graph import END, START, StateGraph
from langgraph.types import RetryPolicy
from pydantic import ValidationError

from langgraph_convcoa.actions.base import Action
from langgraph_convcoa.actions.knowledge import Retriever
from langgraph_convcoa.actions.runner import ActionRunner, as_actions, is_transient
from langgraph_convcoa.context import ConvCoAContext, check_approve, context_of
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.memory.conversation_memory import ConversationMemory
from langgraph_convcoa.nodes.answer import answer, remember
from langgraph_convcoa.nodes.approve import approve
from langgraph_convcoa.nodes.correct import acorrect, correct
from langgraph_convcoa.nodes.parts import GraphParts, TurnRuntime, annotate
from langgraph_convcoa.nodes.plan import aact, act, act_failed, after_plan, alook, aplan, look, plan, recall
from langgraph_convcoa.nodes.verify import after_repair, after_verify, arepair, repair, verify
from langgraph_convcoa.reasoning.base import Reasoner
from langgraph_convcoa.reasoning.chat_model import ChatModelReasoner
from langgraph_convcoa.reasoning.extractive.reasoner import ExtractiveReasoner
from langgraph_convcoa.reasoning.models import ChatModel
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.state import ActionState, ConvCoAInput, ConvCoAOutput, ConvCoAState, NodeUsage, UsageCounter
from langgraph_convcoa.verification.trained import as_verifier
from langgraph_convcoa.verification.verifier import Verifier

Graph = StateGraph[ConvCoAState, ConvCoAContext, ConvCoAInput, ConvCoAOutput]

_COUNTERS = 1_000
_LOOK_UP_AGAIN = RetryPolicy(max_attempts=2, initial_interval=0.5, retry_on=is_transient)
_NODES: dict[str, tuple[Callable[..., Any], Callable[..., Any] | None]] = {
    "recall": (recall, None),
    "look": (look, alook),
    "plan": (plan, aplan),
    "approve": (approve, None),
    "verify": (verify, None),
    "repair": (repair, arepair),
    "correct": (correct, acorrect),
    "answer": (answer, None),
    "remember": (remember, None),
}
"""The nodes other than the action nodes: the function, and its async twin if the node asks a model or an action."""
_ASKING = ("plan", "correct", "repair")  # The nodes that ask a model.


def build_graph(
    *,
    model: str | ChatModel | None = None,
    models: Mapping[str, str | ChatModel] | None = None,
    base_url: str | None = None,
    load_in_8bit: bool = False,
    adapter: str | Path | None = None,
    retriever: Retriever | None = None,
    actions: Sequence[Action | BaseTool | BaseRetriever] | None = None,
    reasoner: Reasoner | None = None,
    context: ConvCoAContext | dict[str, Any] | None = None,
    verifier: str | Verifier = "default",
) -> Graph:
    """Build the graph of a conversational turn, uncompiled: compile it with the checkpointer of your choice.

    recall -> look -> plan -> one node per action, in parallel -> verify -> correct -> answer -> remember

    Args:
        model: A LangChain chat model, also one with fallbacks, retries, bound arguments or configurable fields, or a name such
            as "openai:gpt-4.1-mini". None: answers are extracted from the documents.
        models: Other models for single nodes, `plan`, `correct` and `repair`, such as `{"correct": "openai:gpt-4.1"}`.
        base_url: An OpenAI-compatible server that serves the models given by name.
        load_in_8bit: Load a local "huggingface:" model in 8 bits.
        adapter: Folder of a LoRA adapter for a local "huggingface:" model, such as `convcoa train-planner` makes.
        retriever: Any LangChain retriever, or a chain from a question to documents; becomes the action `knowledge_retrieval`.
        actions: Further actions, or all actions if `retriever` is None. LangChain tools and retrievers become actions.
        reasoner: Plans, corrects and answers instead of `model`.
        context: Settings for runs that give no settings.
        verifier: The judge of each sentence of an answer: "default" (the package's own small model), "lexical" (shared words),
            the name or folder of a sentence-transformers `CrossEncoder` such as "cross-encoder/nli-deberta-v3-base", or a
            `Verifier`.

    Returns:
        A `StateGraph` whose input is `{"question": ...}` or `{"messages": [...]}` and whose output has `answer`, `citations`,
        `chain`, `knowledge_set`, `usage` and `messages`.

    Raises:
        InputError: Neither a retriever nor an action is given, two actions share a name, or `models` or `approve` has a name
            that the graph does not have.
        ModelError: The model cannot be built.

    Example:
        >>> from langchain_core.documents import Document
        >>> from langchain_core.retrievers import BaseRetriever
        >>> class Fixed(BaseRetriever):
        ...     def _get_relevant_documents(self, query, *, run_manager):
        ...         return [Document("John Hopfield described the network in 1982.", id="hopfield")]
        >>> graph = build_graph(retriever=Fixed()).compile()
        >>> out = graph.invoke({"question": "When did Hopfield describe the network?"})
        >>> out["citations"][0]["id"]
        'hopfield'
    """
    runner = ActionRunner(as_actions(retriever, actions))
    if taken := [name for name in runner.actions if name in _NODES]:
        raise InputError(f"an action cannot be called {taken[0]!r}: a node of the graph has that name")
    settings_model = context_of(runner.actions.values())
    own_documents = runner.actions.get("knowledge_retrieval")
    without_model = ExtractiveReasoner(own_documents.encoder if own_documents else None)
    _check_models(model, models, base_url, adapter, reasoner)
    own = reasoner or without_model
    if model is not None:
        own = ChatModelReasoner(model, base_url=base_url, load_in_8bit=load_in_8bit, adapter=adapter)
    defaults = _settings(context, settings_model)
    check_approve(defaults.approve, runner.actions)
    parts = GraphParts(
        actions=runner,
        reasoner=_reasoner_of(own, models or {}, base_url, load_in_8bit),
        without_model=without_model,
        verifier=as_verifier(verifier),
        memory=ConversationMemory(partial(_query_encoder, runner)),
        defaults=defaults,
    )
    graph: Graph = StateGraph(
        ConvCoAState, context_schema=settings_model, input_schema=ConvCoAInput, output_schema=ConvCoAOutput
    )
    names = list(runner.actions)
    deeper = [name for name in names if runner[name].deepens]
    mended = [name for name in names if runner[name].repairs]
    for name, (work, awork) in _NODES.items():
        if name != "repair" or mended:
            to = (*names, "verify", "answer", "remember") if name == "approve" else None
            graph.add_node(name, _as_node(parts, name, work, awork), destinations=to)
    for name in names:
        node, failed = _as_node(parts, name, act, aact), partial(act_failed, parts)
        graph.add_node(name, node, input_schema=ActionState, retry_policy=_LOOK_UP_AGAIN, error_handler=failed)
        graph.add_edge(name, "verify")
    graph.add_edge(START, "recall")
    graph.add_edge("recall", "look")
    graph.add_edge("look", "plan")
    graph.add_conditional_edges("plan", partial(after_plan, parts), [*names, "verify", "answer", "approve"])
    # Without a model, a sub-question that one action cannot answer goes to the next action.
    again = deeper if own.plans_over_evidence else names
    on = ["correct", "answer", "approve"]
    graph.add_conditional_edges("verify", partial(after_verify, parts), [*again, *(["repair"] if mended else []), *on])
    if mended:
        graph.add_conditional_edges("repair", partial(after_repair, parts), [*dict.fromkeys((*mended, *deeper)), *on])
    graph.add_edge("correct", "answer")
    graph.add_edge("answer", "remember")
    graph.add_edge("remember", END)
    return graph


def _as_node(
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


def _query_encoder(runner: ActionRunner) -> Encoder | None:
    """The first encoder of an action that can encode questions; None if there is none."""
    encoders = (action.encoder for action in runner.actions.values())
    return next((encoder for encoder in encoders if hasattr(encoder, "encode_queries")), None)


def _settings(context: ConvCoAContext | dict[str, Any] | None, model: type[ConvCoAContext]) -> ConvCoAContext:
    if isinstance(context, ConvCoAContext):
        return context
    try:
        return model.model_validate(context or {})
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"the setting {'.'.join(map(str, first['loc'])) or 'context'!r}: {first['msg']}") from error


def _check_models(
    model: str | ChatModel | None,
    models: Mapping[str, str | ChatModel] | None,
    base_url: str | None,
    adapter: str | Path | None,
    reasoner: Reasoner | None,
) -> None:
    """Check the arguments of `build_graph` that say who plans and corrects."""
    if reasoner is not None and not isinstance(reasoner, Reasoner):
        raise InputError(f"the reasoner must be a Reasoner with plan and correct, not {type(reasoner).__name__}")
    if base_url is not None and model is None:
        raise InputError("base_url needs a model: give the name under which that server knows it")
    if adapter is not None and model is None:
        raise InputError('adapter needs a model: give the one that it was trained on, "huggingface:PATH_OR_NAME"')
    if reasoner is not None and model is not None:
        raise InputError("give a model or a reasoner, not both")
    if models and not isinstance(models, Mapping):
        raise InputError(f"models must be a dict from a node to its model, not {type(models).__name__}")
    if models and model is None:
        raise InputError("models goes with model, which the other nodes ask: give both")
    if unknown := [name for name in models or () if name not in _ASKING]:
        raise InputError(f"models: no node called {unknown[0]!r} asks a model; those that do are {', '.join(_ASKING)}")


def _reasoner_of(
    own: Reasoner, models: Mapping[str, str | ChatModel], base_url: str | None, load_in_8bit: bool
) -> Callable[[str, ConvCoAContext], Reasoner]:
    """Make the function that gives a node's reasoner: for the model that a run names (built once), else the graph's own."""
    of_nodes = {}
    for node, model in models.items():
        local = isinstance(model, str) and model.strip().startswith("huggingface:")
        of_nodes[node] = ChatModelReasoner(model, base_url=base_url, load_in_8bit=load_in_8bit and local)
    named: dict[str, Reasoner] = {}
    lock = threading.Lock()

    def reasoner_of(node: str, settings: ConvCoAContext) -> Reasoner:
        if not (name := settings.model_of(node)):
            return of_nodes.get(node, own)
        with lock:
            if name not in named:
                named[name] = ChatModelReasoner(name, base_url=base_url)
            return named[name]

    return reasoner_of
