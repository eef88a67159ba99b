"""TruthfulQA (Lin et al. 2022), without passages: a CSV of questions.

Its columns are "Question", "Best Answer", "Correct Answers", "Incorrect Answers" and others; several answers in a field are
parted by ";". The best answer is the first of those that count as right.
"""

from __future__ import annotations

import csv
from pathlib import Path

from langgraph_convcoa.datasets.formats.published import Record, Records, split_of
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.datasets.rows import optional_field, table_rows, text_field, text_lines

_COLUMNS = {"Question", "Best Answer", "Correct Answers"}


def is_truthfulqa(path: Path) -> bool:
    """Whether a CSV file has TruthfulQA's columns."""
    _, first = next(text_lines(path), ("", ""))
    # Its first line alone: any other table in a folder is none of ours, well formed or not.
    return set(next(csv.reader([first]), [])) >= _COLUMNS


def read_truthfulqa(path: Path) -> Records:
    """The questions of a file, with numbers as their ids.

    Raises:
        InputError: A row is not as published; its file and line are named.
    """
    split = split_of(path)
    for number, (where, row) in enumerate(table_rows(path, ","), 1):
        best = optional_field(row, "Best Answer", where).strip()
        references = tuple(dict.fromkeys([best] * bool(best) + _several(optional_field(row, "Correct Answers", where))))
        extra = {"category": row.get("Category", ""), "incorrect": _several(optional_field(row, "Incorrect Answers", where))}
        yield Record(
            Query(
                f"truthfulqa-{number}",
                text_field(row, "Question", where),
                answer=references[0] if references else "",
                references=references,
                split=split,
                extra=extra,
                where=where,
            )
        )


def _several(text: str) -> list[str]:
    return [part.strip() for part in text.split(";") if part.strip()]
