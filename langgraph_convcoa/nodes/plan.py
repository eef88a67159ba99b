"""The nodes up to the evidence: `recall`, `look` and `plan`, the node of each action, and `repair`.

The conversation is empty at the first question. A retriever gets the sub-question with its guess, `k`, `neighbours` and the
history. If an action refuses its input, such as invalid SQL, `repair` has the model rewrite the input once.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.errors import NodeError
from langgraph.types import Command, Overwrite

from langgraph_convcoa.actions.base import ActionInputError, ActionRequest
from langgraph_convcoa.actions.runner import Look, reason_of
from langgraph_convcoa.chain import ActionChain
from langgraph_convcoa.context import ConvCoAContext, check_approve
from langgraph_convcoa.errors import InputError, ModelError
from langgraph_convcoa.memory import sharing
from langgraph_convcoa.memory.evidence import RecalledAnswer, integrate, recall_answers
from langgraph_convcoa.memory.knowledge_set import ContextualKnowledgeSet, Round, asks_back, is_question_back
from langgraph_convcoa.nodes.runtime import annotate, emit, emit_status
from langgraph_convcoa.reasoning.base import BrokenInput, PlanRequest, RepairRequest
from langgraph_convcoa.reasoning.usage import node_usage
from langgraph_convcoa.state import (
    LOOKED,
    ActionState,
    ConvCoAState,
    Finding,
    GraphParts,
    Plan,
    PlannedNode,
    TurnRuntime,
    Update,
    empty_reply,
    finding,
    merge_findings,
    pairs_of,
    question_of,
)
from langgraph_convcoa.text.clean import clean, cut_answer, cut_field, flat
from langgraph_convcoa.text.questions import words_agree
from langgraph_convcoa.text.words import content_words, words

LONGEST_QUESTION = 20_000  # Maximum number of characters of a question.
_FEWEST_WORDS = 4  # A shorter question, such as "The second?", answers a clarifying question.
_REMEMBERED_PAIRS, _REMEMBERED_CHARACTERS = 20, 2_000
MODEL_K = 5  # Pieces of evidence for a model to read (Pan et al. 2024b, appendix H).
EXTRACTIVE_K = 10  # Pieces of evidence without a model. They cost no tokens, and the best sentence is often further down.
_SHARED_ROUNDS, _LONGEST_CLARIFICATION = 50, 500
_log = logging.getLogger(__name__)


def recall(parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime) -> Update:
    """Read the question, load the relevant history and clear what an abandoned turn left; no model call."""
    settings = runtime.context
    knowledge = ContextualKnowledgeSet.load(state.get("knowledge_set"))
    back = next((entry["answer"] for entry in knowledge.rounds if asks_back(entry)), "" if knowledge.rounds else None)
    asked = read_conversation(state.get("question"), state.get("messages", []), state.get("asked_message_id"), back)
    if asked.asked_back and any(parts.actions.recognised(asked.question, asked.history).values()):
        asked = asked._replace(asked_back="")  # The question is clear by itself, such as "List my documents."
    question = question_of({"asked": asked.question, "asked_back": asked.asked_back})
    knowledge = knowledge.without_question_back()
    knowledge.seed(asked.history)
    shared: list[Round] = []
    if settings.share_knowledge:
        store, user, thread = sharing.parts_of(runtime.store, settings.user_id, config)
        shared = sharing.shared_rounds(store, user, but_of=thread, limit=_SHARED_ROUNDS)
    view, history = parts.memory.recollect(
        knowledge.after(shared),
        question,
        asked.history,
        budget_tokens=settings.history_budget_tokens,
        capacity=settings.memory_capacity,
    )
    return {
        "asked": asked.question,
        "asked_back": asked.asked_back,
        "asked_message_id": asked.message_id,
        # `approve` is kept in the state, because a turn is often resumed without the settings of its start.
        "approve": check_approve(settings.approve, parts.actions, config),
        "history": history,
        "knowledge_view": view,
        "shared": shared,
        "recalled": [],
        "reused": 0,
        "messages": asked.removals,
        # `self_contained`: the sub-questions are clear without the conversation. Before the plan, a follow-up is not.
        "plan": {"optimized_question": question, "draft_answer": "", "self_contained": not history, "nodes": []},
        "findings": Overwrite([]),
        "items": [],
        "unsolved": [],
        "refused": [],
        "searches": [],
        "depth": 0,
        "repaired": [],
        "reply": empty_reply(),
    }


class TurnInput(NamedTuple):
    """The question of a turn, the id of its message (a new id if it has none), and the earlier pairs, oldest first.

    `removals` are the messages of abandoned turns to take out, in the form that the messages reducer reads. `asked_back` is
    the earlier question with the clarifying question that the turn's message answers, or "".
    """

    question: str
    message_id: str
    history: list[tuple[str, str]]
    removals: list[dict[str, str]]
    asked_back: str = ""


def read_conversation(
    question: str | None, messages: Sequence[AnyMessage], abandoned: str | None = None, back: str | None = None
) -> TurnInput:
    """Find the question and the answered turns before it.

    `question` wins. Without it, the last messages must be the user's; several in a row are one question. The message of an
    unfinished turn (`abandoned` is its id) and an earlier message that is empty or too long are discarded. After a clarifying
    question, the user's next message continues the earlier question. `back` is as for `is_question_back`.
    Raises InputError if there is no question, or an empty one, or one longer than `LONGEST_QUESTION`.
    """
    history: list[tuple[str, str]] = []
    removals: list[dict[str, str]] = []
    pending: list[HumanMessage | AIMessage] = []
    last = messages[-1] if messages else None
    for message in messages:
        if isinstance(message, HumanMessage):
            asked_now = question is None and message is last
            unusable = not 0 < len(message.text.strip()) <= LONGEST_QUESTION
            if not asked_now and message.id and (message.id == abandoned or unusable):
                # The removal is a dict, so that a message stream does not show it.
                removals.append({"role": "remove", "content": "", "id": message.id})
            else:
                pending.append(message)
        elif isinstance(message, AIMessage) and pending and message.text:
            if is_question_back(message, back):
                pending.append(message)
                continue
            # The clarifying question is left out: nothing has verified it, and the history is evidence.
            pair = (" ".join(m.text.strip() for m in pending if isinstance(m, HumanMessage)), message.text)
            history.append((clean(pair[0][:_REMEMBERED_CHARACTERS]), clean(pair[1][:_REMEMBERED_CHARACTERS])))
            pending = []
    message_id = str(uuid.uuid4())
    begin = max((n for n, message in enumerate(pending, 1) if isinstance(message, AIMessage)), default=0)
    asked_back, pending = "\n".join(dict.fromkeys(m.text.strip() for m in pending[:begin])), pending[begin:]
    if question is None:
        if not isinstance(last, HumanMessage):
            raise InputError('give {"question": "..."} or {"messages": [...]} whose last message is the user\'s')
        message_id = last.id or message_id
        joined = "\n".join(m.text.strip() for m in pending)
        question = joined if last.text.strip() and len(joined) <= LONGEST_QUESTION else last.text
    if not isinstance(question, str):
        raise InputError(f"the question must be text, not {type(question).__name__}")
    if not question.strip():
        raise InputError("the question is empty")
    if len(question) > LONGEST_QUESTION:
        raise InputError(
            f"the question has {len(question):,} characters, {LONGEST_QUESTION:,} at most: put long texts into the documents"
        )
    # A question of its own, such as "Forget it. Who built the mill?", does not answer the clarifying question.
    if question.rstrip().endswith("?") and len(words(question)) >= _FEWEST_WORDS:
        asked_back = ""
    return TurnInput(clean(question).strip(), message_id, history[-_REMEMBERED_PAIRS:], removals, clean(asked_back))


def look(parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime) -> Update:
    """Look the question up as it stands, in the actions that are free and fast (`looks_first`); no model call."""
    settings = runtime.context
    if not (requests := _first_requests(parts, state, settings)):
        return {}
    limits = settings.action_timeout, state["asked_message_id"], settings.max_concurrency
    return _look_update(parts, state, settings, parts.actions.look(requests, *limits))


async def alook(parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime) -> Update:
    """As `look`."""
    settings = runtime.context
    if not (requests := await asyncio.to_thread(_first_requests, parts, state, settings)):
        return {}
    limits = settings.action_timeout, state["asked_message_id"], settings.max_concurrency
    return await asyncio.to_thread(_look_update, parts, state, settings, await parts.actions.alook(requests, *limits))


def _first_requests(parts: GraphParts, state: ConvCoAState, settings: ConvCoAContext) -> dict[str, ActionRequest]:
    """The request to each action that is asked before the plan: those that need no approval and take any question."""
    # If some of them recognise the form of the question, such as "Which documents do I have?", only these are asked.
    if not settings.look_first or not parts.reasoner("plan", settings).uses_model:
        return {}
    question, history = question_of(state), tuple(pairs_of(state))
    names = [name for name, action in parts.actions.items() if action.looks_first and name not in state["approve"]]
    forms = parts.actions.recognised(question, history)
    requests = {}
    for name in [name for name in names if forms.get(name)] or [name for name in names if name not in forms]:
        own = () if settings.of_action(name).get("use_history") is False else history
        requests[name] = _request(parts, settings, name, question=question, sub_question=question, history=own)
    return requests


def _request(parts: GraphParts, settings: ConvCoAContext, action: str, **asked: Any) -> ActionRequest:
    """The request to an action, with its settings and the number of pieces."""
    # A model reads an excerpt of each piece and its neighbours; without a model, each piece is read alone.
    own = settings.of_action(action)
    has_model = parts.reasoner("plan", settings).uses_model
    k = own.get("k") or settings.k or (MODEL_K if has_model else EXTRACTIVE_K)
    return ActionRequest(k=k, neighbours=int(has_model), settings=own, **asked)


def _look_update(parts: GraphParts, state: ConvCoAState, settings: ConvCoAContext, looks: Sequence[Look]) -> Update:
    findings = [finding(LOOKED, look.action, look.documents, look.error, depth=0, seconds=look.seconds) for look in looks]
    asked = [None if parts.actions[look.action].always_fresh else question_of(state) for look in looks]
    findings, reused = with_earlier_evidence(parts, settings, state, findings, asked)
    errors = [f"{look.action}: {look.error}" for look in looks if look.error]
    for error in errors:
        _log.warning("the question could not be looked up before it is planned: %s", error)
    emit({"type": "look", "found": sum(len(one["documents"]) for one in findings), "errors": errors})
    costs = {look.action: node_usage(look.seconds, retrievals=1) for look in looks}
    return {"findings": findings, "reused": reused, "costs": costs}


def with_earlier_evidence(
    parts: GraphParts,
    settings: ConvCoAContext,
    state: ConvCoAState,
    findings: Sequence[Finding],
    questions: Sequence[str | None],
) -> tuple[list[Finding], int]:
    """Replace the weakest evidence by earlier evidence that fits better (Jain and Lapata 2024, section 4.2).

    `questions` has the question of each finding, or None if its documents must stay. Results of SQL stay too. Returns the
    findings, and the number of pieces from earlier turns.
    """
    result, reused = list(findings), 0
    evidence = state.get("evidence_memory") or []
    if not evidence or not settings.evidence_memory or not any(one["documents"] for one in findings):
        return result, reused
    knowledge = ContextualKnowledgeSet.load(state.get("knowledge_set"))
    topic, leans = state["plan"]["optimized_question"], not state["plan"]["self_contained"]
    rounds = parts.memory.topic(knowledge, topic, leans=leans, capacity=settings.memory_capacity)
    for n, (one, question) in enumerate(zip(findings, questions, strict=True)):
        if question is None or any("query" in document.metadata for document in one["documents"]):
            continue
        documents, taken = integrate(question, one["documents"], evidence, rounds, parts.memory.vectors)
        result[n] = {**one, "documents": documents}
        reused += taken
    return result, reused


def plan(parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime) -> Update:
    """Ask the model for an answer or a chain, once more if the reply is unreadable; stream an answer's verified sentences."""
    call = _PlanCall(parts, state, config, runtime)
    try:
        chain = call.reasoner.plan(call.request, config)
    except ModelError as error:
        return call.without_model(error)
    return call.update(chain)


