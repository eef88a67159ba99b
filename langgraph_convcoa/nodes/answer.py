"""The node `answer`: the final cited answer, without a model call."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.documents import Document
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig

from langgraph_convcoa.chain import SOLVED, ChainItem
from langgraph_convcoa.memory.knowledge_set import Citation
from langgraph_convcoa.nodes.correct import STANDS_IN, numbers_of
from langgraph_convcoa.nodes.drafts import Checked, Checker
from langgraph_convcoa.nodes.review import ANSWER, CORRECT
from langgraph_convcoa.nodes.runtime import Call, Steps, TurnRuntime, emit
from langgraph_convcoa.reasoning.streaming import Shown
from langgraph_convcoa.state import ConvCoAState
from langgraph_convcoa.text.citations import CitationFilter, without_marks
from langgraph_convcoa.verification.premise import Evidence

_QUOTE_CHARACTERS = 300
_LONGEST_QUOTE = 900


def answer(turn: TurnRuntime, state: ConvCoAState, config: RunnableConfig) -> Steps:
    """Citations are checked and completed in code; what no evidence supports is named in the event `answer`."""
    checker = turn.checker(state)
    text, citations, checked, removed = finish(state["written"], state["items"], checker)
    unsupported = [sentence.plain for sentence in checked if not sentence.stands]
    emit({"type": "answer", "unsupported": unsupported, "removed_citations": removed})
    shown, message_id = state["shown"], state["final_message_id"]
    # What is still to be approved is shown when it is kept.
    if message_id and not awaits_approval(state) and text.startswith(shown) and len(text) > len(shown):
        rest = Shown(text=text[len(shown) :], message_id=message_id)
        yield Call(rest.invoke, rest.ainvoke, ([HumanMessage("")], config))
    return {"final": text, "final_citations": citations, "final_unsupported": unsupported}


def awaits_approval(state: ConvCoAState) -> bool:
    """Whether a person wants to see this answer before it is kept: any, or one that the first model call did not settle."""
    at_once = state["written"] and state["written"] == state["plan"]["draft_answer"]
    return ANSWER in state["approve"] or (CORRECT in state["approve"] and not at_once)


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
