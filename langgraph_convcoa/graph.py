"""The graph: one conversational turn as a state machine (Pan et al. 2024b, section 3, Pan et al. 2024a, algorithm 1)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.retrievers import BaseRetriever
from langgraph.graph import END, START, StateGraph
from langgraph.types import RetryPolicy
from pydantic import ValidationError

from langgraph_convcoa.actions.base import Action
from langgraph_convcoa.actions.knowledge import KnowledgeRetrieval
from langgraph_convcoa.actions.runner import ActionRunner, is_transient
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.nodes.act import EXTRACTIVE_K, MODEL_K
from langgraph_convcoa.nodes.turn import Turn
from langgraph_convcoa.reasoning.base import Reasoner
from langgraph_convcoa.reasoning.extractive.reasoner import ExtractiveReasoner
from langgraph_convcoa.reasoning.models import ModelCallError
from langgraph_convcoa.state import ActionState, ConvCoAInput, ConvCoAOutput, ConvCoAState

Graph = StateGraph[ConvCoAState, ConvCoAContext, ConvCoAInput, ConvCoAOutput]


def build_graph(
    *,
    model: str | BaseChatModel | None = None,
    base_url: str | None = None,
    load_in_8bit: bool = False,
    retriever: BaseRetriever | None = None,
    actions: Sequence[Action] | None = None,
    reasoner: Reasoner | None = None,
    context: ConvCoAContext | dict[str, Any] | None = None,
) -> Graph:
    """Build the graph of a conversational turn, uncompiled: compile it with the checkpointer of your choice.

    recall -> plan -> one node per action, in parallel -> verify -> correct -> answer -> remember

    Args:
        model: A LangChain chat model or a name such as "openai:gpt-4.1-mini". None: answers are extracted from the documents.
        base_url: An OpenAI-compatible server that serves `model`.
        load_in_8bit: Load a local "huggingface:" model in 8 bits.
        retriever: Any LangChain retriever; becomes the action `knowledge_retrieval`.
        actions: Further actions, or all of them.
        reasoner: Plans, corrects and answers instead of `model`.
        context: Settings of runs that give none.

    Returns:
        A `StateGraph` whose input is `{"question": ...}` or `{"messages": [...]}` and whose output has `answer`, `citations`,
        `chain`, `knowledge_set`, `usage` and `messages`.

    Raises:
        InputError: Neither a retriever nor an action is given, or two actions share a name.
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
    _check_types(retriever, actions, reasoner)
    settings = _settings(context)
    if base_url is not None and model is None:
        raise InputError("base_url needs a model: give the name under which that server knows it")
    if reasoner is not None and model is not None:
        raise InputError("give a model or a reasoner, not both")
    given = [*([KnowledgeRetrieval(retriever)] if retriever is not None else []), *(actions or [])]
    if not given:
        raise InputError("give a retriever, or at least one action, to look things up with")
    runner = ActionRunner(given)
    own = reasoner or _reasoner(model, base_url, load_in_8bit, retriever)
    k = EXTRACTIVE_K if isinstance(own, ExtractiveReasoner) else MODEL_K
    turn = Turn(runner, _reasoners(own, base_url), settings, k)
    names = list(runner.actions)
    if taken := _NODES & set(names):
        raise InputError(f"an action cannot be called {taken.pop()!r}: a node of the graph has that name")

    ask_again = RetryPolicy(max_attempts=2, initial_interval=0.5, retry_on=_may_ask_again)
    look_again = RetryPolicy(max_attempts=2, initial_interval=0.5, retry_on=is_transient)
    graph: Graph = StateGraph(
        ConvCoAState, context_schema=ConvCoAContext, input_schema=ConvCoAInput, output_schema=ConvCoAOutput
    )
    graph.add_node("recall", turn.recall)
    graph.add_node("plan", turn.planning.node(), retry_policy=ask_again)
    for name in names:
        graph.add_node(
            name,
            turn.action_nodes.node(name),
            input_schema=ActionState,
            retry_policy=look_again,
            error_handler=turn.action_nodes.failed,
        )
    graph.add_node("verify", turn.verify)
    graph.add_node("correct", turn.correction.node())
    graph.add_node("answer", turn.answer_node(), retry_policy=ask_again)
    graph.add_node("remember", turn.remember)

    graph.add_edge(START, "recall")
    graph.add_edge("recall", "plan")
    graph.add_conditional_edges("plan", turn.planning.after, [*names, "verify"])
    for name in names:
        graph.add_edge(name, "verify")
    deeper = [name for name in names if runner.deepens(name)]
    mended = [name for name in names if runner.repairs(name)]
    if mended:
        graph.add_node("repair", turn.repair.node())
        graph.add_conditional_edges("repair", turn.after_repair, [*dict.fromkeys((*mended, *deeper)), "correct", "answer"])
    after_verify = [*deeper, *(["repair"] if mended else []), "correct", "answer"]
    graph.add_conditional_edges("verify", turn.after_verify, after_verify)
    graph.add_edge("correct", "answer")
    graph.add_edge("answer", "remember")
    graph.add_edge("remember", END)
    return graph


_NODES = {"recall", "plan", "verify", "repair", "correct", "answer", "remember"}


def _check_types(retriever: object, actions: object, reasoner: object) -> None:
    if retriever is not None and not isinstance(retriever, BaseRetriever):
        raise InputError(f"the retriever must be a LangChain BaseRetriever, not {type(retriever).__name__}")
    if actions is not None and not isinstance(actions, Sequence):
        raise InputError(f"actions must be a list of actions, not {type(actions).__name__}")
    if reasoner is not None and not isinstance(reasoner, Reasoner):
        raise InputError(f"the reasoner must have plan, correct and answer, plain and async, not {type(reasoner).__name__}")


def _settings(context: ConvCoAContext | dict[str, Any] | None) -> ConvCoAContext:
    if isinstance(context, ConvCoAContext):
        return context
    try:
        return ConvCoAContext.model_validate(context or {})
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"the setting {'.'.join(map(str, first['loc'])) or 'context'!r}: {first['msg']}") from error


def _reasoner(
    model: str | BaseChatModel | None, base_url: str | None, load_in_8bit: bool, retriever: BaseRetriever | None
) -> Reasoner:
    if model is None:
        return ExtractiveReasoner(getattr(retriever, "encoder", None))
    from langgraph_convcoa.reasoning.chat_model import ChatModelReasoner

    return ChatModelReasoner(model, base_url=base_url, load_in_8bit=load_in_8bit)


def _reasoners(own: Reasoner, base_url: str | None) -> Callable[[str | None], Reasoner]:
    """The graph's own reasoner, or one for a model that a run names in its context, built once a name."""
    named: dict[str, Reasoner] = {}
    lock = threading.Lock()

    def reasoner_for(model: str | None) -> Reasoner:
        if not model:
            return own
        with lock:
            if model not in named:
                named[model] = _reasoner(model, base_url, False, None)
            return named[model]

    return reasoner_for


def _may_ask_again(error: Exception) -> bool:
    return isinstance(error, ModelCallError) and error.transient
