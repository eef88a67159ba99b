r"""WebQuestions (Berant et al. 2013), without passages.

As published, a list of {"url", "utterance", "targetValue": "(list (description \"Ada Lovelace\") (description London))"}; or
without Freebase, JSON Lines or a list of {"question", "answers": [...]}, as hubs and DrQA (there "answer") give it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from langgraph_convcoa.datasets.formats.published import Record, Records, answer_list, split_of
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.datasets.rows import Row, text_field
from langgraph_convcoa.errors import InputError

_DESCRIPTION = re.compile(r'\(description\s+(?:"((?:[^"\\]|\\.)*)"|([^()\s][^()]*?))\s*\)')
_ESCAPE = re.compile(r"\\(.)")
_PLAIN = {"question", "answer", "answers", "url"}


def is_webquestions(row: Mapping[str, Any]) -> bool:
    """Whether an object is a question of WebQuestions."""
    lists = isinstance(row.get("answers", row.get("answer")), list)
    return {"utterance", "targetValue"} <= row.keys() or ("question" in row and lists and row.keys() <= _PLAIN)


def read_webquestions(path: Path, rows: Iterable[tuple[str, Row]]) -> Records:
    """The questions of a file, with numbers as their ids.

    Raises:
        InputError: A row is not as published; its file and number are named.
    """
    split = split_of(path)
    for number, (where, row) in enumerate(rows, 1):
        if "utterance" in row:
            question, answers = text_field(row, "utterance", where), described(row.get("targetValue"), where)
        else:
            question = text_field(row, "question", where)
            answers = answer_list(row, "answers" if "answers" in row else "answer", where)
        identity = "-".join(part for part in ("webquestions", split, str(number)) if part)
        answer = answers[0] if answers else ""
        yield Record(Query(identity, question, answer=answer, references=answers, split=split, where=where))


def described(value: Any, where: str) -> tuple[str, ...]:
    r"""The descriptions of a target value.

    Raises:
        InputError: It is no list of descriptions.

    Example:
        >>> described('(list (description "Jaxon \\"J\\" Bieber") (description London))', "file, item 1")
        ('Jaxon "J" Bieber', 'London')
    """
    if not isinstance(value, str) or not value.lstrip().startswith("(list"):
        raise InputError(f'{where}: `targetValue` must be as in (list (description "...")).')
    found = (_ESCAPE.sub(r"\1", quoted) or bare for quoted, bare in _DESCRIPTION.findall(value))
    return tuple(dict.fromkeys(text.strip() for text in found if text.strip()))
