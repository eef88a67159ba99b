"""Several right answers: where the formats keep them, and what a row without any has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.datasets.read import load_dataset
from langgraph_convcoa.errors import InputError
from tests.data import write_rows


def loaded(path: Path, value: Any) -> tuple[Query, ...]:
    write_rows(path, value)
    return load_dataset(path.parent if path.name == "queries.jsonl" else path, passages="optional").queries


def test_one_answer_is_the_only_reference() -> None:
    assert Query("1", "?", answer="x").references == ("x",)
    assert Query("1", "?", answer=" ").references == Query("1", "?").references == ()
    assert Query("1", "?", answer="x", references=("x", "y")).references == ("x", "y")


def test_a_folder_of_ones_own(tmp_path: Path) -> None:
    rows = [
        {"id": "1", "question": "Who?", "answers": ["Ada", "Ada Lovelace"]},
        {"id": "2", "question": "Who?", "answer": "Lovelace", "answers": ["Ada", "Lovelace"]},
        {"id": "3", "question": "Who?", "answers": []},
        {"id": "4", "question": "Who?", "answer": "Ada"},
    ]
    first, second, third, fourth = loaded(tmp_path / "queries.jsonl", rows)
    assert (first.answer, first.references) == ("Ada", ("Ada", "Ada Lovelace"))
    assert (second.answer, second.references) == ("Lovelace", ("Lovelace", "Ada"))
    assert (third.answer, third.references, fourth.references) == ("", (), ("Ada",))
    assert first.extra == {}
    with pytest.raises(InputError, match=r"queries\.jsonl, line 1: `answers` must be a string or a list of strings"):
        loaded(tmp_path / "queries.jsonl", [{"id": "1", "question": "Who?", "answers": [3]}])


def test_coqa_keeps_what_every_person_said(tmp_path: Path) -> None:
    def said(*texts: str) -> list[dict[str, Any]]:
        return [{"input_text": text, "span_start": 0, "turn_id": turn} for turn, text in enumerate(texts, 1)]

    story = {
        "id": "s",
        "story": "Ada was here.",
        "questions": [{"input_text": "Was she?", "turn_id": 1}, {"input_text": "Who?", "turn_id": 2}],
        "answers": said("yes", "Ada"),
        "additional_answers": {"0": said("yes", "her"), "1": said("Yes.", "Ada")},
    }
    first, second = loaded(tmp_path / "coqa-dev-v1.0.json", {"data": [story]})
    assert (first.references, second.references) == (("yes", "yes", "Yes."), ("Ada", "her", "Ada"))
    assert second.history == (("Was she?", "yes"),)
    story["additional_answers"]["1"].pop()  # type: ignore[index]
    assert loaded(tmp_path / "other.json", {"data": [story]})[1].references == ("Ada", "her")
    with pytest.raises(InputError, match=r"bad\.json, item 1: `1` must be a list of objects"):
        loaded(tmp_path / "bad.json", {"data": [story | {"additional_answers": {"1": "x"}}]})


def test_quac_leaves_out_who_could_not_answer(tmp_path: Path) -> None:
    def asked(number: int, original: str, *texts: str) -> dict[str, Any]:
        answers = [{"text": text, "answer_start": 0} for text in texts]
        return {"id": f"q#{number}", "question": "?", "orig_answer": {"text": original}, "answers": answers, "followup": "y"}

    qas = [asked(0, "in 1815", "in 1815", "1815", "CANNOTANSWER"), asked(1, "CANNOTANSWER", "CANNOTANSWER", "Ada")]
    paragraph = {"id": "C", "context": "Born in 1815. CANNOTANSWER", "qas": qas}
    first, second = loaded(tmp_path / "val_v0.2.json", {"data": [{"paragraphs": [paragraph]}]})
    assert first.references == ("in 1815", "1815")
    assert (second.answer, second.references, second.extra["answerable"]) == ("", (), False)


def test_topiocqa_and_mtrag(tmp_path: Path) -> None:
    row = {
        "Conversation_no": 1,
        "Turn_no": 1,
        "Question": "When?",
        "Answer": "1815",
        "Additional_answers": [{"Answer": "in 1815", "Topic": "x"}, {"Answer": ""}],
        "Topic": "Ada",
    }
    [query] = loaded(tmp_path / "topiocqa_valid.json", [row])
    assert query.references == ("1815", "in 1815")
    row = {"conv_id": 1, "turn_id": 1, "question": "When?", "answers": ["1815", "in 1815"], "positive_ctxs": []}
    [query] = loaded(tmp_path / "dev.json", [row])
    assert (query.answer, query.references) == ("1815", ("1815", "in 1815"))
    task = {
        "task_id": "c<::>1",
        "input": [{"speaker": "user", "text": "When?"}],
        "contexts": [],
        "targets": [{"text": "1815"}, {"text": "in 1815"}],
    }
    [query] = loaded(tmp_path / "tasks.jsonl", [task])
    assert (query.answer, query.references) == ("1815", ("1815", "in 1815"))
