"""The evidence of a turn: what the actions found, as one numbered list, with evidence of earlier turns added to it."""

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
"""The index of the findings for the question itself."""


@dataclass
class Found:
    """Everything that was found for one sub-question, the deeper look first. `action` is the action asked last."""

    documents: list[Document] = field(default_factory=list)
    error: str = ""
    action: str = ""


@dataclass(frozen=True)
class TurnEvidence:
    """The evidence of a turn.

    Attributes:
        documents: `documents[n - 1]` is cited as [n] from the first prompt to the final answer.
        found: The documents of each sub-question, by its index; `LOOKED` is the index of the question itself.
    """

    documents: list[Document]
    found: Mapping[int, Found]

    @property
    def looked(self) -> list[Document]:
        """The documents that were found for the question itself."""
        return self.found[LOOKED].documents


def finding(
    index: int,
    action: str,
    documents: Sequence[Document] = (),
    error: str = "",
    *,
    depth: int = 1,
    seconds: float = 0.0,
    repairable: bool = False,
) -> Finding:
    """Make the finding of one action for one sub-question."""
    return {
        "index": index,
        "action": action,
        "documents": list(documents),
        "error": error,
        "depth": depth,
        "seconds": seconds,
        "repairable": repairable,
    }


def merge_findings(findings: Sequence[Finding]) -> TurnEvidence:
    """Number the documents of a turn. The order of arrival does not matter, and a number stays when more is found."""
    texts: dict[str, str] = {}
    ids: dict[tuple[str, str], str] = {}
    numbered: dict[str, Document] = {}
    named: list[tuple[Finding, list[Document]]] = []
    for one in sorted(findings, key=lambda f: (f["depth"], f["index"])):
        own = list(
            {str(own.id): own for own in (_with_own_id(document, texts, ids) for document in one["documents"])}.values()
        )
        named.append((one, own))
        for document in own:
            numbered.setdefault(str(document.id), document)
    found: defaultdict[int, Found] = defaultdict(Found)
    came_back = {one["index"] for one in findings if not one["error"]}
    for one, own in sorted(named, key=lambda pair: (pair[0]["index"], -pair[0]["depth"])):
        here = found[one["index"]]
        known = {document.id for document in here.documents}
        here.documents += [document for document in own if document.id not in known]
        here.action = here.action or one["action"]
        # An unusable input is no failure if another look-up of the sub-question succeeded.
        if not (one["repairable"] and one["index"] in came_back):
            here.error = here.error or one["error"]
    return TurnEvidence(list(numbered.values()), found)


def _with_own_id(document: Document, texts: dict[str, str], ids: dict[tuple[str, str], str]) -> Document:
    """The document, with the id of an equal document, or a new id if another text has its id."""
    title = str(document.metadata.get("title") or "")
    id_ = wanted = ids.setdefault((title, document.page_content), str(document.id))
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
    rounds = memory.topic(knowledge, topic, leans=leans, capacity=settings.memory_capacity)
    for n, (one, question) in enumerate(zip(findings, questions, strict=True)):
        if question is None or any("query" in document.metadata for document in one["documents"]):
            continue
        documents, taken = integrate(question, one["documents"], evidence, rounds, memory.vectors)
        result[n] = {**one, "documents": documents}
        reused += taken
    return result, reused
