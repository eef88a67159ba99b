"""ASQA (Stelmakh et al. 2022), without passages: long answers to questions that can be understood in several ways.

{"train": {...}, "dev": {id: {"ambiguous_question", "qa_pairs": [{"question", "short_answers": [...]}], "annotations":
[{"long_answer"}]}}}; or the same rows with "sample_id" as JSON Lines or a list. The long answers are what counts as right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from langgraph_convcoa.datasets.formats.published import Record, Records, answer_list, number_field, split_of
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.datasets.rows import Row, list_field, optional_field, text_field
from langgraph_convcoa.errors import InputError

_QUESTION = "ambiguous_question"


def is_asqa(value: Any) -> bool:
    """Whether the value of a JSON file is ASQA as published."""
    if not isinstance(value, dict):
        return False
    parts = [part for part in value.values() if isinstance(part, dict) and part]
    return any(is_asqa_row(next(iter(part.values()))) for part in parts)


def is_asqa_row(row: Any) -> bool:
    """Whether an object is a question of ASQA."""
    return isinstance(row, Mapping) and _QUESTION in row


def asqa_items(path: Path, document: Mapping[str, Any]) -> Iterator[tuple[str, Row]]:
    """The rows of a file as published, each with its id and its split in it.

    Raises:
        InputError: A part of it holds no objects.
    """
    for split, part in document.items():
        if not isinstance(part, dict):
            raise InputError(f"{path}: {split!r} must be an object of questions by id.")
        for identity, row in part.items():
            where = f"{path}, {split} {identity}"
            if not isinstance(row, dict):
                raise InputError(f"{where}: must be a JSON object.")
            yield where, row | {"sample_id": identity, "split": split}


def read_asqa(path: Path, rows: Iterable[tuple[str, Row]]) -> Records:
    """The questions of a file; `extra["short_answers"]` holds those of each way to understand one.

    Raises:
        InputError: A row is not as published; its file and place are named.
    """
    of_name = split_of(path)
    for where, row in rows:
        annotations = list_field(row, "annotations", where) if "annotations" in row else []
        long = (optional_field(annotation, "long_answer", where).strip() for annotation in annotations)
        references = tuple(dict.fromkeys(answer for answer in long if answer))
        pairs = list_field(row, "qa_pairs", where) if "qa_pairs" in row else []
        yield Record(
            Query(
                id=number_field(row, "sample_id", where),
                question=text_field(row, _QUESTION, where),
                answer=references[0] if references else "",
                references=references,
                split=optional_field(row, "split", where) or of_name,
                extra={"short_answers": [list(answer_list(pair, "short_answers", where)) for pair in pairs]},
                where=where,
            )
        )
