"""The ratios of a run, counted by hand on made answers."""

from __future__ import annotations

from typing import Any

import pytest

from langgraph_convcoa.chain import ChainItem, Status
from langgraph_convcoa.evaluation.metrics.ratios import (
    STATUSES,
    contradictions,
    misled_by_retrieval,
    verification_statistics,
)
from langgraph_convcoa.evaluation.records import Answered


def row(id_: str, *, conversation: str = "c", question: str = "?", turn: int = 1, answer: str = "x", **more: Any) -> Answered:
    return Answered("m", id_, conversation, question, turn, more.pop("references", ("x",)), answer=answer, **more)


def item(question: str, answer: str, status: Status = "kept", guess: str = "") -> ChainItem:
    return {
        "action": "knowledge_retrieval",
        "sub_question": question,
        "guess_answer": guess,
        "action_input": "",
        "answer": answer,
        "status": status,
        "score": 0.5,
        "reason": "",
        "evidence": [],
    }


def measured(values: dict[str, float], measure: str = "cover_em") -> list[Answered]:
    return [row(id_, metrics={measure: value}) for id_, value in values.items()]


def test_misled_by_retrieval() -> None:
    without = measured({"a": 1, "b": 1, "c": 1, "d": 0, "e": 0, "alone": 1})
    given = measured({"e": 0, "d": 1, "c": 0, "b": 0, "a": 1})
    found = misled_by_retrieval(without, given)
    assert (found["questions"], found["known"], found["misled"], found["helped"], found["left_out"]) == (5, 3, 2, 1, 1)
    assert found["share"] == pytest.approx(2 / 5)
    assert found["share_of_known"] == pytest.approx(2 / 3)


def test_what_cannot_be_judged_is_left_out_of_misled() -> None:
    without = [*measured({"a": 1}), row("b", metrics={"cover_em": 1.0}), row("c")]
    given = [*measured({"a": 0}), row("b", error="timed out", metrics={"cover_em": 0.0}), row("c", metrics={"cover_em": 1.0})]
    found = misled_by_retrieval(without, given)
    assert (found["questions"], found["misled"], found["left_out"]) == (1, 1, 2)
    judged = misled_by_retrieval(measured({"a": 1}, "gpt_em"), measured({"a": 1}, "gpt_em"), "gpt_em")
    assert (judged["questions"], judged["share"]) == (1, 0.0)
    nothing = misled_by_retrieval([], given)
    assert (nothing["questions"], nothing["share"], nothing["share_of_known"], nothing["left_out"]) == (0, 0.0, 0.0, 3)


BORN, YEAR = "When was Ada Lovelace born?", "In what year was Ada Lovelace born?"


def test_contradictions_within_a_conversation_only() -> None:
    answers = [
        row("2", turn=2, question=YEAR, answer="In 1816 [1]."),
        row("1", turn=1, question=BORN, answer="In 1815."),
        row("3", turn=3, question="Who was the father of Ada Lovelace?", answer="Lord Byron."),
        row("4", turn=1, conversation="d", question=BORN, answer="In 1820."),
        row("5", turn=2, conversation="d", question=YEAR, answer="1820."),
        row("6", turn=3, conversation="d", question=YEAR, answer="1830.", error="timed out"),
        row("7", turn=4, conversation="d", question=YEAR, answer=" "),
    ]
    found = contradictions(answers)
    assert (found["answers"], found["comparable"], found["contradicting"]) == (3, 2, 1)
    assert found["share"] == pytest.approx(1 / 3)


def test_sub_questions_contradict_too_and_an_answer_counts_once() -> None:
    first = row("1", turn=1, question="Tell me of Ada Lovelace.", chain=(item(BORN, "10 December 1815"), item("Where?", "")))
    both = (item(YEAR, "1816"), item(BORN, "In 1817"))
    found = contradictions([first, row("2", turn=2, question="And again?", chain=both)])
    assert (found["answers"], found["comparable"], found["contradicting"]) == (1, 1, 1)


def test_questions_that_lean_on_the_conversation_are_not_compared() -> None:
    answers = [
        row("1", turn=1, question="When was she born?", answer="1815"),
        row("2", turn=2, question="When was she born?", answer="1816"),
    ]
    assert contradictions(answers)["comparable"] == 0
    assert contradictions([])["share"] == 0.0


def test_verification_statistics() -> None:
    wrong = item(YEAR, "1815", "corrected", "1820")
    answers = [
        row("1", question="When?", references=("1815",), chain=(item("When was it?", "1815", "kept", "In 1815"),)),
        row("2", question="When?", references=("1815",), chain=(item("When was it?", "1900", "kept", "In 1900"),)),
        row("3", question=BORN, references=("1815",), chain=(item("?", "a", "filled"), wrong)),
        row("4", question=BORN, references=("1815",), chain=(item(BORN, "1820", "corrected", "1815"),)),
        row("5", question="When?", references=(), chain=(item("When?", "1", "kept", "1"),)),
        row("6", question="When?", chain=(item("What is x?", "1", "kept", "1"), item("What is y?", "", "unsupported"))),
        row("7"),
    ]
    found = verification_statistics(answers)
    assert (found["turns"], found["items"], found["guesses"]) == (6, 8, 6)
    assert found["counts"] == dict.fromkeys(STATUSES, 0) | {"kept": 4, "corrected": 2, "filled": 1, "unsupported": 1}
    assert (found["kept_known"], found["kept_right"], found["corrected_known"], found["corrected_right"]) == (2, 1, 2, 1)
    assert verification_statistics([])["items"] == 0
