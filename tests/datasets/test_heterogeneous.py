"""Sets whose answers stand in text, tables or a knowledge base, on small files of their published shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from langgraph_convcoa.datasets.read import load_dataset
from langgraph_convcoa.errors import InputError
from tests.data import write_rows

COMPMIX: dict[str, Any] = {
    "question_id": "3871",
    "question": "Who wrote the notes on the engine?",
    "domain": "books",
    "entities": [{"id": "Q2", "label": "Analytical Engine"}],
    "answers": [{"id": "Q7259", "label": "Ada Lovelace"}, {"id": "Q1", "label": "Augusta Ada King"}],
    "answer_text": "Ada Lovelace",
    "answer_src": "info",
}
TIMES: dict[str, Any] = {
    "Id": 12945,
    "Question": "when was ada lovelace born",
    "Temporal signal": ["No signal"],
    "Temporal question type": ["Temp.Ans"],
    "Answer": [{"AnswerType": "Value", "AnswerArgument": "1815-12-10T00:00:00Z"}],
    "Data source": "ComQA",
    "Question creation date": "2019-06-03",
    "Data set": "test",
}


def read(path: Path, *rows: dict[str, Any]) -> Any:
    return load_dataset(write_rows(path, rows), passages="optional")


def test_compmix_as_published(tmp_path: Path) -> None:
    other = {name: value for name, value in COMPMIX.items() if name != "question_id"}
    first, second = read(tmp_path / "dev_set.json", COMPMIX, other).queries
    assert (first.id, first.question, first.split) == ("3871", COMPMIX["question"], "dev")
    assert first.references == ("Ada Lovelace", "Augusta Ada King")
    assert (first.extra["answer_src"], first.extra["domain"]) == ("info", "books")
    assert first.extra["entities"] == COMPMIX["entities"]
    assert second.id == "compmix-dev-2"


def test_timequestions_as_published(tmp_path: Path) -> None:
    entity = {"AnswerType": "Entity", "WikidataQid": "Q7259", "WikidataLabel": "Ada Lovelace", "WikipediaURL": ""}
    first, second = read(tmp_path / "test.json", TIMES, {**TIMES, "Id": 2, "Answer": [entity]}).queries
    assert (first.id, first.split, first.answer) == ("12945", "test", "1815-12-10")
    assert first.references == ("1815-12-10", "1815-12-10T00:00:00Z")
    assert first.extra["Temporal question type"] == ["Temp.Ans"]
    assert second.references == ("Ada Lovelace",)


@pytest.mark.parametrize("broken", [{**COMPMIX, "answers": ["Ada"]}, {**TIMES, "Answer": "Ada"}, {**TIMES, "Question": " "}])
def test_a_broken_row_is_told_with_its_file(tmp_path: Path, broken: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="train"):
        read(tmp_path / "train.json", broken)


def test_without_passages_they_are_no_retrieval_data(tmp_path: Path) -> None:
    read(tmp_path / "train.json", COMPMIX)
    with pytest.raises(InputError, match="has no passages"):
        load_dataset(tmp_path / "train.json")
