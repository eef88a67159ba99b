"""The data sets that are measured on; `langgraph_convcoa.datasets` reads them, for training too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from langgraph_convcoa.datasets.passages import load_distractors
from langgraph_convcoa.datasets.queries import Dataset, Query
from langgraph_convcoa.datasets.read import load_dataset
from langgraph_convcoa.datasets.splits import DEV_SHARE, split_part
from langgraph_convcoa.errors import InputError

__all__ = ["Dataset", "Query", "load_dataset", "load_distractors", "load_part"]


def load_part(
    path: str | Path,
    split: str | None = None,
    *,
    max_passages: int | None = None,
    passages: Literal["required", "optional"] = "required",
) -> tuple[Dataset, str]:
    """A data set's queries of one split, its whole corpus, and which part that is, in words.

    Args:
        path: As for `load_dataset`.
        split: A split's name; all queries when None. Where a data set has no split "dev", that is the part of its
            conversations that training leaves out (`split_part`).
        max_passages: As for `load_dataset`.
        passages: As for `load_dataset`.

    Raises:
        InputError: As `load_dataset`; or no query is of the split.
    """
    dataset = load_dataset(path, max_passages=max_passages, passages=passages)
    if split is None:
        return dataset, ""
    queries = tuple(query for query in dataset.queries if query.split == split)
    if queries:
        return replace(dataset, queries=queries), split
    if split == "dev":
        part = split_part(dataset, "dev")
        return part.dataset, f"dev: {DEV_SHARE:.0%} of the conversations, by hash"
    known = ", ".join(sorted({query.split for query in dataset.queries if query.split})) or "none"
    raise InputError(f"{path} has no queries of the split {split!r}; its splits: {known}.")
