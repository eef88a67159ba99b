"""The node `remember`: saves the round, the messages and the output. No other node adds to what a thread keeps."""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig
from langgraph.types import Overwrite

from langgraph_convcoa.chain import SUPPORTED, ChainItem
from langgraph_convcoa.memory import sharing
from langgraph_convcoa.memory.evidence import RememberedEvidence, remember_evidence
from langgraph_convcoa.memory.knowledge_set import Citation, ContextualKnowledgeSet, RoundExtra
from langgraph_convcoa.nodes.evidence import merge_findings
from langgraph_convcoa.nodes.message import answer_message
from langgraph_convcoa.nodes.parts import GraphParts, TurnRuntime, Update
from langgraph_convcoa.state import ConvCoAState, Finding, pairs_of
from langgraph_convcoa.usage import NodeUsage, node_usage, total_usage

_REMEMBERED_PER_LOOK = 5


def remember(parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime) -> Update:
    """Save the round; no model call."""
    start = time.perf_counter()
    settings = parts.settings(runtime)
    items, reply = state["items"], state["reply"]
    text, citations, unsupported = reply["text"], reply["citations"], reply["unsupported"]
    documents = {str(document.id): document for document in merge_findings(state["findings"]).documents}
    knowledge = ContextualKnowledgeSet.load(state.get("knowledge_set"))
    knowledge.seed(pairs_of(state))
    extra: RoundExtra = {
        "chain": items,
        "citations": citations,
        "unsupported": unsupported,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "evidence": _uncited(items, documents, citations),
    }
    solved = [(item["sub_question"], summary(item, documents)) for item in items]
    knowledge.add_round(state["asked"], state["plan"]["optimized_question"], solved, text, extra)
    entry = knowledge.rounds[-1]
    if settings.share_knowledge:
        sharing.share_round(*sharing.parts_of(runtime.store, settings.user_id, config), entry)
    messages: list[Any] = []
    titles = {id_: str(document.metadata.get("title") or "") for id_, document in documents.items()}
    if not any(message.id == state["asked_message_id"] for message in state.get("messages", [])):
        # A dict, because a message stream would show a message as a part of the answer.
        messages.append({"role": "user", "content": state["asked"], "id": state["asked_message_id"]})
    messages.append(answer_message(text, citations, titles=titles, message_id=reply["message_id"] or str(uuid.uuid4())))
    costs = {**state["costs"], "remember": node_usage(time.perf_counter() - start)}
    seconds = turn_seconds(costs, state["findings"], parts.actions.actions)
    return {
        "messages": messages,
        "knowledge_set": knowledge.export(),
        "answer": text,
        "citations": citations,
        "unsupported": unsupported,
        "chain": items,
        "evidence_memory": _evidence_memory(state, entry["round"], settings.evidence_memory),
        "usage": total_usage(costs, seconds, len(state["recalled"]), state["reused"]),
        # The turn is over: nothing of it is left in the next turn's checkpoints.
        "asked_message_id": "",
        "findings": Overwrite([]),
        "recalled": [],
        "shared": [],
    }


def summary(item: ChainItem, documents: Mapping[str, Document]) -> str:
    """The answer of a sub-question with its quote, for the knowledge set."""
    if not item["answer"]:
        return "could not be looked up" if item["status"] == "failed" else "not found"
    lead = documents.get(item["evidence"][0]) if item["evidence"] else None
    quote = str(lead.metadata.get("quote") or "")[:300] if lead else ""
    return f"{item['answer']} — “{quote}”" if quote and quote not in item["answer"] else item["answer"]


def _uncited(items: Sequence[ChainItem], documents: Mapping[str, Document], citations: Sequence[Citation]) -> list[Citation]:
    """The first document of each solved item, if the answer does not cite it."""
    known = {citation["id"] for citation in citations}
    leads: dict[str, Citation] = {}
    for item in items:
        lead = item["evidence"][0] if item["evidence"] and item["status"] in SUPPORTED else ""
        if lead in documents and lead not in known:
            metadata, text = documents[lead].metadata, documents[lead].page_content
            quote = str(metadata.get("quote") or text)[:300]
            leads.setdefault(lead, {"id": lead, "source": str(metadata.get("source") or lead), "quote": quote})
    return list(leads.values())


def _evidence_memory(state: ConvCoAState, number: int, capacity: int) -> list[RememberedEvidence]:
    """The evidence memory after this turn: the best of each look-up, without pieces made only for this question."""
    found = [
        document
        for finding in state["findings"]
        for document in finding["documents"][:_REMEMBERED_PER_LOOK]
        if not {"query", "extract"} & document.metadata.keys()
    ]
    return remember_evidence(state.get("evidence_memory") or [], found, number, capacity)


def turn_seconds(costs: Mapping[str, NodeUsage], findings: Sequence[Finding], actions: Collection[str]) -> float:
    """Seconds of a turn: the sum over its nodes, and for each depth the longest of the parallel branches."""
    longest: defaultdict[int, float] = defaultdict(float)
    for finding in findings:
        if finding["depth"]:  # depth 0 is in the time of the node `look`
            longest[finding["depth"]] = max(longest[finding["depth"]], finding["seconds"])
    return sum(cost["seconds"] for node, cost in costs.items() if node not in actions) + sum(longest.values())
