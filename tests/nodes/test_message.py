"""Citations on the final message: where their sentences stand, what they say of the source, and how the message is kept."""

from __future__ import annotations

import httpx
import pytest
from langchain_core.messages import HumanMessage
from langchain_core.messages.content import Citation as CitationAnnotation
from langchain_openai import ChatOpenAI
from pydantic import TypeAdapter

from langgraph_convcoa.memory.knowledge_set import Citation, read_conversation
from langgraph_convcoa.nodes.answer import answer_message, citation_annotations

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
