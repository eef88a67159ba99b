"""Earlier evidence in the place of the weakest fresh evidence (Jain and Lapata 2024, section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence

from langgraph_convcoa.memory.evidence import integrate
from langgraph_convcoa.memory.knowledge_set import ContextualKnowledgeSet
from langgraph_convcoa.nodes.runtime import TurnRuntime
from langgraph_convcoa.state import ConvCoAState, Finding


def with_earlier_evidence(
    turn: TurnRuntime, state: ConvCoAState, findings: Sequence[Finding], questions: Sequence[str | None], *, leans: bool
) -> tuple[list[Finding], int]:
    """Findings with what earlier turns found and what is closer to their questions: (findings, pieces taken).

    `questions` has None for a finding that stays as it is. The result of a query is an answer and no choice of passages, and
    stays too. `leans`: the question depends on the conversation.
    """
    result, reused = list(findings), 0
    evidence, settings = state.get("evidence_memory") or [], turn.settings()
    if not evidence or not settings.evidence_memory or not any(finding["documents"] for finding in findings):
        return result, reused
    knowledge = ContextualKnowledgeSet.load(state.get("knowledge_set"))
    topic = state["plan"]["optimized_question"]
    rounds = turn.memory.topic(knowledge, topic, leans=leans, capacity=settings.memory_capacity)
    for n, (finding, question) in enumerate(zip(findings, questions, strict=True)):
        if question is None or any("query" in document.metadata for document in finding["documents"]):
            continue
        documents, taken = integrate(question, finding["documents"], evidence, rounds, turn.memory.vectors)
        result[n] = {**finding, "documents": documents}
        reused += taken
    return result, reused
