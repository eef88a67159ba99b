"""QuAC (Choi et al. 2018): {"data": [{"title", "section_title", "paragraphs": [{"id", "context", "qas": [...]}]}]}.

A question is {"id", "question", "orig_answer" or "answers", "followup", "yesno"}; those of a paragraph are one conversation.
What several people answered is in "answers" of the development set. A question that its first asker could not answer has no
right answer, and others' CANNOTANSWER are left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from langgraph_convcoa.datasets.formats.published import Record, Records, no_gold, passage, split_of
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.datasets.rows import Row, json_items, list_field, optional_field, text_field

_NO_ANSWER = "CANNOTANSWER"


def is_quac(document: Any) -> bool:
    """Whether the value of a JSON file is QuAC: SQuAD's form with a `followup` at each question."""
    try:
        return "followup" in document["data"][0]["paragraphs"][0]["qas"][0]
    except (KeyError, IndexError, TypeError):
        return False


def read_quac(path: Path, document: Any) -> Records:
    """The questions of a file.

    Raises:
        InputError: An entry is not as published; its file and number are named.
    """
    split = split_of(path)
    for where, article in json_items(document["data"], path, "article"):
        titles = (optional_field(article, "title", where), optional_field(article, "section_title", where))
        for paragraph in list_field(article, "paragraphs", where):
            yield from _paragraph(paragraph, titles, split, where)


def _paragraph(paragraph: Row, titles: tuple[str, str], split: str, where: str) -> Records:
    identity = text_field(paragraph, "id", where)
    text = text_field(paragraph, "context", where).removesuffix(_NO_ANSWER).rstrip()
    section = passage(identity, text, *titles)
    history: list[tuple[str, str]] = []
    for row in list_field(paragraph, "qas", where):
        question, answer = text_field(row, "question", where), _answer(row, where)
        gold = (identity,) if answer else ()
        query = Query(
            id=text_field(row, "id", where),
            question=question,
            history=tuple(history),
            gold=gold,
            answer=answer,
            references=_references(row, where) if answer else (),
            split=split,
            conversation=identity,
            extra=no_gold({}, gold),
            where=where,
        )
        yield Record(query, (section,))
        history.append((question, answer))


def _answer(row: Row, where: str) -> str:
    given = row.get("orig_answer")
    answers = [given] if isinstance(given, dict) else list_field(row, "answers", where)
    text = optional_field(answers[0], "text", where) if answers else ""
    return "" if text == _NO_ANSWER else text


def _references(row: Row, where: str) -> tuple[str, ...]:
    given = list_field(row, "answers", where) if "answers" in row else [row["orig_answer"]]
    texts = (optional_field(answer, "text", where) for answer in given)
    return tuple(text for text in texts if text.strip() and text != _NO_ANSWER)
