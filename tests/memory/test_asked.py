from __future__ import annotations

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.memory.asked import LONGEST_QUESTION, read_conversation


def test_the_question_comes_before_the_messages() -> None:
    asked = read_conversation("Now?", [HumanMessage("Then?", id="1"), AIMessage("Yes.")])
    assert (asked.question, asked.history, asked.removals) == ("Now?", [("Then?", "Yes.")], [])


def test_the_last_message_asks_under_its_own_id() -> None:
    asked = read_conversation(None, [HumanMessage("Now?", id="m")])
    assert (asked.question, asked.message_id) == ("Now?", "m")


def test_the_question_of_an_unfinished_turn_is_taken_out() -> None:
    messages = [HumanMessage("a", id="1"), AIMessage("A"), HumanMessage("b", id="2"), HumanMessage("c", id="3")]
    asked = read_conversation(None, messages, abandoned="2")
    assert (asked.question, asked.history) == ("c", [("a", "A")])
    assert [removal["id"] for removal in asked.removals] == ["2"]


def test_questions_that_could_not_be_asked_are_taken_out() -> None:
    messages = [HumanMessage("x" * (LONGEST_QUESTION + 1), id="1"), HumanMessage(" ", id="2"), HumanMessage("c", id="3")]
    asked = read_conversation(None, messages)
    assert asked.question == "c"
    assert [removal["id"] for removal in asked.removals] == ["1", "2"]


def test_messages_in_a_row_are_one_question() -> None:
    messages = [
        HumanMessage("a"), HumanMessage("b"), AIMessage("AB"), HumanMessage("Only after 2010."), HumanMessage("When?", id="4"),
    ]  # fmt: skip
    asked = read_conversation(None, messages)
    assert (asked.question, asked.message_id) == ("Only after 2010.\nWhen?", "4")
    assert asked.history == [("a b", "AB")]
    assert asked.removals == []


def test_too_much_in_a_row_leaves_the_last_message() -> None:
    assert read_conversation(None, [HumanMessage("x" * LONGEST_QUESTION), HumanMessage("When?")]).question == "When?"


def test_other_messages_are_passed_over() -> None:
    messages = [
        SystemMessage("s"), HumanMessage("a"), AIMessage(""), ToolMessage("t", tool_call_id="1"), AIMessage("A"),
        HumanMessage("b"),
    ]  # fmt: skip
    assert read_conversation(None, messages).history == [("a", "A")]


def test_parts_of_a_message_are_joined() -> None:
    assert read_conversation(None, [HumanMessage([{"type": "text", "text": "When?"}])]).question == "When?"


def test_long_histories_are_bounded() -> None:
    messages = [m for n in range(100) for m in (HumanMessage(f"q{n}"), AIMessage("x" * 10_000))]
    history = read_conversation("q", messages).history
    assert history[-1][0] == "q99"
    assert len(history) == 20
    assert all(len(answer) <= 2_000 for _, answer in history)


@pytest.mark.parametrize("question", ["", "  ", "x" * (LONGEST_QUESTION + 1), 7])
def test_questions_that_cannot_be_asked(question: str) -> None:
    with pytest.raises(InputError):
        read_conversation(question, [])
