"""The evidence of a turn as one numbered list, and earlier evidence in the place of the weakest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from langchain_core.documents import Document

from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.memory.conversation_memory import ConversationMemory
from langgraph_convcoa.memory.evidence import integrate
from langgraph_convcoa.memory.knowledge_set import ContextualKnowledgeSet
from langgraph_convcoa.state import ConvCoAState, Finding

LOOKED = -1
"""The index of what was found for the question itself."""


@dataclass
class Found:
    """Everything found for one sub-question: the deeper look first, no document twice; `action` was asked last."""

    documents: list[Document] = field(default_factory=list)
    error: str = ""
    action: str = ""


@dataclass(frozen=True)
class Evidence:
    """The evidence of a turn: `documents[n - 1]` is cited as [n] from the first prompt to the final answer.

    `found` is the same by sub-question, `LOOKED` for the question itself.
    """

    documents: list[Document]
    found: Mapping[int, Found]

    @property
    def looked(self) -> list[Document]:
        """What was found for the question as it stands."""
        return self.found[LOOKED].documents


def evidence_of(findings: Sequence[Finding]) -> Evidence:
    """Merge findings, whatever order they arrived in; what was found first keeps its number when more is found.

    An id means one text in the whole turn.
    """
    texts: dict[str, str] = {}
    numbered: dict[str, Document] = {}
    named: list[tuple[Finding, list[Document]]] = []
    for finding in sorted(findings, key=lambda f: (f["depth"], f["index"])):
        own = [_with_own_id(document, texts) for document in finding["documents"]]
        named.append((finding, own))
        for document in own:
            numbered.setdefault(str(document.id), document)
    found: defaultdict[int, Found] = defaultdict(Found)
    came_back = {finding["index"] for finding in findings if not finding["error"]}
    for finding, own in sorted(named, key=lambda pair: (pair[0]["index"], -pair[0]["depth"])):
        here = found[finding["index"]]
        known = {document.id for document in here.documents}
        here.documents += [document for document in own if document.id not in known]
        here.action = here.action or finding.get("action", "")
        # A missing input is not a failure if another look-up of the sub-question came back.
        if not (finding.get("repairable") and finding["index"] in came_back):
            here.error = here.error or finding["error"]
    return Evidence(list(numbered.values()), found)


def _with_own_id(document: Document, texts: dict[str, str]) -> Document:
    """Two actions may give different texts one id; the second gets another."""
    id_ = wanted = str(document.id)
    number = 1
    while texts.setdefault(id_, document.page_content) != document.page_content:
        number += 1
        id_ = f"{wanted}~{number}"
    return document if id_ == document.id else document.model_copy(update={"id": id_})


def numbers_of(evidence: Sequence[Document]) -> Mapping[str, int]:
    """The number under which each document is cited."""
    return {str(document.id): number for number, document in enumerate(evidence, 1)}


def with_earlier_evidence(
    memory: ConversationMemory,
    settings: ConvCoAContext,
    state: ConvCoAState,
    findings: Sequence[Finding],
    questions: Sequence[str | None],
    *,
    leans: bool,
) -> tuple[list[Finding], int]:
    """Findings in which earlier evidence that fits better replaces the weakest (Jain and Lapata 2024, section 4.2).

    Args:
        memory: The conversation memory.
        settings: The settings of the run.
        state: The turn.
        findings: What was found.
        questions: The question of each finding; None for a finding that stays as it is.
        leans: Whether the question depends on the conversation.

    Returns:
        The findings, and how many pieces were taken from earlier turns. The result of a query is an answer, not a choice of
        passages, and stays.
    """
    result, reused = list(findings), 0
    evidence = state.get("evidence_memory") or []
    if not evidence or not settings.evidence_memory or not any(finding["documents"] for finding in findings):
        return result, reused
    knowledge = ContextualKnowledgeSet.load(state.get("knowledge_set"))
    topic = state["plan"]["optimized_question"]
    rounds = memory.topic(knowledge, topic, leans=leans, capacity=settings.memory_capacity)
    for n, (finding, question) in enumerate(zip(findings, questions, strict=True)):
        if question is None or any("query" in document.metadata for document in finding["documents"]):
            continue
        documents, taken = integrate(question, finding["documents"], evidence, rounds, memory.vectors)
        result[n] = {**finding, "documents": documents}
        reused += taken
    return result, reused
