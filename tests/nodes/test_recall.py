"""The question of a turn, and the turns before it, in what the graph is given."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.nodes.plan import LONGEST_QUESTION, read_conversation

LONG = "x" * LONGEST_QUESTION


@pytest.mark.parametrize(
    ("messages", "question", "history", "removed"),
    [
        pytest.param([("c", "3")], ("c", "3"), [], [], id="under its own id"),
        pytest.param([(LONG + "x", "1"), (" ", "2"), ("c", "3")], ("c", "3"), [], ["1", "2"], id="could not be asked"),
        pytest.param(
            [("a", None), ("b", None), AIMessage("AB"), ("Only after 2010.", None), ("When?", "4")],
            *(("Only after 2010.\nWhen?", "4"), [("a b", "AB")], []),
            id="several in a row are one question",
        ),
        pytest.param([(LONG, None), ("When?", "4")], ("When?", "4"), [], [], id="too much in a row leaves the last"),
        pytest.param(
            [SystemMessage("s"), ("a", None), AIMessage(""), ToolMessage("t", tool_call_id="1"), AIMessage("A"), ("b", "4")],
            *(("b", "4"), [("a", "A")], []),
            id="other messages are passed over",
        ),
        pytest.param([([{"type": "text", "text": "When?"}], "4")], ("When?", "4"), [], [], id="parts are joined"),
    ],
)
def test_the_last_messages_ask(messages: list[Any], question: Any, history: list[Any], removed: list[str]) -> None:
    made = [HumanMessage(one[0], id=one[1]) if isinstance(one, tuple) else one for one in messages]
    asked = read_conversation(None, made)
    assert ((asked.question, asked.message_id), asked.history) == (question, history)
    assert [removal["id"] for removal in asked.removals] == removed


def test_the_question_comes_before_the_messages() -> None:
    asked = read_conversation("Now?", [HumanMessage("Then?", id="1"), AIMessage("Yes.")])
    assert (asked.question, asked.history, asked.removals) == ("Now?", [("Then?", "Yes.")], [])


def test_the_answer_to_a_question_back_goes_on_with_its_question() -> None:
    back = AIMessage("Which?", additional_kwargs={"clarification": True})
    messages = [HumanMessage("a"), AIMessage("A"), HumanMessage("b", id="1"), back, HumanMessage("c", id="2")]
    asked = read_conversation(None, messages)
    assert (asked.question, asked.asked_back, asked.history) == ("c", "b\nWhich?", [("a", "A")])
    asked = read_conversation("d", [*messages, AIMessage("C")])
    assert (asked.asked_back, asked.history) == ("", [("a", "A"), ("b c", "C")])
    for own in ("Forget it. Who built the mill?", "What is a mill?", "Is the mill open today?"):
        asked = read_conversation(None, [*messages[:-1], HumanMessage(own)])
        assert (asked.question, asked.asked_back) == (own, "")
    assert read_conversation(None, [*messages[:-1], HumanMessage("The second?")]).asked_back == "b\nWhich?"


def test_a_question_back_is_known_without_its_mark() -> None:
    def asked_back(said: str, back: str | None = None) -> str:
        return read_conversation(None, [HumanMessage("b"), AIMessage(said), HumanMessage("c")], back=back).asked_back

    for back in ("Which?", "Do you mean Dr. A or B? Which one？", "Meinst du das Netz?"):
        assert asked_back(back) == f"b\n{back}"
        assert asked_back(back, "") == "", "the thread knows that it asked nothing"
    offers = ("Hi, how can I help you today?", "Anything else?", "What would you like to know?", "Would you like me to go on?")
    for answer in ("It is A.", "It is A. Do you want more?", "Is it A [1]?", "Do you mean A or B? Both run a mill.", *offers):
        assert asked_back(answer) == ""
        assert asked_back(answer, back=answer) == f"b\n{answer}"
    twice = [HumanMessage("b"), AIMessage("Which?")] * 2
    assert read_conversation(None, [*twice, HumanMessage("c")]).asked_back == "b\nWhich?"


def test_the_question_of_an_unfinished_turn_is_taken_out() -> None:
    messages = [HumanMessage("a", id="1"), AIMessage("A"), HumanMessage("b", id="2"), HumanMessage("c", id="3")]
    asked = read_conversation(None, messages, abandoned="2")
    assert (asked.question, asked.history) == ("c", [("a", "A")])
    assert [removal["id"] for removal in asked.removals] == ["2"]


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
