"""JSON tasks of BIG-bench (Srivastava et al. 2022); date understanding, general knowledge, Social IQa are in Pan et al. 2024a.

`task.json`: {"name", "examples": [{"input", "target": "..." or [...]}, ...]}, or in place of the target, of questions with
choices, "target_scores": {"choice": 1, "other": 0}. There are no passages.

Many tasks, date understanding among them, write the right choice first. The choices are therefore put in an order that depends
on their texts alone, as BIG-bench's own evaluation permutes them: else "(A)" would always be right.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from langgraph_convcoa.datasets.formats.choices import multiple_choice
from langgraph_convcoa.datasets.formats.published import Record, Records, answer_list, split_of
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.datasets.rows import Row, json_items, text_field
from langgraph_convcoa.errors import InputError


def is_bigbench(document: Any) -> bool:
    """Whether the value of a JSON file is a task."""
    try:
        first = document["examples"][0]
        return "input" in first and ("target" in first or "target_scores" in first)
    except (KeyError, IndexError, TypeError):
        return False


def read_bigbench(path: Path, document: Any) -> Records:
    """The examples of a file, with the task's name and numbers as their ids.

    Raises:
        InputError: An example is not as published; its file and number are named.
    """
    name, split = str(document.get("name") or path.name.partition(".")[0]), split_of(path)
    for number, (where, row) in enumerate(json_items(document["examples"], path, "example"), 1):
        question, extra = text_field(row, "input", where).strip(), {"task": name}
        if "target_scores" in row:
            choices, right = _scores(row, question, where)
            choice = multiple_choice(question, choices, right, where)
            question, references = choice.question, choice.references
        else:
            references = answer_list(row, "target", where)
        answer = references[0] if references else ""
        yield Record(
            Query(f"{name}-{number}", question, answer=answer, references=references, split=split, extra=extra, where=where)
        )


def _scores(row: Row, question: str, where: str) -> tuple[list[str], list[int]]:
    scores = row["target_scores"]
    if not isinstance(scores, dict) or not scores or not all(isinstance(score, int | float) for score in scores.values()):
        raise InputError(f"{where}: `target_scores` must be an object of numbers.")
    best = max(scores.values())
    choices = sorted(scores, key=lambda choice: hashlib.sha256(f"{question}\n{choice}".encode()).digest())
    return choices, [place for place, choice in enumerate(choices) if scores[choice] == best and best > 0]