async def aplan(parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime) -> Update:
    """As `plan`. Threads make the prompt and read the plan."""
    call = await asyncio.to_thread(_PlanCall, parts, state, config, runtime)
    try:
        chain = await call.reasoner.aplan(call.request, config)
    except ModelError as error:
        return await asyncio.to_thread(call.without_model, error)
    return await asyncio.to_thread(call.update, chain)


class _PlanCall:
    """The request of `plan`, and the update made from its reply."""

    def __init__(self, parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime) -> None:
        self._parts, self._state = parts, state
        self._settings = settings = runtime.context
        self.reasoner = parts.reasoner("plan", settings)
        evidence, question = merge_findings(state["findings"]).documents, question_of(state)
        # The answer of this call is taken, and streamed, only if the setting allows it and it can be verified.
        streams = evidence and settings.allow_draft_answer
        self.request = PlanRequest(
            question=question,
            actions=parts.actions.descriptions(),
            history=pairs_of(state),
            knowledge=state["knowledge_view"],
            max_sub_questions=settings.max_sub_questions,
            language=settings.language,
            evidence=evidence,
            recognised=parts.actions.recognised(question, pairs_of(state)),
            asked_back=bool(state.get("asked_back")),
            may_ask=settings.ask_back and not state.get("asked_back") and len(evidence) > 1,
            gate=parts.gate(state, settings, config, {"plan", "answer"}) if streams else None,
        )

    def without_model(self, error: ModelError) -> Update:
        """Plan from the question's words, if the settings allow it and no sentence was streamed; else raise the error."""
        if not self._settings.quote_without_model or (self.request.gate and self.request.gate.shown):
            raise error
        return self.update(self._parts.without_model.plan(self.request), str(error))

    def update(self, chain: ActionChain, error: str = "") -> Update:
        made: Plan = {
            "optimized_question": cut_field(chain.optimized_question),
            "draft_answer": cut_answer(chain.draft_answer),
            "self_contained": chain.self_contained,
            "nodes": [
                {
                    "action": node.action,
                    "sub_question": cut_field(node.sub_question),
                    "guess_answer": "" if node.is_missing else cut_field(node.guess_answer),
                    "action_input": cut_field(node.action_input),
                }
                for node in chain.nodes
            ],
            "clarification": flat(cut_field(chain.clarification))[:_LONGEST_CLARIFICATION] if self.request.may_ask else "",
        }
        questions = [node["sub_question"] for node in made["nodes"]]
        emit({"type": "plan", "optimized_question": made["optimized_question"], "sub_questions": questions})
        reply = {**self._state["reply"], "error": error}
        if gate := self.request.gate:
            reply |= {"shown": gate.shown, "message_id": gate.message_id}
        recalled = recall_plan(self._parts, self._state, made, self._settings)
        return {"plan": made, "recalled": recalled, "reply": reply}


