"""StrategyQA (Geva et al. 2021): a list of {"qid", "question", "answer": true, "decomposition": [...], "facts", "evidence"}.

The evidence of each annotator and step names paragraphs of `strategyqa_train_paragraphs.json`, {"id": {"title", "content"}},
which are the passages where that file stands beside the questions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from langgraph_convcoa.datasets.formats.published import Record, Records, no_gold, number_field, passage, split_of
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.datasets.rows import Row, json_document, optional_field, text_field
from langgraph_convcoa.errors import InputError

_PARAGRAPHS = "_paragraphs.json"


def is_strategyqa(row: Mapping[str, Any]) -> bool:
    """Whether an object is a question of StrategyQA."""
    return {"qid", "question"} <= row.keys() and isinstance(row.get("answer", True), bool)


def is_paragraphs(path: Path) -> bool:
    """Whether a file is named as one of StrategyQA's paragraphs, which hold no questions."""
    return path.name.endswith(_PARAGRAPHS)


def read_strategyqa(path: Path, rows: Iterable[tuple[str, Row]]) -> Records:
    """The questions of a file; the answers are yes and no.

    Raises:
        InputError: A row is not as published; its file and number are named.
    """
    split, paragraphs = split_of(path), _paragraphs(path)
    for where, row in rows:
        said = row.get("answer")
        if said is not None and not isinstance(said, bool):
            raise InputError(f"{where}: `answer` must be true or false.")
        answer = "" if said is None else "yes" if said else "no"
        gold = tuple(dict.fromkeys(identity for identity in _names(row.get("evidence")) if identity in paragraphs))
        extra: Row = {key: row[key] for key in ("decomposition", "facts", "term") if key in row}
        query = Query(
            id=number_field(row, "qid", where),
            question=text_field(row, "question", where),
            gold=gold,
            answer=answer,
            split=split,
            extra=no_gold(extra, gold) if paragraphs else extra,
            where=where,
        )
        yield Record(query, tuple(paragraphs[identity] for identity in gold))


def _paragraphs(path: Path) -> dict[str, Any]:
    files = sorted(path.parent.glob(f"*{_PARAGRAPHS}"))
    found = {}
    for file in files:
        document = json_document(file)
        if not isinstance(document, dict):
            raise InputError(f"{file}: must be an object of paragraphs by id.")
        for identity, row in document.items():
            where = f"{file}, paragraph {identity!r}"
            if not isinstance(row, dict):
                raise InputError(f"{where}: must be a JSON object.")
            found[identity] = passage(identity, text_field(row, "content", where), optional_field(row, "title", where))
    return found


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for entry in value:
            yield from _names(entry)
