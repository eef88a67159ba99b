"""CoQA (Reddy et al. 2019): {"data": [{"id", "source", "story", "questions": [...], "answers": [...]}]}.

A question is {"input_text", "turn_id"}, an answer the same with "span_start", -1 where the story does not answer it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from langgraph_convcoa.data.published import Record, Records, no_gold, number_field, passage, split_of
from langgraph_convcoa.data.queries import Query
from langgraph_convcoa.data.rows import json_items, list_field, text_field
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
        history: list[tuple[str, str]] = []
        for asked, given in zip(questions, answers, strict=True):
            question, answer = text_field(asked, "input_text", where), text_field(given, "input_text", where)
            gold = () if given.get("span_start") == -1 else (identity,)
            query = Query(
                id=f"{identity}-{number_field(asked, 'turn_id', where)}",
                question=question,
                history=tuple(history),
                gold=gold,
                answer=answer,
                split=split,
                conversation=identity,
                extra=no_gold({"domain": row.get("source", "")}, gold),
                where=where,
            )
            yield Record(query, (story,))
            history.append((question, answer))
