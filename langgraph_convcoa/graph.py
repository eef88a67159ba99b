"""The graph: one conversational turn as a state machine (Pan et al. 2024b, section 3, Pan et al. 2024a, algorithm 1)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import BaseTool
from langgraph.graph import END, START, StateGraph
from langgraph.types import RetryPolicy
from pydantic import ValidationError

from langgraph_convcoa.actions.base import Action
from langgraph_convcoa.actions.knowledge import Retriever
from langgraph_convcoa.actions.runner import ActionRunner, as_actions, is_transient
from langgraph_convcoa.context import ConvCoAContext, context_of
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.memory.conversation_memory import ConversationMemory
from langgraph_convcoa.nodes.act import EXTRACTIVE_K, MODEL_K, aact, act, act_failed
from langgraph_convcoa.nodes.answer import answer
from langgraph_convcoa.nodes.approve import approve
from langgraph_convcoa.nodes.correct import acorrect, correct
from langgraph_convcoa.nodes.decisions import check_approve
from langgraph_convcoa.nodes.look import alook, look
from langgraph_convcoa.nodes.parts import GraphParts, as_node
from langgraph_convcoa.nodes.plan import after_plan, aplan, plan
from langgraph_convcoa.nodes.recall import recall
from langgraph_convcoa.nodes.remember import remember
from langgraph_convcoa.nodes.repair import arepair, repair
from langgraph_convcoa.nodes.verify import after_repair, after_verify, verify
from langgraph_convcoa.reasoning.base import Reasoner
from langgraph_convcoa.reasoning.extractive.reasoner import ExtractiveReasoner
from langgraph_convcoa.reasoning.wrapped import ChatModel
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.state import ActionState, ConvCoAInput, ConvCoAOutput, ConvCoAState
from langgraph_convcoa.verification.trained import as_verifier
from langgraph_convcoa.verification.verifier import Verifier

Graph = StateGraph[ConvCoAState, ConvCoAContext, ConvCoAInput, ConvCoAOutput]

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
_ASKING = ("plan", "correct", "repair")
"""The nodes that ask a model."""


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
    own = _reasoner(reasoner, model, base_url, load_in_8bit, adapter) or without_model
    defaults = _settings(context, settings_model)
    check_approve(defaults.approve, runner.actions)
    parts = GraphParts(
        actions=runner,
        reasoner_of=_reasoner_of(own, _models(models, model), base_url, load_in_8bit),
        without_model=without_model,
        verifier=as_verifier(verifier),
        memory=ConversationMemory(partial(_query_encoder, runner)),
        defaults=defaults,
        k=MODEL_K if own.plans_over_evidence else EXTRACTIVE_K,
    )
    graph: Graph = StateGraph(
        ConvCoAState, context_schema=settings_model, input_schema=ConvCoAInput, output_schema=ConvCoAOutput
    )
    names = list(runner.actions)
    deeper = [name for name in names if runner[name].deepens]
    mended = [name for name in names if runner[name].repairs]
    for name, (work, awork) in _NODES.items():
        if name != "repair" or mended:
            to = (*names, "verify", "remember") if name == "approve" else None
            graph.add_node(name, as_node(parts, name, work, awork), destinations=to)
    for name in names:
        graph.add_node(
            name,
            as_node(parts, name, act, aact),
            input_schema=ActionState,
            retry_policy=_LOOK_UP_AGAIN,
            error_handler=partial(act_failed, parts),
        )
        graph.add_edge(name, "verify")
    graph.add_edge(START, "recall")
    graph.add_edge("recall", "look")
    graph.add_edge("look", "plan")
    graph.add_conditional_edges("plan", partial(after_plan, parts), [*names, "verify", "approve"])
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


def _reasoner(
    reasoner: Reasoner | None,
    model: str | ChatModel | None,
    base_url: str | None,
    load_in_8bit: bool,
    adapter: str | Path | None,
) -> Reasoner | None:
    """The given reasoner, or one for the model; None if neither is given."""
    if reasoner is not None and not isinstance(reasoner, Reasoner):
        raise InputError(f"the reasoner must be a Reasoner with plan and correct, not {type(reasoner).__name__}")
    if base_url is not None and model is None:
        raise InputError("base_url needs a model: give the name under which that server knows it")
    if adapter is not None and model is None:
        raise InputError('adapter needs a model: give the one that it was trained on, "huggingface:PATH_OR_NAME"')
    if reasoner is not None and model is not None:
        raise InputError("give a model or a reasoner, not both")
    return reasoner if model is None else _chat_model(model, base_url, load_in_8bit, adapter)


def _chat_model(
    model: str | ChatModel, base_url: str | None, load_in_8bit: bool = False, adapter: str | Path | None = None
) -> Reasoner:
    from langgraph_convcoa.reasoning.chat_model import ChatModelReasoner

    return ChatModelReasoner(model, base_url=base_url, load_in_8bit=load_in_8bit, adapter=adapter)


def _models(models: Mapping[str, str | ChatModel] | None, model: str | ChatModel | None) -> Mapping[str, str | ChatModel]:
    """Check the models of single nodes."""
    if models and not isinstance(models, Mapping):
        raise InputError(f"models must be a dict from a node to its model, not {type(models).__name__}")
    if models and model is None:
        raise InputError("models goes with model, which the other nodes ask: give both")
    if unknown := [name for name in models or () if name not in _ASKING]:
        raise InputError(f"models: no node called {unknown[0]!r} asks a model; those that do are {', '.join(_ASKING)}")
    return models or {}


def _reasoner_of(
    own: Reasoner, models: Mapping[str, str | ChatModel], base_url: str | None, load_in_8bit: bool
) -> Callable[[str, str | None], Reasoner]:
    """Make the function that gives a node's reasoner: for the model that a run names (built once), else the graph's own."""
    of_nodes = {}
    for node, model in models.items():
        local = isinstance(model, str) and model.strip().startswith("huggingface:")
        of_nodes[node] = _chat_model(model, base_url, load_in_8bit and local)
    named: dict[str, Reasoner] = {}
    lock = threading.Lock()

    def reasoner_of(node: str, model: str | None) -> Reasoner:
        if not model:
            return of_nodes.get(node, own)
        with lock:
            if model not in named:
                named[model] = _chat_model(model, base_url)
            return named[model]

    return reasoner_of
