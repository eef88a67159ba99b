from __future__ import annotations

import pytest
from langchain_core.documents import Document

from langgraph_convcoa.chain import ChainItem
from langgraph_convcoa.memory.knowledge_set import Citation
from langgraph_convcoa.nodes.answer import finish, from_chain, summary
from langgraph_convcoa.verification.answers import Checker
from tests.fakes import WORDS
from tests.fakes import chain_item as item

FIRST = Document(
    "The network was described in 1982. It stores patterns.", id="a", metadata={"source": "a.md", "quote": "1982."}
)
SECOND = Document("Sparsemax was introduced in 2016.", id="b", metadata={"source": "b.md"})
EVIDENCE = [FIRST, SECOND]


def finished(text: str, *items: ChainItem, evidence: list[Document] = EVIDENCE) -> tuple[str, list[Citation]]:
    return finish(text, items, Checker(evidence, (), WORDS))[:2]


def test_each_sentence_gets_its_own_mark() -> None:
    text, citations = finished("Sparsemax was introduced in 2016. The network was described in 1982. It stores patterns!")
    assert text == "Sparsemax was introduced in 2016 [1]. The network was described in 1982 [2]. It stores patterns [2]!"
    assert [citation["id"] for citation in citations] == ["b", "a"]


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("The network was described in 1982 [7].", "The network was described in 1982 [1]."),
        ("The network was described in 1982 [2].", "The network was described in 1982 [1]."),
        ("The network was described in 1982. [1]", "The network was described in 1982 [1]."),
        ("The network was described in 1982 [1][2][1][2][9].", "The network was described in 1982 [1]."),
        ("Bananas are yellow [1].", "Bananas are yellow."),
        (
            "- It stores patterns\n- Sparsemax was introduced in 2016",
            "- It stores patterns [1]\n- Sparsemax was introduced in 2016 [2]",
        ),
    ],
)
def test_marks_are_those_of_the_evidence_that_says_so(written: str, text: str) -> None:
    assert finished(written)[0] == text


def test_citations_quote_the_sentence_that_supports_the_claim() -> None:
    text, citations = finished("It stores patterns [1].")
    assert text == "It stores patterns [1]."
    assert citations == [{"id": "a", "source": "a.md", "quote": "It stores patterns."}]


def test_a_copied_row_of_a_table_is_quoted_whole() -> None:
    row = Document("item: mug\nprice: 8\nstock: 112", id="row", metadata={"source": "shop.csv"})
    _, [citation] = finished("item: mug price: 8 stock: 112 [1].", evidence=[row])
    assert citation["quote"] == "item: mug price: 8 stock: 112"


def test_a_claim_in_other_words_quotes_the_sentence_that_supports_it() -> None:
    _, [citation] = finished("In 1982 the network was described [1].")
    assert citation["quote"] == "The network was described in 1982."


def test_a_quote_holds_all_that_it_is_cited_for() -> None:
    _, [citation] = finished("It stores patterns [1]. The network was described in 1982 [1].")
    assert citation["quote"] == "The network was described in 1982. … It stores patterns."


def test_an_empty_answer_becomes_the_chain() -> None:
    chain = [
        item(answer="It stores patterns."),
        item("unsupported", ""),
        item("failed", "", reason="no result within 5 s"),
    ]
    text, citations = finished(" ", *chain)
    assert text == "It stores patterns [1]. Nothing was found about “s?”. Could not look up “s?”: no result within 5 s."
    assert [citation["id"] for citation in citations] == ["a"]
    assert from_chain([], EVIDENCE) == "No answer was found."


def test_a_bare_answer_of_a_chain_stands_behind_its_sub_question() -> None:
    chain = [
        item(answer="1982", sub_question="When was it described?"),
        item("unsupported", "", sub_question="Where?"),
    ]
    text, _ = finished(" ", *chain)
    assert text == "When was it described? 1982 [1]. Nothing was found about “Where?”."


def test_a_summary_is_the_answer_with_its_quote() -> None:
    found = {"a": FIRST}
    assert summary(item(), found) == "An answer. — “1982.”"
    assert summary(item(answer="In 1982."), found) == "In 1982."
    assert summary(item("failed", ""), found) == "could not be looked up"
    assert summary(item("unsupported", ""), found) == "not found"
