from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages.utils import count_tokens_approximately

from langgraph_convcoa import ContextualKnowledgeSet
from langgraph_convcoa.errors import InputError


def filled(rounds: int, answer: str = "An answer.") -> ContextualKnowledgeSet:
    knowledge = ContextualKnowledgeSet()
    for n in range(1, rounds + 1):
        knowledge.add_round(f"o{n}?", f"p{n}?", [("s?", "i")], answer, {"chain": [], "citations": [], "time": "t"})
    return knowledge


def test_the_strict_export_is_the_papers_json() -> None:
    assert filled(1).export(strict=True) == {
        "Contextual knowledge set": [
            {
                "round": 1,
                "original_question": "o1?",
                "optimized_question": "p1?",
                "sub_questions": {"sub1": "s?"},
                "information_summaries": {"infor1": "i"},
                "answer": "An answer.",
            }
        ]
    }
    assert "convcoa" in filled(1).export()["Contextual knowledge set"][0]


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
    view = knowledge.view("q?", budget)
    if not view:
        assert not rounds or budget < 150, "the last round is cut to fit"
        return
    shown = [entry["round"] for entry in json.loads(view)["Contextual knowledge set"]]
    assert shown == list(range(rounds - len(shown) + 1, rounds + 1))
    assert count_tokens_approximately([view]) <= budget


def test_adding_a_round_does_not_change_what_was_handed_out() -> None:
    knowledge = filled(1)
    before = knowledge.export()
    knowledge.add_round("o?", "p?", [], "a")
    assert len(before["Contextual knowledge set"]) == 1


def test_a_last_round_that_is_too_long_is_cut_and_not_left_out() -> None:
    view = filled(1, "word " * 5_000).view("q?", 300)
    [entry] = json.loads(view)["Contextual knowledge set"]
    assert entry["original_question"] == "o1?"
    assert entry["answer"].endswith("…")


def test_earlier_turns_become_rounds_only_where_nothing_is_known() -> None:
    knowledge = ContextualKnowledgeSet()
    knowledge.seed([("a?", "A"), ("b?", "B")])
    knowledge.seed([("c?", "C")])
    assert [entry["original_question"] for entry in knowledge.rounds] == ["a?", "b?"]
