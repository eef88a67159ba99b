"""FEVER (Thorne et al. 2018): JSON Lines of {"id", "claim", "label": "SUPPORTS", "evidence": [[[_, _, page, sentence], ...]]}.

The label is the answer. Its passages are the pages of the Wikipedia dump, `wiki-*.jsonl` of {"id", "text", "lines"}, if they
stand beside the claims.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from langgraph_convcoa.datasets.formats.published import Record, Records, number_field, split_of
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.datasets.rows import json_lines, optional_field, text_field
from langgraph_convcoa.errors import InputError

LABELS = ("SUPPORTS", "REFUTES", "NOT ENOUGH INFO")
_ASKED = "Does the evidence support or refute this claim? Answer SUPPORTS, REFUTES or NOT ENOUGH INFO."


def is_fever(row: Mapping[str, Any]) -> bool:
    """Whether an object is a claim of FEVER."""
    return {"id", "claim"} <= row.keys()


def read_fever(path: Path) -> Records:
    """The claims of a file, each put as a question that names the labels.

    Raises:
        InputError: A row is not as published; its file and line are named.
    """
    split = split_of(path)
    for where, row in json_lines(path):
        label = optional_field(row, "label", where)
        if label and label not in LABELS:
            raise InputError(f"{where}: `label` must be one of {', '.join(LABELS)}.")
        claim = text_field(row, "claim", where).strip()
        yield Record(
            Query(
                id=number_field(row, "id", where),
                question=f"{claim} {_ASKED}",
                gold=_pages(row.get("evidence"), where),
                answer=label,
                split=split,
                extra={"claim": claim} | ({} if label != LABELS[2] else {"answerable": False}),
                where=where,
            )
        )


def _pages(value: Any, where: str) -> tuple[str, ...]:
    try:
        sentences = [sentence for group in value or () for sentence in group]
        # Older rows have one group without the inner lists.
        pages = [sentence[2] for sentence in sentences]
    except (TypeError, IndexError, KeyError):
        raise InputError(f"{where}: `evidence` must be a list of lists of [annotation, evidence, page, sentence].") from None
    return tuple(dict.fromkeys(page for page in pages if isinstance(page, str)))
