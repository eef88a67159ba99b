"""Question sets whose answers are in text, tables, infoboxes or a knowledge base, as published; they have no passages.

- CompMix (Christmann et al. 2024): a list of {"question_id", "question", "domain", "entities": [{"id", "label"}], "answers":
  [{"id", "label"}], "answer_text", "answer_src": "kb", "text", "table" or "info"}.
- TimeQuestions (Jia et al. 2021): a list of {"Id", "Question", "Temporal signal": [...], "Temporal question type": [...],
  "Answer": [{"AnswerType": "Entity", "WikidataQid", "WikidataLabel"} or {"AnswerType": "Value", "AnswerArgument"}]}.

The answers are labels and values; for a day at midnight also the date alone. The other fields of a row are in `extra`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from langgraph_convcoa.datasets.queries import Entries, Query
from langgraph_convcoa.datasets.rows import Row
from langgraph_convcoa.datasets.splits import split_of

_MIDNIGHT = "T00:00:00Z"


def read_compmix(path: Path, rows: Iterable[Row]) -> Entries:
    """The questions of CompMix; those without an id get the number of their row."""
    split = split_of(path)
    for number, row in enumerate(rows, 1):
        key = next((name for name in ("question_id", "ques_id", "id") if name in row), None)
        answers = [label for answer in row.objects("answers") for label in answer.answers("label")]
        yield Query(
            id=f"compmix-{split}-{number}" if key is None else row.identity(key),
            question=row.text("question"),
            references=tuple(dict.fromkeys([*answers, *row.answers("answer_text")])),
            split=split,
            extra={name: row[name] for name in ("domain", "entities", "answer_src", "answers") if name in row},
            where=row.where,
        )


def read_timequestions(path: Path, rows: Iterable[Row]) -> Entries:
    """The questions of TimeQuestions."""
    for row in rows:
        answers: list[str] = []
        for answer in row.objects("Answer"):
            value = answer.optional("AnswerArgument").strip()
            answers += [value.removesuffix(_MIDNIGHT), value] if value else answer.answers("WikidataLabel")
        yield Query(
            id=row.identity("Id"),
            question=row.text("Question"),
            references=tuple(dict.fromkeys(answers)),
            split=split_of(path),
            extra={name: row[name] for name in ("Temporal signal", "Temporal question type", "Data source") if name in row},
            where=row.where,
        )
