"""Answers that people have rated for faithfulness."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langgraph_convcoa.datasets.rows import json_lines
from langgraph_convcoa.errors import InputError


@dataclass(frozen=True)
class Judgement:
    """An answer and what people think of it.

    Attributes:
        conversation: The id of its conversation.
        answer: The answer.
        passages: What it was to be faithful to.
        history: Earlier pairs of question and answer.
        grade: The mean rating.
        ratings: Those of each person, where they are known.
    """

    conversation: str
    answer: str
    passages: tuple[str, ...]
    history: tuple[tuple[str, str], ...]
    grade: float
    ratings: tuple[float, ...] = ()


def load_judgements(file: str | Path) -> list[Judgement]:
    """Read judgements, a JSON object a line (.jsonl or .jsonl.gz).

    A row has passages (texts), response, and its rating as `faithfulness`, or as `rating`; where known conversation_id (else a
    conversation of its own), turns ({speaker, text}) and ratings (a number for each person).

    Raises:
        InputError: The file cannot be read, or a row lacks a field or has a wrong one; the message names the line.
    """
    return [_judgement(row, row.where) for row in json_lines(Path(file))]


def _judgement(row: dict[str, Any], where: str) -> Judgement:
    passages, answer = row.get("passages"), row.get("response")
    if not isinstance(passages, list) or not all(isinstance(text, str) for text in passages):
        raise InputError(f"{where}: passages must be a list of texts.")
    if not isinstance(answer, str):
        raise InputError(f"{where}: response must be a text.")
    ratings = row.get("ratings") or []
    if not isinstance(ratings, list):
        raise InputError(f"{where}: ratings must be a list of numbers.")
    return Judgement(
        conversation=str(row.get("conversation_id") or where),
        answer=answer,
        passages=tuple(passages),
        history=tuple(_history(row.get("turns") or [], where)),
        grade=_number(row.get("faithfulness", row.get("rating")), "faithfulness (or rating)", where),
        ratings=tuple(_number(rating, "ratings", where) for rating in ratings),
    )


def _number(value: Any, name: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"{where}: {name} must be a number.")
    return float(value)


def _history(turns: Sequence[Any], where: str) -> list[tuple[str, str]]:
    """Pairs of question and answer before the last question."""
    pairs = []
    question = ""
    for turn in turns[:-1] if isinstance(turns, list) else [None]:
        if not isinstance(turn, dict) or not isinstance(turn.get("text"), str):
            raise InputError(f"{where}: turns must be a list of objects with a speaker and a text.")
        if turn.get("speaker") == "user":
            question = turn["text"]
        else:
            pairs.append((question, turn["text"]))
    return pairs
