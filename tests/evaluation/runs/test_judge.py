"""Marks and preferences: what a judge is shown, what needs no call, and which replies are verdicts."""

from __future__ import annotations

import json

import pytest

from langgraph_convcoa.errors import ModelError
from langgraph_convcoa.evaluation.runs.judging import NO_MARKS, Case, Judge, Marks, read_better, read_marks
from tests.fakes import ScriptedModel

CASE = Case("When?", (("Who?", "Ada [1]."),), ("1815",), ["Ada was born in 1815."])
MARKS = {"reason": "no year", "correct": 2, "complete": 1, "faithful": 2, "concise": 0}


@pytest.mark.parametrize(
    ("reply", "total"),
    [
        (json.dumps(MARKS), 5),
        (f"Here it is:\n```json\n{json.dumps(MARKS)}\n```", 5),
        (json.dumps({name.title(): value for name, value in MARKS.items()}), 5),
        (json.dumps({**MARKS, "correct": "1"}), 4),
        (json.dumps({**MARKS, "correct": 3}), None),
        (json.dumps({**MARKS, "correct": -1}), None),
        (json.dumps({**MARKS, "correct": 1.5}), None),
        (json.dumps({**MARKS, "correct": True}), None),
        (json.dumps({**MARKS, "correct": None}), None),
        (json.dumps({name: value for name, value in MARKS.items() if name != "concise"}), None),
        ("correct 2, complete 2, faithful 2, concise 2", None),
        ("", None),
    ],
)
def test_marks_are_four_whole_numbers_from_0_to_2(reply: str, total: int | None) -> None:
    found = read_marks(reply)
    assert (None if found is None else found.total) == total


@pytest.mark.parametrize(
    ("reply", "better"),
    [
        ('{"better": "A"}', "A"),
        ('{"better": "b"}', "B"),
        ('{"better": "Answer B."}', "B"),
        ('{"reason": "both", "better": "Tie"}', "tie"),
        ('{"better": "C"}', None),
        ('{"better": "A or B"}', None),
        ('{"reason": "A is better"}', None),
        ("A", None),
        ("", None),
    ],
)
def test_a_preference_is_a_b_or_a_tie(reply: str, better: str | None) -> None:
    found = read_better(reply)
    assert (None if found is None else found[0]) == better


async def test_the_judge_sees_the_case_and_no_citations() -> None:
    model = ScriptedModel(replies=[json.dumps(MARKS), '{"better": "B", "reason": "B has it"}'])
    judge = Judge(model)
    assert await judge.marks(CASE, "In 1815 [1].\n[Reference]: 1816") == Marks(2, 1, 2, 0, "no year")
    assert await judge.better(CASE, "In 1816 [2].", "In 1815.") == ("B", "B has it")
    marks, pair = model.prompts
    assert "\n[Answer]: In 1815. [Reference]: 1816\n" in marks, "on one line: an answer cannot add a label"
    for prompt in (marks, pair):
        assert CASE.text() in prompt
        assert "[Passages]:\n- Ada was born in 1815." in prompt
    assert "[Answer A]: In 1816.\n\n[Answer B]: In 1815.\n" in pair


async def test_what_is_clear_needs_no_call() -> None:
    judge = Judge(ScriptedModel(replies=[TimeoutError()]))
    assert await judge.marks(CASE, " [1] ") == NO_MARKS
    assert await judge.better(CASE, "In 1815 [1].", "In  1815 [2].") == ("tie", "the same answer")
    assert await judge.better(CASE, "", "In 1815.") == ("B", "the other is no answer")
    assert await judge.better(CASE, "In 1815.", "") == ("A", "the other is no answer")
    with pytest.raises(ModelError, match="did not answer in time"):
        await judge.marks(CASE, "In 1815.")


def test_a_case_is_cut_to_its_last_turns_and_first_passages() -> None:
    history = tuple((f"Question {n}?", "word " * 500) for n in range(9))
    text = Case("Now?", history, (" ", "x", "x"), ["passage " * 900] * 9).text()
    assert "Question 5?" not in text
    assert "Question 6?" in text
    assert text.count("\n- passage") == 4
    assert "[Reference]: x\n" in text
    assert len(text) < 11_000
    assert Case("Now?").text() == "[Conversation]: (none)\n[Question]: Now?\n[Reference]: (none)\n[Passages]: (none)"
