"""CoQA (Reddy et al. 2019): {"data": [{"id", "source", "story", "questions": [...], "answers": [...]}]}.

A question is {"input_text", "turn_id"}, an answer the same with "span_start", -1 where the story does not answer it. In the
development set "additional_answers", {"0": [...], "1": [...], "2": [...]}, has those of three more people.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from langgraph_convcoa.datasets.formats.published import Record, Records, no_gold, number_field, passage, split_of
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.datasets.rows import Row, json_items, list_field, optional_field, text_field
from langgraph_convcoa.errors import InputError


def is_coqa(document: Any) -> bool:
    """Whether the value of a JSON file is CoQA."""
    try:
        return bool({"story", "questions", "answers"} <= document["data"][0].keys())
    except (KeyError, IndexError, TypeError, AttributeError):
        return False


def read_coqa(path: Path, document: Any) -> Records:
    """The questions of a file.

    Raises:
        InputError: An entry is not as published; its file and number are named.
    """
    split = split_of(path)
    for where, row in json_items(document["data"], path, "story"):
        identity = text_field(row, "id", where)
        story = passage(identity, text_field(row, "story", where))
        questions, answers = list_field(row, "questions", where), list_field(row, "answers", where)
        if len(questions) != len(answers):
            raise InputError(f"{where}: {len(questions)} questions and {len(answers)} answers; there must be one of each.")
        others = _additional(row, where)
        history: list[tuple[str, str]] = []
        for asked, given in zip(questions, answers, strict=True):
            turn = number_field(asked, "turn_id", where)
            question, answer = text_field(asked, "input_text", where), text_field(given, "input_text", where)
            gold = () if given.get("span_start") == -1 else (identity,)
            query = Query(
                id=f"{identity}-{turn}",
                question=question,
                history=tuple(history),
                gold=gold,
                answer=answer,
                references=(answer, *others.get(turn, ())),
                split=split,
                conversation=identity,
                extra=no_gold({"domain": row.get("source", "")}, gold),
                where=where,
            )
            yield Record(query, (story,))
            history.append((question, answer))


def _additional(row: Row, where: str) -> dict[str, list[str]]:
    """What other people answered, by the question's turn."""
    value = row.get("additional_answers") or {}
    if not isinstance(value, dict):
        raise InputError(f"{where}: `additional_answers` must be an object of lists.")
    found: dict[str, list[str]] = {}
    for person in value:
        for answer in list_field(value, person, where):
            text = optional_field(answer, "input_text", where)
            if text.strip():
                found.setdefault(number_field(answer, "turn_id", where), []).append(text)
    return found
