"""The node `answer`: the final cited answer, without a model call. A person decides about it if `approve` says so."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig

from langgraph_convcoa.chain import SOLVED, ChainItem, chain_item
from langgraph_convcoa.memory.knowledge_set import Citation
from langgraph_convcoa.nodes.correct import STANDS_IN
from langgraph_convcoa.nodes.decisions import ANSWER, CORRECT, NeededText, Review, arguments, decide
from langgraph_convcoa.nodes.evidence import numbers_of
from langgraph_convcoa.nodes.parts import GraphParts, TurnRuntime, Update, emit, show
from langgraph_convcoa.state import ConvCoAState, Reply
from langgraph_convcoa.text.citations import CitationFilter, without_marks
from langgraph_convcoa.text.words import STOPS
from langgraph_convcoa.verification.answers import CheckedSentence, Checker
from langgraph_convcoa.verification.premise import Evidence
from langgraph_convcoa.verification.sentences import renumbered

BY_A_PERSON = "written by a person"
"""The `reason` of a chain item whose answer a person wrote."""
_QUOTE_CHARACTERS = 300
_LONGEST_QUOTE = 900


def answer(parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime) -> Update:
    """Check and complete the citations, and let a person decide if `approve` says so; no model call.

    The event `answer` lists the sentences that no evidence supports.
    """
    reply, origin = state["reply"], state["origin"]
    checker = parts.checker(state, parts.settings(runtime))
    text, citations, checked, removed = finish(reply["text"], state["items"], checker, reply["confirmed"])
    if reply["error"]:
        text = f"The model did not answer ({without_marks(reply['error'])}); these are quotes.\n\n{text}"
    final: Reply = {**reply, "text": text, "citations": citations, "unsupported": _unsupported(checked)}
    update: Update = {"reply": final, "origin": "quotes" if reply["error"] else origin if reply["text"] else "chain"}
    if ANSWER in state["approve"] or (CORRECT in state["approve"] and origin != "plan"):
        update |= _reviewed(parts, state, final, checker)
        final, removed = update["reply"], 0
    emit({"type": "answer", "unsupported": final["unsupported"], "removed_citations": removed})
    shown = final["shown"]
    if final["message_id"] and final["text"].startswith(shown) and len(final["text"]) > len(shown):
        show(final["text"][len(shown) :], final["message_id"])
    return update


def _unsupported(checked: Sequence[CheckedSentence]) -> list[str]:
    return [sentence.plain for sentence in checked if not sentence.stands]


def _reviewed(parts: GraphParts, state: ConvCoAState, reply: Reply, checker: Checker) -> Update:
    """Interrupt the turn until a person has decided about the answer; returns what changes."""
    sources = [f"[{n}] {c['source']}: “{c['quote']}”" for n, c in enumerate(reply["citations"], start=1)]
    about = "\n".join([f"The answer to “{state['asked']}”, before it is kept.", *sources])
    [decided] = decide([Review(ANSWER, arguments(answer=(NeededText, reply["text"])), about)])
    if decided.type == "approve":
        return {}
    if decided.type == "reject":
        return {"reply": {**reply, "text": decided.sentence, "citations": [], "unsupported": []}, "origin": "person"}
    return _written(parts, state, decided.args["answer"], reply, checker)


def _written(parts: GraphParts, state: ConvCoAState, text: str, reply: Reply, checker: Checker) -> Update:
    """Take the answer that a person wrote; its [n] are the numbers of the answer that the person was shown.

    Its citations are checked and completed like a model's. A sentence that no evidence supports stays, and the chain names it.
    """
    numbers = numbers_of(checker.evidence)
    text = renumbered(text, [numbers.get(citation["id"], 0) for citation in reply["citations"]])
    final, citations, checked, _ = finish(text, [], checker, reply["confirmed"])
    unsupported = _unsupported(checked)
    item = chain_item(
        next(iter(parts.actions.actions)),
        state["plan"]["optimized_question"],
        answer=" ".join(sentence.plain for sentence in checked),
        status="unsupported" if unsupported else "corrected",
        score=min((sentence.verdict.score for sentence in checked), default=0.0),
        reason=f"{BY_A_PERSON}; no evidence supports “{unsupported[0]}”" if unsupported else BY_A_PERSON,
        evidence=[citation["id"] for citation in citations],
    )
    # Without a plan, the one item of the chain is the question itself.
    items = [*state["items"], item] if state["plan"]["nodes"] else [item]
    written: Reply = {**reply, "text": final, "citations": citations, "unsupported": unsupported}
    return {"reply": written, "items": items, "origin": "person"}


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


def from_chain(items: Sequence[ChainItem], evidence: Sequence[Document]) -> str:
    """The answers of the chain in order, with citations. A sub-question without an answer is named."""
    numbers = numbers_of(evidence)
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
    quotes: dict[str, int] = {}
    for sentence in checked:
        if number in sentence.cited:
            for quote in _quotes(sentence.cited[number], document) or _quotes(sentence.plain, document):
                quotes.setdefault(quote, document.page_content.find(quote))
    quote = _joined(quotes)
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
        # A claim that is copied word for word is its own quote. A row of a table counts as several sentences.
        return [next((quote for quote in found if copied in " ".join(quote.split())), copied)]
    return found


def _joined(quotes: dict[str, int]) -> str:
    """Quotes in the order of their document, with … between them."""
    ordered = sorted(quotes, key=lambda quote: quotes[quote])
    text = ""
    for quote in ordered:
        if any(quote != other and quote in other for other in ordered):
            continue
        longer = f"{text} … {quote}" if text else quote
        if len(longer) > _LONGEST_QUOTE and text:
            break
        text = longer
    return text
