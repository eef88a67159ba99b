from __future__ import annotations

from typing import Any

import pytest
from langchain_core.documents import Document

from langgraph_convcoa import ConvCoAContext
from langgraph_convcoa.chain import ChainItem, Status
from langgraph_convcoa.nodes.answer import draft_answer, finish, from_chain
from langgraph_convcoa.nodes.remember import summary
from langgraph_convcoa.reasoning.base import Answer, AnswerRequest

FIRST = Document(
    "The network was described in 1982. It stores patterns.", id="a", metadata={"source": "a.md", "quote": "1982."}
)
SECOND = Document("Sparsemax was introduced in 2016.", id="b", metadata={"source": "b.md"})


def item(status: Status = "kept", answer: str = "An answer.", evidence: tuple[str, ...] = ("a",), **more: Any) -> ChainItem:
    base = {"action": "x", "sub_question": "s?", "guess_answer": "", "action_input": "", "score": 1.0, "reason": ""}
    return {**base, "answer": answer, "status": status, "evidence": list(evidence), **more}  # type: ignore[typeddict-item]


def request(*items: ChainItem) -> AnswerRequest:
    return AnswerRequest("q?", "q?", list(items), [FIRST, SECOND])


def drafted(draft: str, *items: ChainItem, **settings: Any) -> Answer | None:
    chain = list(items) or [item()]
    state: Any = {"plan": {"draft_answer": draft}, "items": chain}
    return draft_answer(state, request(*chain), ConvCoAContext(**settings))


def test_each_sentence_of_a_draft_gets_its_own_mark() -> None:
    found = drafted("Sparsemax was introduced in 2016. The network was described in 1982. It stores patterns!")
    assert found is not None
    assert found.text == "Sparsemax was introduced in 2016 [1]. The network was described in 1982 [2]. It stores patterns [2]!"
    assert list(found.cited) == [1, 0]


def test_marks_that_the_draft_brings_are_not_trusted() -> None:
    found = drafted("The network was described in 1982 [7].")
    assert found is not None
    assert found.text == "The network was described in 1982 [1]."


@pytest.mark.parametrize(
    "draft",
    [
        "",
        "The network was described in 1899.",
        "The network was described in 1982. Bananas are yellow.",
        "The network was not described in 1982.",
        "🦜",
    ],
)
def test_a_draft_that_is_not_supported_is_not_taken(draft: str) -> None:
    assert drafted(draft) is None


@pytest.mark.parametrize("status", ["corrected", "filled", "unsupported", "failed"])
def test_a_draft_is_not_taken_beside_a_guess_that_failed(status: Status) -> None:
    assert drafted("It stores patterns.", item(), item(status)) is None


def test_a_higher_threshold_makes_the_draft_harder_to_take() -> None:
    loose = "The old network was described in 1982."
    assert drafted(loose) is not None
    assert drafted(loose, threshold=0.99) is None


def test_citations_quote_the_sentence_that_supports_the_claim() -> None:
    text, citations, message = finish(Answer("It stores patterns [1].", [0], message_id="m"), request())
    assert (text, message) == ("It stores patterns [1].", "m")
    assert citations == [{"id": "a", "source": "a.md", "quote": "It stores patterns."}]


def test_a_copied_row_of_a_table_is_quoted_whole() -> None:
    row = Document("item: mug\nprice: 8\nstock: 112", id="row", metadata={"source": "shop.csv"})
    _, [citation], _ = finish(Answer("item: mug price: 8 stock: 112 [1]."), AnswerRequest("q?", "q?", [], [row]))
    assert citation["quote"] == "item: mug price: 8 stock: 112"


def test_a_claim_in_other_words_quotes_the_sentence_that_supports_it() -> None:
    _, [citation], _ = finish(Answer("In 1982 the network was described [1]."), request())
    assert citation["quote"] == "The network was described in 1982."


def test_a_reasoner_may_cite_by_position() -> None:
    text, citations, _ = finish(Answer("B [2], not [9], A [1]."), request())
    assert text == "B [1], not, A [2]."
    assert [citation["id"] for citation in citations] == ["b", "a"]


def test_an_empty_answer_becomes_the_chain() -> None:
    chain = [item(), item("unsupported", ""), item("failed", "", reason="no result within 5 s")]
    text, citations, message = finish(Answer(" ", message_id="streamed and empty"), request(*chain))
    assert text == "An answer [1]. Nothing was found about “s?”. Could not look up “s?”: no result within 5 s."
    assert [citation["id"] for citation in citations] == ["a"]
    assert message == ""
    assert from_chain(request()) == "No answer was found."


def test_a_summary_is_the_answer_with_its_quote() -> None:
    found = {"a": FIRST}
    assert summary(item(), found) == "An answer. — “1982.”"
    assert summary(item(answer="In 1982."), found) == "In 1982."
    assert summary(item("failed", ""), found) == "could not be looked up"
    assert summary(item("unsupported", ""), found) == "not found"
