"""What the nodes of a turn have to do with the conversation's memory: recalled answers, earlier evidence, shared rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig
from langgraph.runtime import get_runtime

from langgraph_convcoa.actions.base import Action
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.memory import sharing
from langgraph_convcoa.memory.conversation_memory import ConversationMemory
from langgraph_convcoa.memory.evidence import RememberedEvidence, remember_evidence
from langgraph_convcoa.memory.knowledge_set import ContextualKnowledgeSet, Round
from langgraph_convcoa.memory.recall import Asked, RecalledAnswer
from langgraph_convcoa.state import ConvCoAState, Finding, Plan

if TYPE_CHECKING:
    from langgraph_convcoa.memory.vectors import QueryEncoder

_NEWS_ACTION = "web_querying"
_REMEMBERED_PER_LOOK = 5
_SHARED_ROUNDS = 50


def encoder_of(actions: Iterable[Action]) -> Callable[[], QueryEncoder | None]:
    """The encoder of the first action whose retriever has one, asked for when it is first needed."""
    owners = [action.retriever for action in actions if hasattr(action, "retriever")]

    def encoder() -> QueryEncoder | None:
        found = (getattr(owner, "encoder", None) for owner in owners)
        return next((one for one in found if hasattr(one, "encode_queries")), None)

    return encoder


def known_to(state: ConvCoAState, knowledge: ContextualKnowledgeSet) -> ContextualKnowledgeSet:
    """The thread's rounds after those that the user's other threads share, whose numbers end at 0."""
    shared = state.get("shared") or []
    if not shared:
        return knowledge
    first = 1 - len(shared)
    renumbered: list[Round] = [{**entry, "round": first + n} for n, entry in enumerate(shared)]
    return ContextualKnowledgeSet([*renumbered, *knowledge.rounds])


def shared_rounds(settings: ConvCoAContext, config: RunnableConfig) -> list[Round]:
    """What the user's other threads know, where sharing is asked for."""
    if not settings.share_knowledge:
        return []
    store = sharing.store_of(get_runtime(ConvCoAContext).store)
    return sharing.shared_rounds(
        store, sharing.user_of(settings.user_id, config), but_of=_thread(config), limit=_SHARED_ROUNDS
    )


def share(settings: ConvCoAContext, config: RunnableConfig, entry: Round) -> None:
    """Let the user's other threads know a round, where sharing is asked for."""
    if settings.share_knowledge:
        store = sharing.store_of(get_runtime(ConvCoAContext).store)
        sharing.share_round(store, sharing.user_of(settings.user_id, config), _thread(config), entry)


def _thread(config: RunnableConfig) -> str:
    thread = str(config.get("configurable", {}).get("thread_id") or "")
    if not thread:
        raise InputError("shared knowledge needs a thread: give a thread_id, or switch share_knowledge off")
    return thread


def recalled_answers(
    memory: ConversationMemory, state: ConvCoAState, plan: Plan, actions: Mapping[str, Action], settings: ConvCoAContext
) -> list[RecalledAnswer]:
    """The sub-questions of a plan that need no look-up.

    News is looked up again every time: what the web is asked, and any action that sets `always_fresh`. A sub-question that
    leans on the conversation means another thing in another place.
    """
    if not settings.recall_answers or not plan["self_contained"]:
        return []
    asked = [
        Asked(index, node["action"], node["sub_question"])
        for index, node in enumerate(plan["nodes"])
        if not _brings_news(actions[node["action"]])
    ]
    knowledge = known_to(state, ContextualKnowledgeSet.load(state.get("knowledge_set")))
    return memory.recall(
        knowledge,
        asked,
        state.get("evidence_memory") or [],
        max_age=settings.recall_max_age,
        capacity=settings.memory_capacity,
    )


def _brings_news(action: Action) -> bool:
    return bool(getattr(action, "always_fresh", action.name == _NEWS_ACTION))


def with_memory(
    memory: ConversationMemory, state: ConvCoAState, actions: Mapping[str, Action], settings: ConvCoAContext
) -> tuple[list[Finding], int]:
    """The turn's findings with recalled evidence, and with earlier evidence in the weakest's place: (findings, reused).

    News stays as it is, and so does the result of a query, which is an answer and no choice of passages.
    """
    findings = list(state["findings"])
    evidence = state.get("evidence_memory") or []
    reused = 0
    if evidence and settings.evidence_memory and any(finding["documents"] for finding in findings):
        plan = state["plan"]
        knowledge = ContextualKnowledgeSet.load(state.get("knowledge_set"))
        rounds = memory.topic(
            knowledge, plan["optimized_question"], leans=not plan["self_contained"], capacity=settings.memory_capacity
        )
        for n, finding in enumerate(findings):
            index = finding["index"]
            question = plan["nodes"][index]["sub_question"] if index >= 0 else plan["optimized_question"]
            action = actions[plan["nodes"][index]["action"] if index >= 0 else next(iter(actions))]
            if _brings_news(action) or any("query" in document.metadata for document in finding["documents"]):
                continue
            documents, taken = memory.integrate(question, finding["documents"], evidence, rounds)
            findings[n] = {**finding, "documents": documents}
            reused += taken
    fresh = {str(document.id): document for finding in findings for document in finding["documents"]}
    for answer in state.get("recalled") or []:
        documents = [_whole(document, fresh) for document in answer["documents"]]
        findings.append(
            {"index": answer["index"], "depth": 1, "documents": documents, "error": "", "repairable": False, "seconds": 0.0}
        )
    return findings, reused


def _whole(document: Document, fresh: Mapping[str, Document]) -> Document:
    """A recalled quote with its whole text, where another sub-question has just found that: an id means one text in a turn."""
    other = fresh.get(str(document.id))
    return other if other is not None and document.page_content in other.page_content else document


def remembered(state: ConvCoAState, actions: Sequence[str], number: int, settings: ConvCoAContext) -> list[RememberedEvidence]:
    """The evidence memory after this turn: the best of each look-up. Results of a query answer that query only."""
    nodes = state["plan"]["nodes"]
    found = [
        (nodes[finding["index"]]["action"] if finding["index"] >= 0 else actions[0], document)
        for finding in state["findings"]
        for document in finding["documents"][:_REMEMBERED_PER_LOOK]
        if "query" not in document.metadata
    ]
    return remember_evidence(state.get("evidence_memory") or [], found, number, settings.evidence_memory)
