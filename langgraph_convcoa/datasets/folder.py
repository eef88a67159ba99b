"""The library's own format: a folder with `queries.jsonl` and `corpus.jsonl`, either of them gzipped or not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from langgraph_convcoa.datasets.formats.published import answer_list
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.datasets.rows import json_lines, optional_field, text_field
from langgraph_convcoa.errors import InputError

_FIELDS = ("id", "question", "history", "gold", "rewrite", "answer", "answers", "split", "conversation_id")


def read_queries(path: Path) -> Iterator[Query]:
    """The rows of a queries file: {"id", "question", "history": [[question, answer], ...], "gold": [passage ids], ...}.

    Several right answers stand in "answers", whose first is the answer where "answer" is not there.

    Raises:
        InputError: A row is not so; its file and line are named.
    """
    for where, row in json_lines(path):
        history = row.get("history") or []
        if not isinstance(history, list) or not all(_is_turn(turn) for turn in history):
            raise InputError(f"{where}: `history` must be a list of [question, answer].")
        gold = row.get("gold") or []
        if not isinstance(gold, list) or not all(isinstance(identity, str) for identity in gold):
            raise InputError(f"{where}: `gold` must be a list of passage ids.")
        answers = answer_list(row, "answers", where)
        answer = optional_field(row, "answer", where) or (answers[0] if answers else "")
        yield Query(
            id=text_field(row, "id", where),
            question=text_field(row, "question", where),
            history=tuple((question, answer or "") for question, answer in history),
            gold=tuple(dict.fromkeys(gold)),
            rewrite=optional_field(row, "rewrite", where),
            answer=answer,
            references=tuple(dict.fromkeys([answer] * bool(answer.strip()) + [*answers])),
            split=optional_field(row, "split", where),
            conversation=optional_field(row, "conversation_id", where),
            extra={key: value for key, value in row.items() if key not in _FIELDS},
            where=where,
        )


def _is_turn(turn: object) -> bool:
    return isinstance(turn, list) and len(turn) == 2 and isinstance(turn[0], str) and isinstance(turn[1], str | None)
