"""The picture of a turn: what it shows, and that no text of a document or a model is more than text in it."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from langgraph_convcoa.cli.console import turn_svg
from tests.cli.commands import convcoa, error_of
from tests.fake_encoder import WordEncoder

NAMESPACE = "{http://www.w3.org/2000/svg}"
ITEM = {
    "sub_question": "When was it described?", "action": "knowledge_retrieval", "guess_answer": "In 1983.",
    "answer": "In 1982.", "status": "corrected", "score": 0.9, "reason": "", "evidence": ["a.md#1", "b.md"],
    "paths": {"b.md": ["question", "Hopfield"]},
}  # fmt: skip
HOSTILE = [
    "<script>alert(1)</script>", '"/><image href="x" onerror="alert(1)"/>',
    "]]></text><foreignObject><iframe src='javascript:alert(1)'/></foreignObject>",
    "<!DOCTYPE svg [<!ENTITY x SYSTEM 'file:///etc/passwd'>]>&x;", "<a xlink:href='javascript:alert(1)'>x</a>",
    "</svg><style>*{display:none}</style>", "a\x00b\x1b[31mc\ufffe\ud800\u202ed", "w" * 5_000,
]  # fmt: skip


def lines(picture: str) -> str:
    """The text of a picture, which holds nothing but what is drawn, and fetches nothing."""
    root = ElementTree.fromstring(picture)
    drawn = ("svg", "style", "defs", "clipPath", "rect", "g", "circle", "text")
    assert {element.tag for element in root.iter()} <= {NAMESPACE + name for name in drawn}
    names = {name for element in root.iter() for name in element.attrib}
    assert not [name for name in names if "href" in name or name.startswith("on")]
    assert "url(http" not in picture
    return " ".join(" ".join((element.text or "").split()) for element in root.iter(f"{NAMESPACE}text"))


def test_it_shows_the_question_each_sub_question_and_the_answer() -> None:
    output = {
        "answer": "In 1982 [1].",
        "chain": [ITEM, {**ITEM, "status": "failed", "reason": "it is down", "answer": ""}],
        "citations": [{"id": "a.md#1", "source": "a.md", "quote": "q"}],
        "usage": {"llm_calls": 1, "input_tokens": 10, "output_tokens": 2, "retrievals": 1, "seconds": 0.5},
        "knowledge_set": {"Contextual knowledge set": [{"optimized_question": "When was the network described?"}]},
    }
    shown = lines(turn_svg("When?", output))
    for part in (
        *("understood as: When was the network described?", "knowledge_retrieval", "corrected", "When was it described?"),
        *("guess: In 1983.", "answer: In 1982.", "evidence: a.md#1, b.md", "path: question -> Hopfield", "failed"),
        *("it is down", "In 1982 [1].", '[1] a.md - "q"', "1 model call, 10 + 2 tokens, 1 retrieval, 0.5 s"),
    ):
        assert part in shown


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_text(text: str) -> None:
    item = {**dict.fromkeys(ITEM, text), "status": text, "score": 0.5, "evidence": [text], "paths": {text: [text]}}
    output = {"answer": text, "chain": [item], "citations": [{"id": text, "source": text}]}
    picture = turn_svg(text, output)
    shown = lines(picture)
    if text.isprintable() and len(text) < 100:
        assert " ".join(text.split()) in shown
    picture.encode()


def test_ask_draws_its_turn(docs: Path, tmp_path: Path, encoder: WordEncoder) -> None:
    ask = ("ask", "Who introduced sparsemax?", "--docs", docs, "--picture")
    assert convcoa(*ask, tmp_path / "turn.svg").exit_code == 0
    assert "[1] sparsemax.txt" in lines((tmp_path / "turn.svg").read_text())
    encoder.encoded.clear()
    for wrong, message in (("turn.png", "SVG: give a name that ends in .svg"), ("no/turn.svg", "there is no folder")):
        assert message in error_of(convcoa(*ask, tmp_path / wrong))
    assert encoder.encoded == [], "before anything is encoded"
