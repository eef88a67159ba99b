"""The picture of a turn: what it shows, and that no text of a document or a model is more than text in it."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from langgraph_convcoa.cli.app import app
from langgraph_convcoa.cli.picture import turn_svg
from tests.fake_encoder import WordEncoder

NAMESPACE = "{http://www.w3.org/2000/svg}"
ITEM = {
    "sub_question": "When was it described?",
    "action": "knowledge_retrieval",
    "guess_answer": "In 1983.",
    "answer": "In 1982.",
    "status": "corrected",
    "score": 0.9,
    "reason": "",
    "evidence": ["a.md#1", "b.md"],
    "paths": {"b.md": ["question", "Hopfield"]},
}
HOSTILE = [
    "<script>alert(1)</script>",
    '"/><image href="x" onerror="alert(1)"/>',
    "]]></text><foreignObject><iframe src='javascript:alert(1)'/></foreignObject>",
    "<!DOCTYPE svg [<!ENTITY x SYSTEM 'file:///etc/passwd'>]>&x;",
    "<a xlink:href='javascript:alert(1)'>x</a>",
    "</svg><style>*{display:none}</style>",
    "a\x00b\x1b[31mc\ufffe\ud800\u202ed",
    "w" * 5_000,
]


def texts(picture: str) -> list[str]:
    """The lines of a picture, which holds nothing but what is drawn."""
    root = ElementTree.fromstring(picture)
    drawn = ("title", "rect", "line", "circle", "text")
    assert {element.tag for element in root.iter()} <= {NAMESPACE + name for name in ("svg", *drawn)}
    names = {name for element in root.iter() for name in element.attrib}
    assert not [name for name in names if "href" in name or name.startswith("on") or name == "style"]
    return [element.text or "" for element in root.iter(f"{NAMESPACE}text")]


def test_it_shows_the_question_each_sub_question_and_the_answer() -> None:
    knowledge = {"Contextual knowledge set": [{"optimized_question": "When was the network described?"}]}
    usage = {"llm_calls": 1, "input_tokens": 10, "output_tokens": 2, "retrievals": 1, "seconds": 0.5}
    output = {
        "answer": "In 1982 [1].",
        "chain": [ITEM, {**ITEM, "status": "failed", "reason": "it is down", "answer": ""}],
        "citations": [{"id": "a.md#1", "source": "a.md", "quote": "q"}],
        "usage": usage,
        "knowledge_set": knowledge,
    }
    assert texts(turn_svg("When?", output)) == [
        *("When?", "understood as: When was the network described?"),
        *("corrected 0.90 · knowledge_retrieval", "When was it described?", "guess: In 1983.", "answer: In 1982."),
        *("evidence: [1] a.md#1, b.md", "path: question → Hopfield"),
        *("failed · knowledge_retrieval", "When was it described?", "guess: In 1983.", "reason: it is down"),
        *("evidence: [1] a.md#1, b.md", "path: question → Hopfield"),
        *("In 1982 [1].", "[1] a.md", "1 model call, 10 + 2 tokens, 1 retrieval, 0.5 s"),
        *("Q", "1", "2", "A"),
    ]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_text(text: str) -> None:
    item = {**dict.fromkeys(ITEM, text), "status": text, "score": 0.5, "evidence": [text], "paths": {text: [text]}}
    output = {"answer": text, "chain": [item], "citations": [{"id": text, "source": text}]}
    lines = texts(turn_svg(text, output))
    assert max(map(len, lines)) < 140, "lines fit their card"
    if text.isprintable() and len(text) < 100:
        assert " ".join(text.split()) in " ".join(lines)
    turn_svg(text, output).encode()


def test_ask_draws_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = WordEncoder()
    monkeypatch.setattr("langgraph_convcoa.retrieval.retriever.as_encoder", lambda _encoder: words)
    (tmp_path / "facts.md").write_text("Sparsemax was introduced by Martins and Astudillo in 2016.")
    place = tmp_path / "turn.svg"
    ask = ["ask", "Who introduced sparsemax?", "--docs", str(tmp_path / "facts.md"), "--no-cache", "--picture"]
    done = CliRunner().invoke(app, [*ask, str(place)])
    assert done.exit_code == 0, done.output
    assert "evidence: [1] facts.md" in texts(place.read_text())
    words.encoded.clear()
    for wrong, message in (("turn.png", "SVG: give a name that ends in .svg"), ("no/turn.svg", "there is no folder")):
        refused = CliRunner().invoke(app, [*ask, str(tmp_path / wrong)])
        assert (refused.exit_code, words.encoded) == (2, []), "before anything is encoded"
        assert message in refused.stderr
