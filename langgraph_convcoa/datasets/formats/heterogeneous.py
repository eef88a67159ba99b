"""Question sets whose answers are in text, tables, infoboxes or a knowledge base, as published; they have no passages.

They are CompMix (Christmann et al. 2024) and TimeQuestions (Jia et al. 2021). The answers are labels and values; for a day at
midnight also the date alone. The other fields of a row are in `extra`.
"""

from __future__ import annotations

from langgraph_convcoa.datasets.queries import Entries, Query
from langgraph_convcoa.datasets.rows import Row

_MIDNIGHT = "T00:00:00Z"


def read_compmix(row: Row) -> Entries:
    """A question of CompMix; one without an id gets the number of its row."""
    key = next((name for name in ("question_id", "ques_id", "id") if name in row), None)
    answers = [label for answer in row.objects("answers") for label in answer.answers("label")]
    yield Query(
        id=f"compmix-{row.split}-{row.number}" if key is None else row.identity(key),
        question=row.text("question"),
        references=tuple(dict.fromkeys([*answers, *row.answers("answer_text")])),
        extra={name: row[name] for name in ("domain", "entities", "answer_src", "answers") if name in row},
    )


def read_timequestions(row: Row) -> Entries:
    """A question of TimeQuestions."""
    answers: list[str] = []
    for answer in row.objects("Answer"):
        value = answer.optional("AnswerArgument").strip()
        answers += [value.removesuffix(_MIDNIGHT), value] if value else answer.answers("WikidataLabel")
    yield Query(
        id=row.identity("Id"),
        question=row.text("Question"),
        references=tuple(dict.fromkeys(answers)),
        extra={name: row[name] for name in ("Temporal signal", "Temporal question type", "Data source") if name in row},
    )