def looked_up(state: ConvCoAState) -> list[Finding]:
    """The finding for the question itself, once for each sub-question that repeats it: the same search is not run again."""
    looked = [finding for finding in state["findings"] if finding["index"] == LOOKED and finding["documents"]]
    if len(looked) != 1:
        return []
    asked = sorted(content_words(question_of(state)))
    return [
        {**looked[0], "index": index, "depth": 1, "seconds": 0.0}
        for index, node in enumerate(state["plan"]["nodes"])
        if node["action"] == looked[0]["action"]
        and not node["guess_answer"]
        and sorted(content_words(node["sub_question"])) == asked
    ]


def still_recalled(state: ConvCoAState) -> list[RecalledAnswer]:
    """The recalled answers whose sub-questions are still in the plan, which a person may have edited."""
    nodes = state["plan"]["nodes"]
    return [
        answer
        for answer in state["recalled"]
        if answer["index"] < len(nodes) and words_agree(answer["sub_question"], nodes[answer["index"]]["sub_question"])
    ]


def recall_plan(parts: GraphParts, state: ConvCoAState, made: Plan, settings: ConvCoAContext) -> list[RecalledAnswer]:
    """The answers of earlier rounds to the sub-questions of a plan.

    An action that sets `always_fresh` gets no earlier answers. If the sub-questions depend on the conversation, nothing is
    recalled, because they may mean something else now.
    """
    if not settings.recall_answers or not made["self_contained"]:
        return []
    asked = [
        (index, node["action"], node["sub_question"])
        for index, node in enumerate(made["nodes"])
        if not parts.actions[node["action"]].always_fresh
    ]
    rounds = ContextualKnowledgeSet.load(state.get("knowledge_set")).after(state.get("shared") or []).rounds
    return recall_answers(
        asked,
        rounds[-settings.memory_capacity :],
        state.get("evidence_memory") or [],
        parts.memory.vectors,
        max_age=settings.recall_max_age,
    )


