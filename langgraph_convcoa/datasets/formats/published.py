"""Recognition of published formats, by the first row of a file."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from langgraph_convcoa.datasets.formats import conversations, mtrag, questions
from langgraph_convcoa.datasets.queries import Entries
from langgraph_convcoa.datasets.rows import Row, json_document, json_lines, table_rows, text_lines
from langgraph_convcoa.errors import InputError

PUBLISHED = "QReCC, TopiOCQA, QuAC, CoQA, MTRAG, WebQuestions, BIG-bench, Social IQa, TruthfulQA, StrategyQA, FEVER or ASQA"

_FORMATS: tuple[tuple[Callable[[Row], bool], Callable[[Path, Iterable[Row]], Entries]], ...] = (
    (conversations.is_topiocqa, conversations.read_topiocqa),
    (conversations.is_qrecc, conversations.read_qrecc),
    (conversations.is_quac, conversations.read_quac),
    (conversations.is_coqa, conversations.read_coqa),
    (mtrag.is_mtrag_task, mtrag.read_mtrag_tasks),
    (questions.is_bigbench, questions.read_bigbench),
    (questions.is_socialiqa, questions.read_socialiqa),
    (questions.is_fever, questions.read_fever),
    (questions.is_webquestions, questions.read_webquestions),
    (questions.is_strategyqa, questions.read_strategyqa),
    (questions.is_asqa, questions.read_asqa),
)


def read_published(path: Path) -> Entries | None:
    """The questions and passages of a file in a published format; None where it is in none.

    Raises:
        InputError: It cannot be read, or an entry is not as published; its file and place are named.
    """
    name = path.name.removesuffix(".gz")
    if not path.is_file() or path.name.endswith(questions.PARAGRAPHS):
        return None
    first: Any = None
    rows: Iterator[Row] = iter(())
    if name.endswith(".csv"):
        # The names alone: any other table in a folder is none of ours, well formed or not.
        _, names = next(text_lines(path), (1, ""))
        known = set(next(csv.reader([names]), [])) >= questions.TRUTHFULQA
        return questions.read_truthfulqa(path, table_rows(path, ",")) if known else None
    if name.endswith(".json"):
        places = list(_places(path, json_document(path)))
        first, rows = places[0][0] if places else None, (Row(value, where) for value, where in places)
    elif name.endswith(".jsonl"):
        first, rows = next(json_lines(path), None), json_lines(path)
    if not isinstance(first, dict):
        return None
    head = Row(first, str(path))
    return next((read(path, rows) for is_one, read in _FORMATS if is_one(head)), None)


def _places(path: Path, value: Any) -> Iterator[tuple[Any, str]]:
    """The entries of a JSON file with their places: of a list, of the list in it, or of its parts by id."""
    if isinstance(value, list):
        yield from ((entry, f"{path}, item {number}") for number, entry in enumerate(value, 1))
        return
    if not isinstance(value, dict):
        return
    for key, label in (("data", "item"), ("examples", "example")):
        if isinstance(value.get(key), list):
            task = {questions.TASK: str(value.get("name") or path.name.partition(".")[0])} if key == "examples" else {}
            for number, entry in enumerate(value[key], 1):
                yield (entry | task if isinstance(entry, dict) else entry), f"{path}, {label} {number}"
            return
    parts = [part for part in value.values() if isinstance(part, dict) and part]
    if any(isinstance(one := next(iter(part.values())), dict) and questions.is_asqa(Row(one, "")) for part in parts):
        for split, part in value.items():
            if not isinstance(part, dict):
                raise InputError(f"{path}: {split!r} must be an object of questions by id.")
            for identity, entry in part.items():
                named = {"sample_id": identity, "split": split}
                yield (entry | named if isinstance(entry, dict) else entry), f"{path}, {split} {identity}"
