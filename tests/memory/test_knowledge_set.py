from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately

from langgraph_convcoa import ContextualKnowledgeSet
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.memory.knowledge_set import LONGEST_QUESTION, read_conversation


def filled(rounds: int, answer: str = "An answer.") -> ContextualKnowledgeSet:
    knowledge = ContextualKnowledgeSet()
    for n in range(1, rounds + 1):
        knowledge.add_round(f"o{n}?", f"p{n}?", [("s?", "i")], answer, {"chain": [], "citations": [], "time": "t"})
    return knowledge


def test_export_and_load_round_trip() -> None:
    exported = filled(3).export()
    assert ContextualKnowledgeSet.load(exported).export() == exported
    assert ContextualKnowledgeSet.load(json.dumps(exported)).export() == exported
    assert ContextualKnowledgeSet.load(None).rounds == []


@pytest.mark.parametrize(
    "data", ["x", "[]", "{}", '{"Contextual knowledge set": [{}]}', '{"Contextual knowledge set": 3}', {"a": []}]
)
def test_something_else_is_refused(data: object) -> None:
    with pytest.raises(InputError, match="contextual knowledge set"):
        ContextualKnowledgeSet.load(data)  # type: ignore[arg-type]


@given(st.integers(0, 12), st.integers(0, 1200), st.integers(0, 400))
def test_a_view_is_the_last_rounds_within_the_budget(rounds: int, budget: int, length: int) -> None:
    knowledge = filled(rounds, "x" * length)
    view = knowledge.view(budget)
    if not view:
        assert not rounds or budget < 60, "the last round is cut to fit"
        return
    shown = [int(number) for number in re.findall(r"^User: o(\d+)\?$", view, re.MULTILINE)]
    assert shown == list(range(rounds - len(shown) + 1, rounds + 1))
    assert count_tokens_approximately([view]) <= budget


def test_adding_a_round_does_not_change_what_was_handed_out() -> None:
    knowledge = filled(1)
    before = knowledge.export()
    knowledge.add_round("o?", "p?", [], "a")
    assert len(before["Contextual knowledge set"]) == 1


def test_a_last_round_that_is_too_long_is_cut_and_not_left_out() -> None:
    view = filled(1, "word " * 5_000).view(300)
    assert view.startswith("User: o1?\nAssistant: word word ")
    assert view.endswith("…")
    assert len(view) > 600


def test_earlier_turns_become_rounds_only_where_nothing_is_known() -> None:
    knowledge = ContextualKnowledgeSet()
    knowledge.seed([("a?", "A"), ("b?", "B")])
    knowledge.seed([("c?", "C")])
    assert [entry["original_question"] for entry in knowledge.rounds] == ["a?", "b?"]


PAPER = {
    "Contextual knowledge set": [
        {
            "round": 1,
            "original_question": "What is the process of ...?",
            "optimized_question": "Explain the steps involved ...",
            "sub_questions": {"sub1": "What are the light-dependent reactions ...", "sub2": "What are the ..."},
            "information_summaries": {"infor1": "Light-dependent reactions use light ...", "infor2": "Light-independent ..."},
            "answer": "Photosynthesis is a process where...",
        }
    ]
}


def test_the_listing_of_the_paper_is_read_and_written_as_it_is() -> None:
    text = json.dumps(PAPER)
    knowledge = ContextualKnowledgeSet.load(text)
    assert json.dumps(knowledge.export(strict=True)) == json.dumps(knowledge.export()) == text
    knowledge.add_round("And then?", "And then?", [], "More.")
    assert knowledge.rounds[-1]["round"] == 2


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"round": "1"}, "round"), ({"round": True}, "round"), ({"answer": None}, "answer"),
        ({"optimized_question": 3}, "optimized_question"), ({"sub_questions": ["a"]}, "sub_questions"),
        ({"information_summaries": {"infor1": 1}}, "information_summaries"), ({"convcoa": {"chain": []}}, "convcoa"),
    ],
)  # fmt: skip
def test_a_round_that_is_not_as_in_the_paper_is_named(change: dict[str, object], named: str) -> None:
    bad = {"Contextual knowledge set": [{**PAPER["Contextual knowledge set"][0], **change}]}
    with pytest.raises(InputError, match=named) as error:
        ContextualKnowledgeSet.load(json.dumps(bad))
    assert "\n" not in str(error.value)


@given(st.lists(st.integers(1, 12), max_size=8), st.integers(100, 1500), st.integers(0, 3000))
def test_a_view_of_wanted_rounds_has_the_last_one_and_keeps_to_the_budget(wanted: list[int], budget: int, length: int) -> None:
    view = filled(12, "x" * length).view(budget, wanted)
    assert count_tokens_approximately([view]) <= budget
    if view:
        shown = [int(number) for number in re.findall(r"^User: o(\d+)\?$", view, re.MULTILINE)]
        assert shown == sorted(set(shown))
        assert shown[-1] == 12
        assert set(shown) <= {*wanted, 12}
    else:
        assert budget < 200
    if budget == 1500 and length < 100:
        assert set(shown) == {*wanted, 12}


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
    def asked_back(said: str, back: str = "") -> str:
        return read_conversation(None, [HumanMessage("b"), AIMessage(said), HumanMessage("c")], back=back).asked_back

    for back in ("Which?", "Do you mean Dr. A or B? Which one？", "Meinst du das Netz?"):
        assert asked_back(back) == f"b\n{back}"
    for answer in ("It is A.", "It is A. Do you want more?", "Is it A [1]?", "Do you mean A or B? Both run a mill."):
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