def act(parts: GraphParts, state: ActionState, config: RunnableConfig, runtime: TurnRuntime) -> Update:
    """Look one sub-question up, in a branch of its own; no model call."""
    start = time.perf_counter()
    documents = parts.actions.run(state["action"], *_branch_request(parts, state, runtime.context))
    return _branch_update(state, documents, time.perf_counter() - start)


async def aact(parts: GraphParts, state: ActionState, config: RunnableConfig, runtime: TurnRuntime) -> Update:
    """As `act`."""
    start = time.perf_counter()
    documents = await parts.actions.arun(state["action"], *_branch_request(parts, state, runtime.context))
    return _branch_update(state, documents, time.perf_counter() - start)


def act_failed(parts: GraphParts, state: ActionState, error: NodeError, runtime: Any = None) -> Command[Literal["verify"]]:
    """Handle the error of an action node: its reason becomes the finding of the branch; other branches go on."""
    seconds = min(max(time.time() - state["sent"], 0.0), 2 * parts.settings(runtime).action_timeout)
    update = _branch_update(state, [], seconds, reason_of(error.error), repairable=isinstance(error.error, ActionInputError))
    # A handler does not follow the node's edges; without `goto`, a turn whose actions all fail would end without an answer.
    return Command(update=annotate(state, update), goto="verify")


