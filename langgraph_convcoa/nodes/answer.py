"""From a solved chain to the final answer: the draft when all of it is borne out, citations, words without a model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from langchain_core.documents import Document

from langgraph_convcoa.chain import ChainItem
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.memory.knowledge_set import Citation
from langgraph_convcoa.nodes.verify import Found, by_index
from langgraph_convcoa.reasoning.base import Answer, AnswerRequest
from langgraph_convcoa.state import ConvCoAState
from langgraph_convcoa.text.citations import check_citations
from langgraph_convcoa.verification.mrfs import THRESHOLD
from langgraph_convcoa.verification.references import References
from langgraph_convcoa.verification.support import SentenceSupport, support_sentences

_MARK = re.compile(r"\[\d+\]")
_SOLVED = ("kept", "corrected", "filled", "recalled")


def answer_request(state: ConvCoAState, language: str) -> AnswerRequest:
    """What the reasoner is told; the evidence is every document of the chain once, in the order of the chain."""
    found = by_index(state["findings"])
    evidence: dict[str, Document] = {}
    for index in sorted(found):
        documents = {str(document.id): document for document in found[index].documents}
        order = state["items"][index]["evidence"] if 0 <= index < len(state["items"]) else list(documents)
        for id_ in order:
            evidence.setdefault(id_, documents[id_])
    return AnswerRequest(
        question=state["asked"],
        optimized_question=state["plan"]["optimized_question"],
        chain=state["items"],
        evidence=list(evidence.values()),
        history=[(question, answer) for question, answer in state["history"]],
        knowledge=state["knowledge_view"],
        language=language,
    )


def draft_answer(state: ConvCoAState, request: AnswerRequest, settings: ConvCoAContext) -> Answer | None:
    """The planner's draft with [n] after each sentence, when every guess was kept and every sentence is supported."""
    draft = state["plan"]["draft_answer"].strip()
    items = state["items"]
    if not draft or not items or any(item["status"] not in ("kept", "recalled") for item in items):
        return None
    draft, _, _ = check_citations(draft, available=0)
    supports = support_sentences(draft, request.evidence)
    threshold = max(settings.threshold or THRESHOLD, THRESHOLD)
    if not supports or any(support.reference is None or support.score <= threshold for support in supports):
        return None
    # Every character of the draft must belong to a judged sentence.
    if _uncovered(draft, [(support.start, support.end) for support in supports]):
        return None
    cited: list[int] = []
    text = draft
    for support in supports:
        assert support.reference is not None
        if support.reference not in cited:
            cited.append(support.reference)
    for support in reversed(supports):
        assert support.reference is not None
        end = support.end
        if text[end - 1] in ".!?。！？":
            end -= 1
        text = f"{text[:end]} [{cited.index(support.reference) + 1}]{text[end:]}"
    return Answer(text, cited)


def _uncovered(text: str, spans: Sequence[tuple[int, int]]) -> str:
    position, rest = 0, ""
    for start, end in sorted(spans):
        rest += text[position:start]
        position = max(position, end)
    return (rest + text[position:]).strip()


def finish(answer: Answer, request: AnswerRequest) -> tuple[str, list[Citation], str]:
    """The final text, what its [n] stand for, and the id of the message that was streamed, or "".

    A reasoner that does not number its citations itself cites by position in the evidence; an empty answer, a refusal to say
    anything, is replaced by the solved chain.
    """
    text, cited, message_id = answer.text, list(answer.cited), answer.message_id or ""
    if not cited:
        text, cited, _ = check_citations(text, len(request.evidence))
    if not text.strip():
        text, cited, _ = check_citations(from_chain(request), len(request.evidence))
        message_id = ""
    citations = [_citation(request.evidence[index], text, number) for number, index in enumerate(cited, 1)]
    return text, citations, message_id


def unsupported_sentences(text: str, request: AnswerRequest) -> list[str]:
    """Sentences that cite something although no evidence and no earlier answer bears their words out."""
    supports = support_sentences(text, References.of(request.evidence, request.history))
    return [s.text for s in supports if s.score <= THRESHOLD and _MARK.search(s.text)]


def from_chain(request: AnswerRequest) -> str:
    """The answers of the chain one after another, cited; and plainly what has none."""
    numbers = {str(document.id): number for number, document in enumerate(request.evidence, 1)}
    parts: list[str] = []
    for item in request.chain:
        if item["status"] in _SOLVED and item["answer"]:
            marks = f" [{numbers[item['evidence'][0]]}]" if item["evidence"] else ""
            parts.append(f"{item['answer'].rstrip('. ')}{marks}.")
        elif item["status"] == "failed":
            parts.append(f"Could not look up “{item['sub_question']}”: {item['reason']}.")
        else:
            parts.append(f"Nothing was found about “{item['sub_question']}”.")
    return " ".join(parts) or "No answer was found."


def _citation(document: Document, text: str, number: int) -> Citation:
    """The quote is the sentence of the document that best supports what it is cited for."""
    mark = f"[{number}]"
    claims = [s for s in support_sentences(text, [document]) if mark in s.text and s.quote and s.score > THRESHOLD / 2]
    best = max(claims, key=lambda s: s.score) if claims else None
    quote = _copied(best, document) or best.quote if best else ""
    if query := document.metadata.get("query"):
        # A figure says nothing without the query that gave it; a row of the table below is quoted with it.
        quote = f"{query} gives {quote}" if quote.startswith("|") else ""
    return {
        "id": str(document.id),
        "source": str(document.metadata.get("source") or document.id),
        "quote": quote or str(document.metadata.get("quote") or document.page_content[:300]),
    }


def _copied(claim: SentenceSupport, document: Document) -> str:
    """The claim itself, where it stands in the document word for word but is more than one of its segments (a table's row)."""
    words = " ".join(_MARK.sub("", claim.text).split()).rstrip(" .!?")
    if not words or words in " ".join(claim.quote.split()):
        return ""
    return words if words in " ".join(document.page_content.split()) else ""


def summary(item: ChainItem, found: Mapping[int, Found]) -> str:
    """The solved answer with its quote: what the knowledge set remembers of a sub-question, without a model call."""
    answer = item["answer"] or {"failed": "could not be looked up"}.get(item["status"], "not found")
    lead = item["evidence"][0] if item["evidence"] else None
    for here in found.values():
        for document in here.documents:
            if str(document.id) == lead and item["answer"]:
                quote = str(document.metadata.get("quote") or "")[:300]
                return f"{answer} — “{quote}”" if quote and quote not in answer else answer
    return answer


def uncited(items: Sequence[ChainItem], found: Mapping[int, Found], citations: Sequence[Citation]) -> list[Citation]:
    """The document that leads the evidence of each solved item, where the answer does not cite it itself."""
    known = {citation["id"] for citation in citations}
    documents = {str(document.id): document for here in found.values() for document in here.documents}
    leads: list[Citation] = []
    for item in items:
        lead = item["evidence"][0] if item["evidence"] and item["status"] in ("kept", "corrected", "filled") else None
        if lead is None or lead in known or lead not in documents:
            continue
        known.add(lead)
        document = documents[lead]
        quote = str(document.metadata.get("quote") or document.page_content)[:300]
        leads.append({"id": lead, "source": str(document.metadata.get("source") or lead), "quote": quote})
    return leads
