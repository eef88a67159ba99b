"""Which published format a file is in, by its content."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from langgraph_convcoa.datasets.formats.asqa import asqa_items, is_asqa, is_asqa_row, read_asqa
from langgraph_convcoa.datasets.formats.bigbench import is_bigbench, read_bigbench
from langgraph_convcoa.datasets.formats.coqa import is_coqa, read_coqa
from langgraph_convcoa.datasets.formats.fever import is_fever, read_fever
from langgraph_convcoa.datasets.formats.mtrag import is_mtrag_task, read_mtrag_tasks
from langgraph_convcoa.datasets.formats.published import Records
from langgraph_convcoa.datasets.formats.qrecc import is_qrecc, read_qrecc
from langgraph_convcoa.datasets.formats.quac import is_quac, read_quac
from langgraph_convcoa.datasets.formats.socialiqa import is_socialiqa, read_socialiqa
from langgraph_convcoa.datasets.formats.strategyqa import is_paragraphs, is_strategyqa, read_strategyqa
from langgraph_convcoa.datasets.formats.topiocqa import is_topiocqa, read_topiocqa
from langgraph_convcoa.datasets.formats.truthfulqa import is_truthfulqa, read_truthfulqa
from langgraph_convcoa.datasets.formats.webquestions import is_webquestions, read_webquestions
from langgraph_convcoa.datasets.rows import Row, json_document, json_items, json_lines

PUBLISHED = "QReCC, TopiOCQA, QuAC, CoQA, MTRAG, WebQuestions, BIG-bench, Social IQa, TruthfulQA, StrategyQA, FEVER or ASQA"


def read_published(path: Path) -> Records | None:
    """The records of a file in a published format; None where it is in none.

    Raises:
        InputError: It cannot be read, or an entry is not as published; its file and place are named.
    """
    if not path.is_file() or is_paragraphs(path):
        return None
    if path.name.endswith((".json", ".json.gz")):
        return _of_document(path, json_document(path))
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        return _of_lines(path)
    if path.name.endswith((".csv", ".csv.gz")):
        return read_truthfulqa(path) if is_truthfulqa(path) else None
    return None


def _of_document(path: Path, value: Any) -> Records | None:
    if isinstance(value, list):
        first = value[0] if value and isinstance(value[0], dict) else {}
        if is_topiocqa(first):
            return read_topiocqa(path, value)
        return read_qrecc(path, value) if is_qrecc(first) else _of_rows(path, first, json_items(value, path))
    for is_one, read in ((is_quac, read_quac), (is_coqa, read_coqa), (is_bigbench, read_bigbench)):
        if is_one(value):
            return read(path, value)
    return read_asqa(path, asqa_items(path, value)) if is_asqa(value) else None


def _of_lines(path: Path) -> Records | None:
    _, first = next(json_lines(path), ("", {}))
    for is_one, read in ((is_mtrag_task, read_mtrag_tasks), (is_socialiqa, read_socialiqa), (is_fever, read_fever)):
        if is_one(first):
            return read(path)
    return _of_rows(path, first, json_lines(path))


def _of_rows(path: Path, first: Row, rows: Iterable[tuple[str, Row]]) -> Records | None:
    """Formats that are there as a list and as JSON Lines."""
    for is_one, read in (
        (is_webquestions, read_webquestions),
        (is_strategyqa, read_strategyqa),
        (is_asqa_row, read_asqa),
    ):
        if is_one(first):
            return read(path, rows)
    return None
