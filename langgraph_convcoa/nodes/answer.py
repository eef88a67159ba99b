"""The node `answer`: the final cited answer, without a model call; a person decides about it where that is wanted."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig

from langgraph_convcoa.chain import SOLVED, ChainItem
from langgraph_convcoa.memory.knowledge_set import Citation
from langgraph_convcoa.nodes.correct import STANDS_IN
from langgraph_convcoa.nodes.decisions import ANSWER, CORRECT, Review, decide
from langgraph_convcoa.nodes.drafts import Checked, Checker
from langgraph_convcoa.nodes.evidence import numbers_of
from langgraph_convcoa.nodes.parts import GraphParts, TurnRuntime, Update, emit, show
from langgraph_convcoa.state import ConvCoAState, Reply
from langgraph_convcoa.text.citations import CitationFilter, check_citations, without_marks
from langgraph_convcoa.usage import node_usage
from langgraph_convcoa.verification.premise import Evidence

BY_A_PERSON = "written by a person"
"""The reason of the item of the chain that stands for an answer which a person wrote."""
_MARK = re.compile(r"\[(\d+)\]")
_QUOTE_CHARACTERS = 300
_LONGEST_QUOTE = 900


def answer(parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime = None) -> Update:
    """Check and complete the citations, and let a person decide where that is wanted; no model call.

    The event `answer` names what no evidence supports.
    """
    start, settings = time.perf_counter(), parts.settings(runtime)
    checker, reply, origin = parts.checker(state, settings), state["reply"], state["origin"]
    text, citations, checked, removed = finish(reply["text"], state["items"], checker)
    unsupported = [sentence.plain for sentence in checked if not sentence.stands]
    if reply["error"]:
        text = f"The model did not answer ({without_marks(reply['error'])}); these are quotes.\n\n{text}"
    finished: Reply = {**reply, "text": text, "citations": citations, "unsupported": unsupported}
    update: Update = {"reply": finished, "origin": "quotes" if reply["error"] else origin if reply["text"] else "chain"}
    if ANSWER in state["approve"] or (CORRECT in state["approve"] and origin != "plan"):
        update, removed = update | _decided(parts, state, finished, checker, settings.max_sub_questions), 0
    finished = update["reply"]
    emit({"type": "answer", "unsupported": finished["unsupported"], "removed_citations": removed})
    shown = finished["shown"]
    if finished["message_id"] and finished["text"].startswith(shown) and len(finished["text"]) > len(shown):
        show(finished["text"][len(shown) :], finished["message_id"])
    return {**update, "costs": {"answer": node_usage(time.perf_counter() - start)}}


def _decided(parts: GraphParts, state: ConvCoAState, reply: Reply, checker: Checker, most: int) -> Update:
    """What a person makes of the answer; interrupts the turn until then."""
    sources = [f"[{n}] {c['source']}: “{c['quote']}”" for n, c in enumerate(reply["citations"], start=1)]
    about = "\n".join([f"The answer to “{state['asked']}”, before it is kept.", *sources])
    review = Review(ANSWER, {"answer": reply["text"]}, about, "answer")
    [decided] = decide([review], list(parts.actions.actions), most)
    if decided.type == "approve":
        return {}
    if decided.type == "reject":
        return {"reply": {**reply, "text": decided.sentence, "citations": [], "unsupported": []}, "origin": "person"}
    return _written(parts, state, decided.args["answer"], reply, checker)


def _written(parts: GraphParts, state: ConvCoAState, text: str, reply: Reply, checker: Checker) -> Update:
    """What a person wrote in the place of the answer, whose [n] are those of the answer that was shown.

    Its citations are checked and completed like a model's. A sentence that no evidence supports stays, and the chain says so.
    """
    numbers = numbers_of(checker.evidence)
    text, cited, _ = check_citations(text, len(reply["citations"]))
    known = [numbers.get(reply["citations"][n]["id"], 0) for n in cited]
    text = _MARK.sub(lambda mark: f"[{known[int(mark[1]) - 1]}]", text)
    final, citations, checked, _ = finish(text, [], checker)
    if not checked:
        final, citations = text, []
    own = [sentence.plain for sentence in checked if not sentence.stands]
    item: ChainItem = {
        "action": next(iter(parts.actions.actions)),
        "sub_question": state["plan"]["optimized_question"],
        "guess_answer": "",
        "action_input": "",
        "answer": " ".join(sentence.plain for sentence in checked) or text,
        "status": "unsupported" if own else "corrected",
        "score": min((sentence.verdict.score for sentence in checked), default=0.0),
        "reason": f"{BY_A_PERSON}; no evidence supports “{own[0]}”" if own else BY_A_PERSON,
        "evidence": [citation["id"] for citation in citations],
    }
    # Without a chain, the one item there is stands for the question itself.
    items = [*state["items"], item] if state["plan"]["nodes"] else [item]
    written: Reply = {**reply, "text": final, "citations": citations, "unsupported": own}
    return {"reply": written, "items": items, "origin": "person"}


def finish(written: str, items: Sequence[ChainItem], checker: Checker) -> tuple[str, list[Citation], list[Checked], int]:
    """The final text, what its [n] stand for, its sentences, and how many citations of no evidence were taken out.

    Where nothing is written, the solved chain stands for it.
    """
    checked = checker.check(written)
    if not checked:
        checked = checker.check(from_chain(items, checker.evidence))
    marks = CitationFilter(len(checker.evidence))
    text = "".join(sentence.shown(marks) for sentence in checked) + marks.close()
    citations = [citation_of(checker.evidence[index], index + 1, checked) for index in marks.cited]
    return text, citations, checked, marks.removed + sum(sentence.removed for sentence in checked)


def from_chain(items: Sequence[ChainItem], evidence: Sequence[Document]) -> str:
    """The answers of the chain one after another, cited; and plainly what has none."""
    numbers = numbers_of(evidence)
    parts: list[str] = []
    for item in items:
        if item["status"] in SOLVED and item["answer"]:
            number = numbers.get(item["evidence"][0]) if item["evidence"] else None
            text = without_marks(item["answer"]).rstrip(". ")
            # What is only copied from a document is marked as that, here and in the prompts of later turns.
            told = f"“{text}”" if item["reason"].startswith(STANDS_IN) else text
            if len(items) > 1 and not item["answer"].rstrip().endswith((".", "!", "?", "。")):
                # A bare "1603" answers one of several sub-questions.
                told = f"{without_marks(item['sub_question'])} {told}"
            parts.append(f"{told}{f' [{number}]' if number else ''}.")
        elif item["status"] == "failed":
            reason = without_marks(item["reason"]).rstrip(".")
            parts.append(f"Could not look up “{without_marks(item['sub_question'])}”: {reason}.")
        else:
            parts.append(f"Nothing was found about “{without_marks(item['sub_question'])}”.")
    return " ".join(parts) or "No answer was found."


def citation_of(document: Document, number: int, checked: Sequence[Checked]) -> Citation:
    """A citation whose quote holds what it is cited for: of each sentence that cites it, the document's own words."""
    quotes: dict[str, int] = {}
    for sentence in checked:
        if number in sentence.cited:
            for quote in _quotes(sentence.cited[number], document) or _quotes(sentence.plain, document):
                quotes.setdefault(quote, document.page_content.find(quote))
    quote = _joined(quotes)
    if query := document.metadata.get("query"):
        # A figure says nothing without the query that gave it; a row of the table below is quoted with it.
        quote = f"{query} gives {quote}" if quote.startswith("|") else ""
    return {
        "id": str(document.id),
        "source": str(document.metadata.get("source") or document.id),
        "quote": quote or str(document.metadata.get("quote") or document.page_content[:_QUOTE_CHARACTERS]),
    }


def _quotes(claim: str, document: Document) -> list[str]:
    # A summary puts a document's title before its words.
    named = " ".join(f"{document.metadata.get('title')}: ".split())
    copied = " ".join(claim.split()).removeprefix(named).strip("… ").rstrip(" .!?")
    found = Evidence.of([document]).quotes(claim)
    if copied and copied in " ".join(document.page_content.split()):
        # Word for word, which may be more than one of the document's sentences, as a table's row is.
        return [next((quote for quote in found if copied in " ".join(quote.split())), copied)]
    return found


def _joined(quotes: dict[str, int]) -> str:
    """Quotes in the order of their document, with … between them."""
    ordered = sorted(quotes, key=lambda quote: quotes[quote])
    chosen = [quote for quote in ordered if not any(quote != other and quote in other for other in ordered)]
    text = ""
    for quote in chosen:
        longer = f"{text} … {quote}" if text else quote
        if len(longer) > _LONGEST_QUOTE and text:
            break
        text = longer
    return text
