"""The last nodes, without a model call: `answer` makes the final cited answer, `remember` saves the round and the messages.

A person decides about the answer if `approve` says so. Only `remember` adds to what a thread keeps.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import AIMessage
from langchain_core.messages.content import Citation as CitationAnnotation
from langchain_core.runnables import RunnableConfig
from langgraph.types import Overwrite

from langgraph_convcoa.chain import SOLVED, SUPPORTED, ChainItem, chain_item
from langgraph_convcoa.memory import sharing
from langgraph_convcoa.memory.evidence import remember_evidence
from langgraph_convcoa.memory.knowledge_set import CLARIFICATION, Citation, ContextualKnowledgeSet, RoundExtra
from langgraph_convcoa.nodes.approve import NeededText, Review, arguments, decide, still_asks
from langgraph_convcoa.nodes.runtime import emit
from langgraph_convcoa.nodes.verify import STANDS_IN
from langgraph_convcoa.reasoning.streaming import show
from langgraph_convcoa.reasoning.usage import NodeUsage, node_usage, total_usage
from langgraph_convcoa.state import (
    LOOKED,
    ConvCoAState,
    Finding,
    GraphParts,
    Reply,
    TurnRuntime,
    Update,
    clarification_of,
    merge_findings,
    pairs_of,
    question_of,
)
from langgraph_convcoa.text.citation_marks import CitationFilter, without_marks
from langgraph_convcoa.text.words import STOPS
from langgraph_convcoa.verification.answer_check import CheckedSentence, Checker
from langgraph_convcoa.verification.premise import Evidence
from langgraph_convcoa.verification.sentences import renumbered, statements

_REMEMBERED_PER_LOOK = 5
_MARK = re.compile(r"\[(\d+)\]")
BY_A_PERSON = "written by a person"  # The `reason` of a chain item whose answer a person wrote.
_QUOTE_CHARACTERS = 300
_LONGEST_QUOTE = 900


def answer(parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime) -> Update:
    """Check and complete the citations, and let a person decide if `approve` says so; no model call.

    The event `answer` lists the sentences that no evidence supports.
    """
    reply = state["reply"]
    checker = parts.checker(state, runtime.context)
    if clarification_of(state["plan"]):
        return _ask_back(parts, state, checker)
    text, citations, checked, removed = finish(reply["text"], state["items"], checker, reply["confirmed"])
    if reply["error"]:
        text = f"The model did not answer ({without_marks(reply['error'])}); these are quotes.\n\n{text}"
    unsupported = [sentence.plain for sentence in checked if not sentence.stands]
    final: Reply = {**reply, "text": text, "citations": citations, "unsupported": unsupported}
    update: Update = {"reply": final}
    planned = reply["text"] and "correct" not in state["costs"]
    if "answer" in state["approve"] or ("correct" in state["approve"] and not planned):
        update |= _reviewed(parts, state, final, checker)
        final, removed = update["reply"], 0
    emit({"type": "answer", "unsupported": final["unsupported"], "removed_citations": removed})
    shown = final["shown"]
    if final["message_id"] and final["text"].startswith(shown) and len(final["text"]) > len(shown):
        show(final["text"][len(shown) :], final["message_id"])
    return update


def _ask_back(parts: GraphParts, state: ConvCoAState, checker: Checker) -> Update:
    """Ask the user a clarifying question, which is not verified. A person who approves may write an answer instead."""
    plan = state["plan"]
    reply: Reply = {**state["reply"], "text": clarification_of(plan)}
    if "answer" in state["approve"]:
        about = f"A clarifying question about “{question_of(state)}”."
        [decided] = decide([Review("answer", arguments(answer=(NeededText, reply["text"])), about)])
        if decided.type == "reject":
            return {"plan": {**plan, "clarification": ""}, "reply": {**reply, "text": decided.sentence}}
        reply["text"] = decided.args["answer"]
        if decided.type == "edit" and not still_asks(reply["text"], checker):
            update = _written(parts, state, reply["text"], reply, checker)
            emit({"type": "answer", "unsupported": update["reply"]["unsupported"], "removed_citations": 0})
            return {**update, "plan": {**plan, "clarification": ""}}
    evidence = merge_findings(state["findings"])
    item = chain_item(evidence.found[LOOKED].action, plan["optimized_question"])
    item |= {"status": "asked", "evidence": [str(document.id) for document in evidence.documents]}
    emit({"type": "clarification", "text": reply["text"]})
    if reply["message_id"]:
        show(reply["text"], reply["message_id"])
    return {"plan": {**plan, "clarification": reply["text"]}, "items": [item], "reply": reply}


def _reviewed(parts: GraphParts, state: ConvCoAState, reply: Reply, checker: Checker) -> Update:
    """Interrupt the turn until a person has decided about the answer; returns what changes."""
    sources = [f"[{n}] {c['source']}: “{c['quote']}”" for n, c in enumerate(reply["citations"], start=1)]
    about = "\n".join([f"The answer to “{question_of(state)}”, before it is kept.", *sources])
    [decided] = decide([Review("answer", arguments(answer=(NeededText, reply["text"])), about)])
    if decided.type == "approve":
        return {}
    if decided.type == "reject":
        return {"reply": {**reply, "text": decided.sentence, "citations": [], "unsupported": []}}
    return _written(parts, state, decided.args["answer"], reply, checker)


def _written(parts: GraphParts, state: ConvCoAState, text: str, reply: Reply, checker: Checker) -> Update:
    """Take the answer that a person wrote; its [n] are the numbers of the answer that the person was shown.

    Its citations are checked and completed like a model's. A sentence that no evidence supports stays, and the chain names it.
    """
    numbers = _numbers(checker.evidence)
    text = renumbered(text, [numbers.get(citation["id"], 0) for citation in reply["citations"]])
    final, citations, checked, _ = finish(text, [], checker, reply["confirmed"])
    unsupported = [sentence.plain for sentence in checked if not sentence.stands]
    item: ChainItem = {
        **chain_item(next(iter(parts.actions)), state["plan"]["optimized_question"]),
        "answer": " ".join(sentence.plain for sentence in checked),
        "status": "unsupported" if unsupported else "corrected",
        "score": min((sentence.verdict.score for sentence in checked), default=0.0),
        "reason": f"{BY_A_PERSON}; no evidence supports “{unsupported[0]}”" if unsupported else BY_A_PERSON,
        "evidence": [citation["id"] for citation in citations],
    }
    # Without a plan, the one item of the chain is the question itself.
    items = [*state["items"], item] if state["plan"]["nodes"] else [item]
    written: Reply = {**reply, "text": final, "citations": citations, "unsupported": unsupported}
    return {"reply": written, "items": items}


def finish(
    written: str, items: Sequence[ChainItem], checker: Checker, confirmed: Sequence[str] = ()
) -> tuple[str, list[Citation], list[CheckedSentence], int]:
    """Return the final text, its citations, its sentences, and how many marks were removed because they cite no evidence.

    If there is no text, the answers of the chain become the text.
    """
    checked = checker.check(written, confirmed) or checker.check(from_chain(items, checker.evidence), confirmed)
    marks = CitationFilter(len(checker.evidence))
    text = "".join(sentence.shown(marks) for sentence in checked) + marks.close()
    citations = [citation_of(checker.evidence[index], index + 1, checked) for index in marks.cited]
    return text, citations, checked, marks.removed + sum(sentence.removed for sentence in checked)


def _numbers(evidence: Sequence[Document]) -> dict[str, int]:
    return {str(document.id): number for number, document in enumerate(evidence, 1)}


def from_chain(items: Sequence[ChainItem], evidence: Sequence[Document]) -> str:
    """The answers of the chain in order, with citations. A sub-question without an answer is named."""
    numbers = _numbers(evidence)
    parts: list[str] = []
    for item in items:
        question = without_marks(item["sub_question"])
        if item["status"] in SOLVED and item["answer"]:
            number = numbers.get(item["evidence"][0]) if item["evidence"] else None
            text = without_marks(item["answer"]).rstrip(". ")
            # A copied sentence stands in quotes, so that the prompts of later turns show it as a quote.
            text = f"“{text}”" if item["reason"].startswith(STANDS_IN) else text
            if len(items) > 1 and not item["answer"].rstrip().endswith(tuple(STOPS)):
                # A bare "1603" is clear only with its sub-question.
                text = f"{question} {text}"
            parts.append(f"{text}{f' [{number}]' if number else ''}.")
        elif item["status"] == "failed":
            parts.append(f"Could not look up “{question}”: {without_marks(item['reason']).rstrip('.')}.")
        else:
            parts.append(f"Nothing was found about “{question}”.")
    return " ".join(parts) or "No answer was found."


def citation_of(document: Document, number: int, checked: Sequence[CheckedSentence]) -> Citation:
    """A citation whose quote holds the document's own words for each sentence that cites it."""
    citing = [sentence for sentence in checked if number in sentence.cited]
    quotes = [one for s in citing for one in _quotes(s.cited[number], document) or _quotes(s.plain, document)]
    quote = ""
    # The quotes stand in the order of the document, with … between them.
    for one in sorted(dict.fromkeys(quotes), key=document.page_content.find):
        if any(one != other and one in other for other in quotes):
            continue
        longer = f"{quote} … {one}" if quote else one
        if len(longer) > _LONGEST_QUOTE and quote:
            break
        quote = longer
    if query := document.metadata.get("query"):
        # A figure is quoted with the query that computed it and its row of the table.
        quote = f"{query} gives {quote}" if quote.startswith("|") else ""
    return {
        "id": str(document.id),
        "source": str(document.metadata.get("source") or document.id),
        "quote": quote or str(document.metadata.get("quote") or document.page_content[:_QUOTE_CHARACTERS]),
    }


