"""The node `answer`: the final cited answer, the planner's draft where all of it is supported."""

from __future__ import annotations

import re

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig

from langgraph_convcoa.chain import SOLVED
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.memory.knowledge_set import Citation
from langgraph_convcoa.nodes.runtime import Call, Steps, TurnRuntime, by_index, emit
from langgraph_convcoa.reasoning.base import Answer, AnswerRequest
from langgraph_convcoa.state import ConvCoAState, pairs_of
from langgraph_convcoa.text.citations import check_citations
from langgraph_convcoa.verification.mrfs import THRESHOLD
from langgraph_convcoa.verification.references import References
from langgraph_convcoa.verification.support import SentenceSupport, support_sentences

_MARK = re.compile(r"\[\d+\]")


def answer(turn: TurnRuntime, state: ConvCoAState, config: RunnableConfig) -> Steps:
    """One model call, or none where the draft is taken."""
    settings = turn.settings()
    request = _request(state, settings.language)
    written = draft_answer(state, request, settings) if settings.allow_draft_answer else None
    if written is None:
        reasoner = turn.reasoner()
        written = yield Call(reasoner.answer, reasoner.aanswer, (request, config))
    text, citations, message_id = finish(written, request)
    if message_id:
        # Written by a model and shown already: an unsupported citation is reported, not taken back.
        unsupported = _unsupported_sentences(text, request)
        emit({"type": "answer", "unsupported": unsupported, "removed_citations": written.removed_citations})
    return {"final": text, "final_citations": citations, "final_message_id": message_id}


def _request(state: ConvCoAState, language: str) -> AnswerRequest:
    """The evidence is every document of the chain once, in the order of the chain."""
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
        history=pairs_of(state),
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
    threshold = max(settings.threshold or THRESHOLD, THRESHOLD)
    cited: list[int] = []
    text, position = "", 0
    for support in support_sentences(draft, request.evidence):
        # Every character of the draft must belong to a judged sentence.
        if support.reference is None or support.score <= threshold or draft[position : support.start].strip():
            return None
        if support.reference not in cited:
            cited.append(support.reference)
        end = support.end - (draft[support.end - 1] in ".!?。！？")
        text += f"{draft[position:end]} [{cited.index(support.reference) + 1}]{draft[end : support.end]}"
        position = support.end
    return Answer(text + draft[position:], cited) if cited and not draft[position:].strip() else None


def finish(written: Answer, request: AnswerRequest) -> tuple[str, list[Citation], str]:
    """The final text, what its [n] stand for, and the id of the message that was streamed, or "".

    A reasoner that does not number its citations itself cites by position in the evidence; an empty answer, a refusal to say
    anything, is replaced by the solved chain.
    """
    text, cited, message_id = written.text, list(written.cited), written.message_id or ""
    if not cited:
        text, cited, _ = check_citations(text, len(request.evidence))
    if not text.strip():
        text, cited, _ = check_citations(from_chain(request), len(request.evidence))
        message_id = ""
    citations = [_citation(request.evidence[index], text, number) for number, index in enumerate(cited, 1)]
    return text, citations, message_id


def from_chain(request: AnswerRequest) -> str:
    """The answers of the chain one after another, cited; and plainly what has none."""
    numbers = {str(document.id): number for number, document in enumerate(request.evidence, 1)}
    parts: list[str] = []
    for item in request.chain:
        if item["status"] in SOLVED and item["answer"]:
            marks = f" [{numbers[item['evidence'][0]]}]" if item["evidence"] else ""
            parts.append(f"{item['answer'].rstrip('. ')}{marks}.")
        elif item["status"] == "failed":
            parts.append(f"Could not look up “{item['sub_question']}”: {item['reason']}.")
        else:
            parts.append(f"Nothing was found about “{item['sub_question']}”.")
    return " ".join(parts) or "No answer was found."


def _unsupported_sentences(text: str, request: AnswerRequest) -> list[str]:
    """Sentences that cite something although no evidence and no earlier answer supports them."""
    supports = support_sentences(text, References.of(request.evidence, request.history))
    return [s.text for s in supports if s.score <= THRESHOLD and _MARK.search(s.text)]


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
