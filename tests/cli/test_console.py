"""What a turn looks like."""

from __future__ import annotations

import io
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from langgraph_convcoa.cli.console import TurnView, chain_line, citation_line, one_line, show_sources, show_why, turn_svg
from tests.cli.commands import convcoa, error_of
from tests.fake_encoder import WordEncoder

OUTPUT = {
    "answer": "In 1982 [1].",
    "citations": [{"id": "a.md#2", "source": "a.md", "quote": "It was\n1982."}],
    "chain": [
        {
            "action": "knowledge_retrieval", "sub_question": "When?", "guess_answer": "1983", "answer": "1982",
            "status": "corrected", "score": 0.25, "reason": "[1] says so", "evidence": ["a.md#2"],
            "paths": {"a.md#2": ["question", "Ed Wood", '"Tim Burton"', "Tim Burton"]},
        }
    ],
    "usage": {"llm_calls": 1, "input_tokens": 12345, "output_tokens": 6, "retrievals": 2, "seconds": 0.04},
}  # fmt: skip


def text_console() -> Console:
    return Console(file=io.StringIO(), width=200, soft_wrap=True, highlight=False)


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture
def out() -> Console:
    return text_console()


@pytest.fixture
def err() -> Console:
    return text_console()


def sub_question(status: str, **more: object) -> dict[str, object]:
    return {
        "type": "sub_question", "index": 0, "sub_question": "When?", "action": "web", "status": status, "score": 0.5, **more,
    }  # fmt: skip


def test_a_streamed_answer_is_shown_once_and_its_citations_after_it(out: Console, err: Console) -> None:
    with TurnView(out, err) as view:
        for piece in ("In 19", "82", " [1].", ""):
            view.token(piece)
        view.finish(OUTPUT)
    assert shown(out) == 'In 1982 [1].\n\n[1] a.md - "It was 1982."\n'
    assert shown(err) == "1 model call, 12,345 + 6 tokens, 2 retrievals, 0.0 s\n"


def test_an_answer_that_was_not_streamed_is_shown_at_the_end(out: Console, err: Console) -> None:
    with TurnView(out, err) as view:
        view.finish(OUTPUT)
    assert shown(out).startswith("In 1982 [1].\n\n[1] ")


def test_a_turn_that_breaks_off_ends_its_line(out: Console, err: Console) -> None:

    def turn() -> None:
        with TurnView(out, err) as view:
            view.token("In 19")
            raise ValueError

    with pytest.raises(ValueError):
        turn()
    assert shown(out) == "In 19\n"


def test_progress_does_not_break_a_line_of_the_answer() -> None:
    both = text_console()
    with TurnView(both, both) as view:
        view.token("In 1982")
        view.progress(sub_question("kept"))
        view.token(" [1].")
        view.finish(OUTPUT)
    assert shown(both).splitlines()[:3] == ["In 1982 [1].", "  1. web kept 0.50  When?", ""]


def test_each_sub_question_is_shown_when_it_is_decided_and_again_only_if_that_changes(err: Console) -> None:
    with TurnView(text_console(), err) as view:
        for status in ("searching", "found", "unsupported", "unsupported", "corrected"):
            view.progress(sub_question(status, reason="looked deeper"))
        view.progress({"type": "plan", "sub_questions": ["When?"]})
        view.progress({"type": "something new"})
    lines = shown(err).splitlines()
    assert [line.split()[2] for line in lines] == ["unsupported", "corrected"]
    assert lines[1] == "  1. web corrected 0.50  When? (looked deeper)"


def test_a_sentence_that_no_evidence_supports_is_marked_where_it_stands(out: Console, err: Console) -> None:
    with TurnView(out, err) as view:
        view.progress({"type": "answer", "unsupported": ["It sold well."]})
        view.token("It was built in 1878 [1]. It sold well. ")
        view.token("It fell.")
        view.finish({"answer": "It was built in 1878 [1]. It sold well. It fell."})
    assert shown(out).splitlines()[0] == "It was built in 1878 [1]. It sold well. It fell."
    assert "no evidence supports: It sold well." in shown(err)


def test_a_question_back_says_that_the_next_message_answers_it(out: Console, err: Console) -> None:
    TurnView(out, err).finish({"answer": "Which one?", "clarification": "Which one?"})
    assert (shown(out), "the next message of this conversation" in shown(err)) == ("Which one?\n", True)


@pytest.mark.parametrize("status", ["kept", "confirmed", "corrected", "filled", "recalled", "asked", "unsupported"])
def test_a_status_comes_with_its_score(status: str) -> None:
    assert f"web {status} 0.50  When?" in chain_line(1, sub_question(status, reason="x")).plain


def test_a_failure_comes_with_its_reason_and_no_score() -> None:
    assert chain_line(2, sub_question("failed", reason="timed out")).plain == "  2. web failed  When? (timed out)"


def test_colours_are_for_terminals() -> None:
    plain = text_console()
    plain.print(chain_line(1, sub_question("kept")))
    assert "\x1b" not in shown(plain)
    coloured = Console(file=io.StringIO(), force_terminal=True, color_system="standard")
    coloured.print(chain_line(1, sub_question("kept")))
    assert "\x1b[32mkept" in shown(coloured)


def test_why_and_sources_tell_where_the_answer_comes_from(err: Console) -> None:
    show_why(err, OUTPUT)
    show_sources(err, OUTPUT)
    for part in ("guess: 1983", "answer: 1982", "reason: [1] says so", "evidence: a.md#2", "[1] a.md#2", "It was\n1982."):
        assert part in shown(err)
    assert 'path: question -> Ed Wood -> "Tim Burton" -> Tim Burton\n' in shown(err)
    empty = text_console()
    show_why(empty, {"chain": []})
    show_sources(empty, {"citations": []})
    assert shown(empty).splitlines() == [
        "There was no sub-question: one retrieval on the question itself.",
        "The answer cites nothing.",
    ]


@pytest.mark.parametrize(
    ("identity", "line"),
    [
        ("paper.pdf:page-3#1", "[1] paper.pdf (page-3#1)"), ("paper.pdf#4", "[1] paper.pdf"),
        ("row-7", "[1] paper.pdf (row-7)"), ("", "[1] paper.pdf"),
    ],
)  # fmt: skip
def test_a_citation_names_the_part_of_its_source(identity: str, line: str) -> None:
    assert citation_line(1, {"id": identity, "source": "paper.pdf"}) == line


def test_markup_in_retrieved_text_is_text(out: Console, err: Console) -> None:
    answer = "[red]not red[/red] [link=x]y[/link] :smile:"
    with TurnView(out, err) as view:
        view.progress(sub_question("kept", sub_question="[bold]x[/bold]"))
        view.token(answer)
        view.finish({"answer": answer, "citations": [{"id": "a", "source": "a", "quote": "[b]q[/b]"}]})
    assert answer in shown(out)
    assert "[b]q[/b]" in shown(out)
    assert "[bold]x[/bold]" in shown(err)


@given(st.text(min_size=1), st.integers(min_value=1, max_value=50))
def test_one_line_is_one_line_within_its_limit(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line.splitlines()) <= 1
    assert len(line) <= limit + 1


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