def _quotes(claim: str, document: Document) -> list[str]:
    # A summary puts a document's title before its words.
    title = " ".join(f"{document.metadata.get('title')}: ".split())
    copied = " ".join(claim.split()).removeprefix(title).strip("… ").rstrip(" .!?")
    found = Evidence.of([document]).quotes(claim)
    if copied and copied in " ".join(document.page_content.split()):
        # A copied claim is its own quote if no quote holds it whole: a row of a table is cut into several sentences.
        return [next((quote for quote in found if copied in " ".join(quote.split())), copied)]
    return found


def remember(parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime) -> Update:
    """Save the round; no model call."""
    start = time.perf_counter()
    settings = runtime.context
    items, reply = state["items"], state["reply"]
    text, citations, unsupported = reply["text"], reply["citations"], reply["unsupported"]
    clarification = clarification_of(state["plan"])
    documents = {str(document.id): document for document in merge_findings(state["findings"]).documents}
    knowledge = ContextualKnowledgeSet.load(state.get("knowledge_set")).without_question_back()
    knowledge.seed(pairs_of(state))
    extra: RoundExtra = {
        "chain": items,
        "citations": citations,
        "unsupported": unsupported,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "evidence": _uncited(items, documents, citations),
    }
    if asked_back := state.get("asked_back"):
        extra["asked_back"] = asked_back
    solved = [(item["sub_question"], summary(item, documents)) for item in items if item["status"] != "asked"]
    knowledge.add_round(question_of(state), state["plan"]["optimized_question"], solved, text, extra)
    entry = knowledge.rounds[-1]
    if settings.share_knowledge and not clarification:
        sharing.share_round(*sharing.parts_of(runtime.store, settings.user_id, config), entry)
    messages: list[Any] = []
    titles = {id_: str(document.metadata.get("title") or "") for id_, document in documents.items()}
    if not any(message.id == state["asked_message_id"] for message in state.get("messages", [])):
        # The message is a dict, because a message stream would show an object as a part of the answer.
        messages.append({"role": "user", "content": state["asked"], "id": state["asked_message_id"]})
    message = answer_message(text, citations, titles=titles, message_id=reply["message_id"] or str(uuid.uuid4()))
    if clarification:
        message.additional_kwargs[CLARIFICATION] = True
    messages.append(message)
    found = [
        document
        for finding in state["findings"]
        for document in finding["documents"][:_REMEMBERED_PER_LOOK]
        # Documents with these keys were made for this question only, so they are not kept.
        if not {"query", "extract"} & document.metadata.keys() and not clarification
    ]
    evidence_memory = remember_evidence(state.get("evidence_memory") or [], found, entry["round"], settings.evidence_memory)
    costs = {**state["costs"], "remember": node_usage(time.perf_counter() - start)}
    seconds = _turn_seconds(costs, state["findings"], parts.actions)
    return {
        "messages": messages,
        "knowledge_set": knowledge.export(),
        "answer": text,
        "clarification": clarification,
        "citations": citations,
        "unsupported": unsupported,
        "chain": items,
        "evidence_memory": evidence_memory,
        "usage": total_usage(costs, seconds, len(state["recalled"]), state["reused"]),
        # The turn is over: these fields are emptied now, and `recall` empties the others at the next question.
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
            leads.setdefault(lead, citation_of(documents[lead], 0, ()))
    return list(leads.values())


def _turn_seconds(costs: Mapping[str, NodeUsage], findings: Sequence[Finding], actions: Collection[str]) -> float:
    """Seconds of a turn: the sum over its nodes, and for each depth the longest of the parallel branches."""
    depths = {finding["depth"] for finding in findings} - {0}  # depth 0 is in the time of the node `look`
    longest = [max(finding["seconds"] for finding in findings if finding["depth"] == depth) for depth in depths]
    return sum(cost["seconds"] for node, cost in costs.items() if node not in actions) + sum(longest)


def answer_message(
    text: str, citations: Sequence[Citation], *, titles: Mapping[str, str] | None = None, message_id: str | None = None
) -> AIMessage:
    """The answer as a message: one text block of LangChain's standard content, with an annotation for each citation.

    `titles` maps ids of documents to titles; by default the title is the source.
    """
    block = {"type": "text", "text": text, "annotations": citation_annotations(text, citations, titles)}
    content: list[str | dict[Any, Any]] = [block]
    # The format of the blocks: other LangChain model packages translate it.
    return AIMessage(content, id=message_id, response_metadata={"output_version": "v1"})


def citation_annotations(
    text: str, citations: Sequence[Citation], titles: Mapping[str, str] | None = None
) -> list[CitationAnnotation]:
    """One annotation for each [n] in each sentence, in order. It covers the sentence; [1] is the first citation."""
    spans = [(statement.start, statement.end) for statement in statements(text)]
    found: dict[tuple[int, int, int], CitationAnnotation] = {}
    for mark in _MARK.finditer(text):
        number = int(mark.group(1)[:9])
        if not 0 < number <= len(citations):
            continue
        start, end = next(((a, b) for a, b in spans if a <= mark.start() < b), mark.span())
        id_, source, quote = (citations[number - 1][key] for key in ("id", "source", "quote"))
        annotation: CitationAnnotation = {
            "type": "citation",
            "title": (titles or {}).get(id_) or source or id_,
            "start_index": start,
            "end_index": end,
            "cited_text": quote,
            "extras": {"id": id_, "source": source, "number": number},
        }
        if source.lower().startswith(("http://", "https://")):
            annotation["url"] = source
        found.setdefault((start, end, number), annotation)
    return list(found.values())
