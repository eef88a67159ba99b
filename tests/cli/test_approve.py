"""Approval at the terminal: what is shown, and what is made of the keys."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from rich.console import Console

from langgraph_convcoa.cli.approve import ask_decisions
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.nodes.review import Review, read_decisions, review_request

SQL = Review(
    "data_analysis",
    {"sub_question": "How many?", "guess_answer": "", "action_input": "SELECT count(*)\x1b[31m FROM t"},
    "Look up “How many?”.",
    "sub_question",
)
STEP = {"action": "data_analysis", "sub_question": "How many?", "guess_answer": "", "action_input": ""}
PLAN = Review("plan", {"optimized_question": "How many are there?", "chain": [STEP]}, "The plan.", "optimized_question")

Keys = Callable[..., None]


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Keys:
    def press(*lines: str) -> None:
        left: Iterator[str] = iter(lines)

        def read(_: str = "") -> str:
            line = next(left, None)
            if line is None:
                raise EOFError
            return line

        monkeypatch.setattr("builtins.input", read)

    return press


def decided(*reviews: Review) -> tuple[list[Any], str]:
    console = Console(file=io.StringIO(), width=200, soft_wrap=True, highlight=False, markup=False)
    response = ask_decisions(review_request(reviews), console)
    assert isinstance(console.file, io.StringIO)
    return read_decisions(response, reviews, ["data_analysis"], 6), console.file.getvalue()


def test_what_is_to_be_approved_is_shown_without_control_characters(keys: Keys) -> None:
    keys("a")
    (decision,), text = decided(SQL)
    assert decision.type == "approve"
    assert "sub_question: How many?" in text
    assert "SELECT count(*)" in text
    assert "\x1b" not in text
    assert "guess_answer" not in text, "empty"


def test_an_edit_keeps_what_is_left_empty(keys: Keys) -> None:
    keys("edit", "", "", "SELECT 1")
    (decision,), _ = decided(SQL)
    assert decision.args == {"sub_question": "How many?", "guess_answer": "", "action_input": "SELECT 1"}


def test_a_rejection_takes_a_reason(keys: Keys) -> None:
    keys("what?", "r", "Too dear.", "n", "")
    (first, second), text = decided(SQL, SQL)
    assert (first.type, first.message) == ("reject", "Too dear.")
    assert (second.type, second.message) == ("reject", "")
    assert text.count("[a]pprove") == 3, "asked again after what is no decision"


def test_a_plan_shows_its_steps(keys: Keys) -> None:
    keys("y")
    (decision,), text = decided(PLAN)
    assert decision.args == PLAN.args
    assert "1. data_analysis: How many?" in text


def test_an_end_of_input_decides_nothing(keys: Keys) -> None:
    keys()
    with pytest.raises(InputError, match="ask the same question again"):
        decided(SQL)
