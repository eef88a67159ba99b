"""Fuzzing of what a model may write: whatever it is, it is read, and what is read of it can be kept and shown."""

from __future__ import annotations

import itertools
import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.documents import Document

from langgraph_convcoa.reasoning.parsing import parse_chain, parse_corrections, parse_inputs, read_json
from langgraph_convcoa.reasoning.streaming import AnswerStream, SentenceGate
from langgraph_convcoa.text.clean import clean, clean_value
from langgraph_convcoa.verification.answer_check import Checker
from tests.fakes import WORDS
from tests.fuzz import fuzzed

PIECES = [
    '{"optimized_question": "q", "chain": [', '{"action": "docs", "sub": "Who?", "guess_answer": "Ada [1]."}',
    '], "final_answer": "', '{"answers": [', '{"index": 1, "answer": "In 1982.", "evidence": [1], "status": "partial"}',
    '"inputs": [', '"', "'", "“", "\\", "\\u0000", "\\ud83d", "\\ude00", "\ud83d", "\x00", "\x1b[31m", "{", "}", "[", "]",
    ":", ",", "[1]", "[1[9]3]", "```json\n", "```", "<think>", "</think>", "null", "NaN", "1e999", "9" * 5000,
    "[" * 600, '{"a":' * 600,
    "It was opened in 1878. ", " " * 50, "\n", "/*", "//",
]  # fmt: skip
KEYS = ("chain", "sub", "action", "guess_answer", "action_input", "final_answer", "answers", "inputs", "index", "evidence")
TEXTS = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=12)), max_size=14).map("".join)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(PIECES),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4) | st.sampled_from(KEYS), inner, max_size=5)
    ),
    max_leaves=25,
)
SHALLOW = st.text(max_size=20) | st.lists(st.text(max_size=5), max_size=4)
EVIDENCE = [Document("The Tay Bridge was opened in 1878. It fell in 1879.", id="a"), Document("Ada wrote it.", id="b")]


def storable(value: Any) -> None:
    """A value that every store, every encoder and every terminal takes."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=vars)
    assert "\x00" not in text
    text.encode()


def read_all(output: Any) -> None:
    chain = parse_chain(output, question="Who?", actions=["docs", "web"])
    if chain is not None:
        storable(chain.model_dump())
        assert all(node.action in ("docs", "web") and node.sub_question for node in chain.nodes)
    storable(parse_corrections(output))
    storable(parse_inputs(output))


@fuzzed
@given(TEXTS)
@example("[" * 100_000)
@example('{"chain": ' + "[" * 600 + "]" * 600 + "}")
@example('{"final_answer": "\\ud83d')
def test_any_text_is_read(text: str) -> None:
    read_all(text)
    storable(read_json(text))


@fuzzed
@given(VALUES)
def test_any_value_is_read(value: Any) -> None:
    read_all(json.dumps(value))
    if isinstance(value, dict):
        read_all(value)


@fuzzed
@given(VALUES, st.integers(0, 400), st.sampled_from(["", '"', "'", ",", "}", "]", "\\", " "]))
def test_json_that_is_broken_off_or_disturbed_is_read(value: Any, place: int, sign: str) -> None:
    text = json.dumps({"chain": value})
    read_all(text[:place])
    read_all(text[:place] + sign + text[place:])


@fuzzed
@given(st.dictionaries(st.text(max_size=5), SHALLOW, min_size=1, max_size=6))
def test_what_is_json_is_read_as_json(value: dict[str, Any]) -> None:
    assert read_json(f"Here you are: {json.dumps(value)}") == clean_value(value)


@fuzzed
@given(TEXTS, st.lists(st.integers(1, 9), min_size=1, max_size=8))
@example('{"chain": [], "final_answer": "It was 😀 \\"big\\" \\\\ud83d \\ud83d\\ude00."}', [1])
def test_what_is_streamed_of_an_answer_only_grows(text: str, sizes: list[int]) -> None:
    shown: list[str] = []
    gate = SentenceGate(Checker(EVIDENCE, [], WORDS), lambda piece, _: shown.append(piece))
    stream, place = AnswerStream(gate, whole_answer=True), 0
    for n in itertools.count():
        if place >= len(text):
            break
        stream.feed(text[place : place + sizes[n % len(sizes)]])
        place += sizes[n % len(sizes)]
    assert stream.close() == text
    assert "".join(shown) == gate.shown
    storable(gate.shown)


@fuzzed
@given(TEXTS)
def test_any_answer_is_checked(text: str) -> None:
    checked = Checker(EVIDENCE, [("When?", "In 1878.")], WORDS).check(clean(text))
    assert all(1 <= number <= len(EVIDENCE) for sentence in checked for number in sentence.cited)
    assert sum(len("".join(sentence.plain.split())) for sentence in checked) <= len(text)