def _branch_request(parts: GraphParts, state: ActionState, settings: ConvCoAContext) -> tuple[ActionRequest, float, str, int]:
    """The request, the time limit, the turn, and the number of actions that may run at the same time."""
    emit_status(state["index"], state, status="searching")
    names = ("question", "sub_question", "guess_answer", "action_input", "depth")
    asked = {name: value for name, value in state.items() if name in names}
    request = _request(parts, settings, state["action"], history=tuple(pairs_of(state)), **asked)
    return request, settings.action_timeout, state["turn"], settings.max_concurrency


def _branch_update(
    state: ActionState, documents: list[Document], seconds: float, error: str = "", *, repairable: bool = False
) -> Update:
    index, action, depth = state["index"], state["action"], state["depth"]
    emit_status(index, state, status="failed" if error else "found", reason=error or f"{len(documents)} pieces of evidence")
    found = finding(index, action, documents, error, depth=depth, seconds=seconds, repairable=repairable)
    return {"findings": [found], "costs": {action: node_usage(seconds, retrievals=1)}}


def repair(parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime) -> Update:
    """Ask the model once to rewrite the action inputs that failed. If the call fails, the sub-questions keep their failure."""
    reasoner = parts.reasoner("repair", runtime.context)
    try:
        inputs = reasoner.repair(_repair_request(parts, state), config)
    except Exception:  # noqa: BLE001 - whatever a reasoner raises
        inputs = {}
    return _repair_update(state, inputs)


async def arepair(parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime) -> Update:
    """As `repair`."""
    # Threads are used, since a model may have to be built, and a description may wait for a database.
    reasoner = await asyncio.to_thread(parts.reasoner, "repair", runtime.context)
    try:
        inputs = await reasoner.arepair(await asyncio.to_thread(_repair_request, parts, state), config)
    except Exception:  # noqa: BLE001 - as above
        inputs = {}
    return _repair_update(state, inputs)


def _repair_request(parts: GraphParts, state: ConvCoAState) -> RepairRequest:
    return RepairRequest(state["plan"]["optimized_question"], broken_inputs(state), parts.actions.descriptions())


def _repair_update(state: ConvCoAState, inputs: dict[int, str]) -> Update:
    plan = state["plan"]
    inputs = {item.index: cut_field(inputs[item.index]) for item in broken_inputs(state) if item.index in inputs}
    nodes: list[PlannedNode] = [
        {**node, "action_input": inputs.get(index, node["action_input"])} for index, node in enumerate(plan["nodes"])
    ]
    return {"plan": {**plan, "nodes": nodes}, "repaired": sorted(inputs)}


def broken_inputs(state: ConvCoAState) -> list[BrokenInput]:
    """The action inputs that the actions could not use."""
    nodes = state["plan"]["nodes"]
    failed = {one["index"]: one["error"] for one in state["findings"] if one["repairable"] and 0 <= one["index"] < len(nodes)}
    return [
        BrokenInput(index, nodes[index]["action"], nodes[index]["sub_question"], nodes[index]["action_input"], failed[index])
        for index in sorted(failed)
    ]
