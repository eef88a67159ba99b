from __future__ import annotations

import httpx
import pytest
from langchain_core.documents import Document
from langchain_core.messages import HumanMessage
from langchain_core.messages.content import Citation as CitationAnnotation
from langchain_openai import ChatOpenAI
from pydantic import TypeAdapter

from langgraph_convcoa.chain import ChainItem
from langgraph_convcoa.memory.knowledge_set import Citation
from langgraph_convcoa.nodes.answer import answer_message, citation_annotations, finish, from_chain, summary
from langgraph_convcoa.nodes.plan import read_conversation
from langgraph_convcoa.verification.answer_check import Checker
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
    chain = [item(answer="It stores patterns."), item("unsupported", ""), item("failed", "", reason="no result within 5 s")]
    text, citations = finished(" ", *chain)
    assert text == "It stores patterns [1]. Nothing was found about “s?”. Could not look up “s?”: no result within 5 s."
    assert [citation["id"] for citation in citations] == ["a"]
    assert from_chain([], EVIDENCE) == "No answer was found."


def test_a_bare_answer_of_a_chain_stands_behind_its_sub_question() -> None:
    chain = [item(answer="1982", sub_question="When was it described?"), item("unsupported", "", sub_question="Where?")]
    text, _ = finished(" ", *chain)
    assert text == "When was it described? 1982 [1]. Nothing was found about “Where?”."


def test_a_summary_is_the_answer_with_its_quote() -> None:
    found = {"a": FIRST}
    assert summary(item(), found) == "An answer. — “1982.”"
    assert summary(item(answer="In 1982."), found) == "In 1982."
    assert summary(item("failed", ""), found) == "could not be looked up"
    assert summary(item("unsupported", ""), found) == "not found"


CITED: list[Citation] = [
    {"id": "hopfield.md#0", "source": "hopfield.md", "quote": "Hopfield described the network in 1982."},
    {"id": "p2", "source": "https://example.org/sparsemax", "quote": "Sparsemax is from 2016."},
]


def marked(text: str) -> list[tuple[str, int]]:
    found = []
    for annotation in citation_annotations(text, CITED):
        sentence = text[annotation["start_index"] : annotation["end_index"]]
        found.append((sentence, annotation["extras"]["number"]))
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It was 1982 [1]. It has no mark.", [("It was 1982 [1].", 1)]),
        ("It was 1982. [1] Next [2].", [("It was 1982. [1]", 1), ("Next [2].", 2)]),
        ("Both [1][2].", [("Both [1][2].", 1), ("Both [1][2].", 2)]),
        ("Twice [1], once more [1].", [("Twice [1], once more [1].", 1)]),
        ("- one [1]\n- two [2]", [("- one [1]", 1), ("- two [2]", 2)]),
        ("First line.\n[2]", [("[2]", 2)]),
        ("🦜 parrots [1]. 何时 [2]。", [("🦜 parrots [1].", 1), ("何时 [2]。", 2)]),
        ("No such source [7] and [0]. None.", []),
        ("", []),
    ],
)
def test_each_mark_stands_for_the_sentence_that_carries_it(text: str, expected: list[tuple[str, int]]) -> None:
    assert marked(text) == expected


def test_an_annotation_is_langchains_own_and_names_the_source() -> None:
    titles = {"hopfield.md#0": "Hopfield networks"}
    first, second = citation_annotations("It was 1982 [1]. The other [2].", CITED, titles)
    for annotation in (first, second):
        TypeAdapter(CitationAnnotation).validate_python(annotation, strict=True, extra="forbid")
    assert first["title"] == "Hopfield networks"
    assert "url" not in first, "a file is no address"
    assert first["cited_text"] == CITED[0]["quote"]
    assert second["url"] == "https://example.org/sparsemax"
    assert second["title"] == "https://example.org/sparsemax"
    assert second["extras"] == {"id": "p2", "source": "https://example.org/sparsemax", "number": 2}


@pytest.mark.parametrize(
    ("text", "cited"), [("It was 1982 [1].\n\n  Two spaces stay. ", CITED), ("Nothing was found.", []), ("", [])]
)
def test_the_content_is_one_text_block_whatever_is_cited(text: str, cited: list[Citation]) -> None:
    message = answer_message(text, cited)
    assert isinstance(message.content, list)
    assert [(block["type"], block["text"]) for block in message.content if isinstance(block, dict)] == [("text", text)]
    assert message.text == text


def test_the_next_turn_reads_the_text_of_the_answer() -> None:
    message = answer_message("It was 1982 [1].", CITED)
    asked = read_conversation(None, [HumanMessage("When?"), message, HumanMessage("Who?")])
    assert asked.history == [("When?", "It was 1982 [1].")]


def test_another_model_is_sent_the_text_without_the_annotations() -> None:
    sent: list[str] = []

    def reply(request: httpx.Request) -> httpx.Response:
        sent.append(request.content.decode())
        message = {"role": "assistant", "content": "Fine."}
        return httpx.Response(200, json={"choices": [{"index": 0, "finish_reason": "stop", "message": message}]})

    client = httpx.Client(transport=httpx.MockTransport(reply))
    model = ChatOpenAI(model="m", api_key="none", base_url="http://127.0.0.1/v1", http_client=client)  # type: ignore[arg-type]
    model.invoke([HumanMessage("When?"), answer_message("It was 1982 [1].", CITED), HumanMessage("Sure?")])
    assert "It was 1982 [1]." in sent[0]
    assert "annotations" not in sent[0]
    client.close()
