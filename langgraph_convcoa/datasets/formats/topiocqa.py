"""TopiOCQA (Adlakha et al. 2022): the turns with their gold passages, or the files of its retriever.

Turns: {"Conversation_no", "Turn_no", "Context": [q, a, ...], "Question", "Answer", "Gold_passage": {"id", "title", "text"}},
in the development set with "Additional_answers": [{"Answer"}, ...].
Retriever: {"conv_id", "turn_id", "question", "answers", "positive_ctxs": [{"passage_id", "title", "text"}]}, where the
question stands after its history: "q [SEP] a [SEP] q". Both are lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from langgraph_convcoa.datasets.formats.published import (
    Record,
    Records,
    alternating_turns,
    answer_list,
    no_gold,
    number_field,
    passage,
    split_of,
)
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.datasets.rows import Row, json_items, list_field, optional_field, text_field
from langgraph_convcoa.errors import InputError

_SEPARATOR = " [SEP] "


def is_topiocqa(row: Mapping[str, Any]) -> bool:
    """Whether an object is a turn of TopiOCQA or a question of its retriever."""
    turn = {"Conversation_no", "Turn_no", "Question"} <= row.keys() and ("Gold_passage" in row or "Topic" in row)
    return turn or {"conv_id", "turn_id", "question", "positive_ctxs"} <= row.keys()


def read_topiocqa(path: Path, values: Any) -> Records:
    """The turns of a file.

    Raises:
        InputError: A turn is not as published; its file and number are named.
    """
    split = split_of(path)
    for where, row in json_items(values, path):
        yield _question(row, where, split) if "positive_ctxs" in row else _turn(row, where, split)


def _turn(row: Row, where: str, split: str) -> Record:
    gold = row.get("Gold_passage") or {}
    if not isinstance(gold, dict):
        raise InputError(f"{where}: `Gold_passage` must be an object.")
    passages = (_passage(gold, "id", where),) if gold else ()
    extra = {"topic": row["Topic"]} if "Topic" in row else {}
    others = list_field(row, "Additional_answers", where) if row.get("Additional_answers") else []
    return _record(
        row,
        ("Conversation_no", "Turn_no"),
        text_field(row, "Question", where),
        alternating_turns(row.get("Context"), "Context", where),
        [optional_field(row, "Answer", where), *(optional_field(other, "Answer", where) for other in others)],
        passages,
        extra,
        split,
        where,
    )


def _question(row: Row, where: str, split: str) -> Record:
    *earlier, question = text_field(row, "question", where).split(_SEPARATOR)
    if not question.strip():
        raise InputError(f"{where}: `question` ends without a question.")
    passages = tuple(_passage(entry, "passage_id", where) for entry in list_field(row, "positive_ctxs", where))
    answers = answer_list(row, "answers", where)
    history = alternating_turns(earlier, "question", where)
    return _record(row, ("conv_id", "turn_id"), question, history, answers, passages, {}, split, where)


def _record(
    row: Row,
    keys: tuple[str, str],
    question: str,
    history: tuple[tuple[str, str], ...],
    answers: Sequence[str],
    passages: tuple[Document, ...],
    extra: dict[str, Any],
    split: str,
    where: str,
) -> Record:
    conversation = f"{split or 'topiocqa'}-{number_field(row, keys[0], where)}"
    gold = tuple(dict.fromkeys(str(document.id) for document in passages))
    query = Query(
        id=f"{conversation}-{number_field(row, keys[1], where)}",
        question=question,
        history=history,
        gold=gold,
        answer=answers[0] if answers else "",
        references=tuple(answer for answer in answers if answer.strip()),
        split=split,
        conversation=conversation,
        extra=no_gold(extra, gold),
        where=where,
    )
    return Record(query, passages)


def _passage(row: Row, key: str, where: str) -> Document:
    # The title's section stands after a separator.
    titles = optional_field(row, "title", where).split(_SEPARATOR)
    return passage(number_field(row, key, where), text_field(row, "text", where), *(title.strip() for title in titles))
