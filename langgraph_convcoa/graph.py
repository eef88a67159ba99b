"""The graph: one conversational turn as a state machine (Pan et al. 2024b, section 3, Pan et al. 2024a, algorithm 1).

Eight files tell what becomes of a question; read them in this order, each from top to bottom.

1. This file: `build_graph` wires the nodes, and the routers below it choose the next node.
2. `state.py`: the fields of the state. `merge_findings` numbers the evidence for prompts, checks and citations.
3. `nodes/plan.py`: `recall` reads the question, `look` searches for it, `plan` asks the model, `act` looks a sub-question up.
4. `reasoning/chat_model.py`: what a model is sent, and what is read from its reply.
5. `reasoning/prompts.md`: `plan_evidence` is the prompt of the first call, `correct` or `confirm` that of the second.
6. `nodes/verify.py`: `verify` judges the answer, or the guesses; `correct` asks the model for what is left open.
7. `verification/answer_check.py`: which sentences of an answer stand, and which citations they keep.
8. `nodes/answer.py`: `answer` numbers the citations, `remember` saves the round.

One call: `look` finds evidence (`look_first=True`), the model's reply is an answer, each of its sentences stands, and
`after_verify` goes to `answer` (`allow_draft_answer=True`). Two calls: the reply is a chain of two sub-questions, which are
looked up in parallel; `verify` finds them unsolved, since they have no guess, and `after_verify` goes to `correct`
(`max_corrections=1`), whose reply has their answers and the final answer. These settings are defaults (`context.py`).
A refused sentence, or one that says that something is missing: `after_verify` searches once more, for the question as restated
and for these sentences, and `verify` runs again. If the answer stands now, there is no second call. If more was found, the
model writes the whole answer again (prompt `correct`). Otherwise it is asked about the refused sentences only (`confirm`). If
a part of the answer was streamed, there is no second search. `unsupported` lists what is refused in the second reply.
Five other files do one thing each: `excerpts.py` cuts the evidence that a model reads, `client.py` adds a JSON schema to the
prompt, `parsing.py` reads an answer or a chain from the reply, `premise.py` picks the sentences that the verifier reads, and
`citation_marks.py` numbers the citations. The rest decides nothing at a first question: `nodes/approve.py` (a person decides
if asked to), `nodes/runtime.py` (costs, events, the settings of the run), `memory/` (earlier rounds), `actions/` (calls the
retriever), `chain.py` (statuses; an item starts as unsupported).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import BaseTool
from langgraph.graph import END, START, StateGraph
from langgraph.types import RetryPolicy, Send
from pydantic import ValidationError

from langgraph_convcoa.actions.base import Action
from langgraph_convcoa.actions.knowledge import Retriever
from langgraph_convcoa.actions.runner import ActionRunner, as_actions, is_transient
from langgraph_convcoa.chain import SOLVED, ChainItem, chain_item
from langgraph_convcoa.context import ConvCoAContext, check_approve, context_of
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.memory.conversation_memory import ConversationMemory
from langgraph_convcoa.nodes import answer, approve, plan, verify
from langgraph_convcoa.nodes.runtime import as_node
from langgraph_convcoa.reasoning.base import Reasoner
from langgraph_convcoa.reasoning.chat_model import ChatModelReasoner
from langgraph_convcoa.reasoning.extractive.reasoner import ExtractiveReasoner
from langgraph_convcoa.reasoning.models import ChatModel
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.state import (
    LOOKED,
    ActionState,
    ConvCoAInput,
    ConvCoAOutput,
    ConvCoAState,
    GraphParts,
    PlannedNode,
    clarification_of,
    merge_findings,
    pairs_of,
    question_of,
)
from langgraph_convcoa.verification.trained import as_verifier
from langgraph_convcoa.verification.verifier import Verifier

Graph = StateGraph[ConvCoAState, ConvCoAContext, ConvCoAInput, ConvCoAOutput]

_LOOK_UP_AGAIN = RetryPolicy(max_attempts=2, initial_interval=0.5, retry_on=is_transient)
_NODES = ("recall", "look", "plan", "approve", "verify", "repair", "correct", "answer", "remember")
_ASKING = ("plan", "correct", "repair")  # The nodes that ask a model.
_LOCAL: WeakValueDictionary[str, Reasoner] = WeakValueDictionary()  # Local models that runs name; all graphs share them.
_LOADING = threading.Lock()


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
    names = list(runner)
    if taken := [name for name in names if name in _NODES]:
        raise InputError(f"an action cannot be called {taken[0]!r}: a node of the graph has that name")
    settings_model = context_of(runner.values())
    own_documents = runner.get("knowledge_retrieval")
    without_model = ExtractiveReasoner(own_documents.encoder if own_documents else None)
    _check_models(model, models, base_url, adapter, reasoner)
    own = reasoner or without_model
    if model is not None:
        own = ChatModelReasoner(model, base_url=base_url, load_in_8bit=load_in_8bit, adapter=adapter)
    defaults = _settings(context, settings_model)
    check_approve(defaults.approve, runner)
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
    deeper = [name for name in names if runner[name].deepens]
    repaired = [name for name in names if runner[name].repairs]

    def add(name: str, work: Callable[..., Any], awork: Callable[..., Any] | None = None, **options: Any) -> None:
        graph.add_node(name, as_node(parts, name, work, awork), **options)

    add("recall", plan.recall)
    add("look", plan.look, plan.alook)
    add("plan", plan.plan, plan.aplan)
    add("approve", approve.approve)
    add("verify", verify.verify)
    if repaired:
        add("repair", plan.repair, plan.arepair)
    add("correct", verify.correct, verify.acorrect)
    add("answer", answer.answer)
    add("remember", answer.remember)
    for name in names:
        failed = partial(plan.act_failed, parts)
        add(name, plan.act, plan.aact, input_schema=ActionState, retry_policy=_LOOK_UP_AGAIN, error_handler=failed)

    to_answer = ["correct", "answer", "approve"]
    graph.add_edge(START, "recall")
    graph.add_edge("recall", "look")
    graph.add_edge("look", "plan")
    graph.add_conditional_edges("plan", partial(after_plan, parts), [*names, "verify", "answer", "approve"])
    graph.add_conditional_edges("approve", partial(after_approve, parts), [*names, "verify", "remember", "answer", "approve"])
    for name in names:
        graph.add_edge(name, "verify")
    first = [name for name in names if runner[name].looks_first]
    again = [*dict.fromkeys([*deeper, *first] if own.uses_model else names), *(["repair"] if repaired else [])]
    graph.add_conditional_edges("verify", partial(after_verify, parts), [*again, *to_answer])
    if repaired:
        graph.add_conditional_edges("repair", partial(after_repair, parts), [*dict.fromkeys((*repaired, *deeper)), *to_answer])
    graph.add_edge("correct", "answer")
    graph.add_edge("answer", "remember")
    graph.add_edge("remember", END)
    return graph


def after_plan(parts: GraphParts, state: ConvCoAState) -> list[Send] | str:
    """Route the plan to a person who approves it, or to its look-ups."""
    return "approve" if "plan" in state["approve"] else _planned(parts, state)


def after_approve(parts: GraphParts, state: ConvCoAState) -> list[Send] | str:
    """Route approved look-ups to their actions, and an approved plan to its look-ups. A rejected plan ends the turn."""
    if (approved := state.get("look_ups")) is not None:
        return [Send(look_up["action"], look_up) for look_up in approved] or "verify"
    return "remember" if state["reply"]["text"] else _planned(parts, state)


def _planned(parts: GraphParts, state: ConvCoAState) -> list[Send] | str:
    """Route each sub-question that is neither recalled nor looked up to its action; an empty chain stands for the question."""
    # If none is left, the answer is verified. A clarifying question is not verified.
    settings, made = parts.settings(), state["plan"]
    question = chain_item(next(iter(parts.actions)), made["optimized_question"])
    steps: dict[int, PlannedNode | ChainItem] = dict(enumerate(made["nodes"])) or {LOOKED: question}
    known = {entry["index"] for entry in (*plan.still_recalled(state), *state["findings"], *plan.looked_up(state))}
    look_ups = [_to_action(state, index, step, settings) for index, step in steps.items() if index not in known]
    return _with_approval(state, look_ups) or ("answer" if clarification_of(made) else "verify")


def after_verify(parts: GraphParts, state: ConvCoAState) -> list[Send] | str:
    """Route failed sub-questions to a repair, a deeper look or another action, and an open answer to a second search.

    If nothing is left to look up, `correct` or `answer` is next.
    """
    settings = parts.settings()
    if settings.max_corrections:
        first = state["depth"] == 1
        # Only a model can rewrite the input of an action (`repairs`), such as SQL. Without a model, another action is asked.
        has_model = parts.reasoner("repair", settings).uses_model
        if first and has_model and any(parts.actions[item.action].repairs for item in plan.broken_inputs(state)):
            return "repair"
        deeper = [*_deeper(parts, state, settings), *_searched_again(parts, state, settings)] if first else []
        again = [*deeper, *_other_actions(parts, state, settings)]
        if again:
            return _with_approval(state, again)
    return _to_answer(parts, state, settings)


def after_repair(parts: GraphParts, state: ConvCoAState) -> list[Send] | str:
    """Route the repaired inputs to their actions, together with the deeper looks."""
    settings, nodes = parts.settings(), state["plan"]["nodes"]
    again = [_to_action(state, index, nodes[index], settings) for index in state["repaired"] if index < len(nodes)]
    return _with_approval(state, [*again, *_deeper(parts, state, settings)]) or _to_answer(parts, state, settings)


def _to_answer(parts: GraphParts, state: ConvCoAState, settings: ConvCoAContext) -> str:
    """Route to `correct` if the answer must still be written. A model is not asked if it has nothing to read."""
    if state["reply"]["text"]:
        return "answer"
    something = any(one["documents"] for one in state["findings"])
    solved = any(item["status"] in SOLVED for item in state["items"])
    return "correct" if something or solved or not parts.reasoner("plan", settings).uses_model else "answer"


def _deeper(parts: GraphParts, state: ConvCoAState, settings: ConvCoAContext) -> list[Send]:
    """The second, deeper look of actions that have one (`deepens`): the web action reads whole pages only then."""
    return [
        _to_action(state, index, item, settings)
        for index, item in enumerate(state["items"])
        if item["status"] == "unsupported" and parts.actions[item["action"]].deepens
    ]


def _searched_again(parts: GraphParts, state: ConvCoAState, settings: ConvCoAContext) -> list[Send]:
    """The second search for an open answer, in the actions that looked the question up."""
    looked = [one["action"] for one in state["findings"] if one["depth"] == 0 and not one["error"]]
    # An action that takes one form of question only cannot take a sentence of an answer.
    forms = parts.actions.recognised(question_of(state), pairs_of(state)) if state["searches"] else {}
    names = [name for name in looked if name not in forms and not parts.actions[name].always_fresh]
    return [_to_action(state, LOOKED, chain_item(name, text), settings) for text in state["searches"] for name in names]


def _other_actions(parts: GraphParts, state: ConvCoAState, settings: ConvCoAContext) -> list[Send]:
    """Without a model, the actions are asked one after another until an answer is found."""
    reasoner, history = parts.reasoner("plan", settings), pairs_of(state)
    if reasoner.uses_model:
        return []
    forms = parts.actions.recognised(question_of(state), history)
    names = [name for name in parts.actions if forms.get(name, True)]
    if len(names) == 1:
        return []
    evidence = merge_findings(state["findings"])
    sends = []
    for index, (item, node) in enumerate(zip(state["items"], state["plan"]["nodes"], strict=False)):
        first = node["action"]
        others = [name for name in names if name != first]
        # An action that looks deeper was asked twice.
        asked = state["depth"] - 1 - parts.actions[first].deepens
        is_open = item["status"] in ("unsupported", "failed") and 0 <= asked < len(others)
        if is_open and not reasoner.finds(item["sub_question"], evidence.found[index].documents, history):
            sends.append(_to_action(state, index, {**item, "action": others[asked]}, settings))
    return sends


def _to_action(state: ConvCoAState, index: int, step: PlannedNode | ChainItem, settings: ConvCoAContext) -> Send:
    with_history = settings.of_action(step["action"]).get("use_history")
    if with_history is None:
        with_history = not state["plan"]["self_contained"]
    payload: ActionState = {
        "turn": state["asked_message_id"],
        "sent": time.time(),
        "index": index,
        "depth": state["depth"] + 1,
        "action": step["action"],
        "question": question_of(state),
        "sub_question": step["sub_question"],
        "guess_answer": step["guess_answer"],
        "action_input": step["action_input"],
        "history": state["history"] if with_history else [],
    }
    return Send(step["action"], payload)


def _with_approval(state: ConvCoAState, look_ups: list[Send]) -> list[Send]:
    """Return the look-ups, or one branch to `approve` with all of them if a person approves any of them."""
    if not {look_up.node for look_up in look_ups} & {*state["approve"]}:
        return look_ups
    needed = {name: state[name] for name in ("approve", "asked", "plan", "items")}
    return [Send("approve", {**needed, "look_ups": [look_up.arg for look_up in look_ups]})]


def _query_encoder(runner: ActionRunner) -> Encoder | None:
    """The first encoder of an action that can encode questions; None if there is none."""
    encoders = (action.encoder for action in runner.values())
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

    def reasoner_of(node: str, settings: ConvCoAContext) -> Reasoner:
        if not (name := settings.model_of(node)):
            return of_nodes.get(node, own)
        if name not in named:
            with _LOADING:
                named[name] = named.get(name) or _LOCAL.get(name) or ChatModelReasoner(name, base_url=base_url)
                if name.startswith("huggingface:"):
                    _LOCAL[name] = named[name]
        return named[name]

    return reasoner_of
