"""Social IQa (Sap et al. 2019), without passages: JSON Lines of {"context", "question", "answerA", "answerB", "answerC"}.

The right answers, 1 to 3, stand line by line in `train-labels.lst` beside `train.jsonl`, or are a letter in "correct" (1.4).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from langgraph_convcoa.datasets.formats.choices import multiple_choice
from langgraph_convcoa.datasets.formats.published import Record, Records, split_of
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.datasets.rows import Row, json_lines, text_field, text_lines
from langgraph_convcoa.errors import InputError

_ANSWERS = ("answerA", "answerB", "answerC")


def is_socialiqa(row: Mapping[str, Any]) -> bool:
    """Whether an object is a question of Social IQa."""
    return {"context", "question", *_ANSWERS} <= row.keys()


def read_socialiqa(path: Path) -> Records:
    """The questions of a file, with numbers as their ids; without answers where no labels are there.

    Raises:
        InputError: A row is not as published, or there are not as many labels as questions; file and line are named.
    """
    split = split_of(path)
    labels, number = _labels(path), 0
    for number, (where, row) in enumerate(json_lines(path), 1):
        if labels is not None and number > len(labels):
            raise InputError(f"{where}: {_labels_of(path).name} has {len(labels)} labels, and none for this question.")
        right = _right(row, labels[number - 1] if labels is not None else "", where)
        asked = f"{text_field(row, 'context', where).strip()} {text_field(row, 'question', where).strip()}"
        choice = multiple_choice(asked, [text_field(row, key, where) for key in _ANSWERS], right, where)
        yield Record(
            Query(
                "-".join(part for part in ("socialiqa", split, str(number)) if part),
                choice.question,
                answer=choice.answer,
                references=choice.references,
                split=split,
                where=where,
            )
        )
    if labels is not None and number < len(labels):
        raise InputError(f"{_labels_of(path)}: {len(labels)} labels for the {number} questions of {path.name}.")


def _right(row: Row, label: str, where: str) -> list[int]:
    value = label or row.get("correct") or row.get("label") or ""
    if value == "":
        return []
    text = str(value).strip().upper()
    if text in ("A", "B", "C"):
        return ["ABC".index(text)]
    if text in ("1", "2", "3"):
        return [int(text) - 1]
    raise InputError(f"{where}: the label must be 1 to 3 or A to C, not {text!r}.")


def _labels_of(path: Path) -> Path:
    return path.with_name(f"{path.name.partition('.jsonl')[0]}-labels.lst")


def _labels(path: Path) -> list[str] | None:
    file = _labels_of(path)
    return [text.strip() for _, text in text_lines(file) if text.strip()] if file.is_file() else None
