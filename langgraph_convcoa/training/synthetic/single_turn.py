"""Telling questions over titled articles from conversations: the first are what conversations are made of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from langgraph_convcoa.datasets.queries import Dataset
from langgraph_convcoa.datasets.read import load_dataset
from langgraph_convcoa.datasets.splits import split_part
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.training.data import checked_queries


def load_single_turn(path: str | Path, *, invalid: Literal["error", "skip"] = "error") -> Dataset | None:
    """The training part of a data set of questions without any history over passages with titles; None for conversations.

    Args:
        path: The folder or file.
        invalid: What becomes of queries that cannot be learned from, as in `load_training_data`.

    Raises:
        InputError: The data cannot be read, a query has no gold passage or one that is not in the corpus, or the passages of
            its single questions have no titles: nothing says which belong together, so that no conversation can be made.
    """
    dataset = load_dataset(path)
    if any(query.history for query in dataset.queries):
        return None
    titled = {str(passage.id) for passage in dataset.corpus if passage.metadata.get("title")}
    part = split_part(dataset, "train").dataset
    checked = checked_queries(part, invalid=invalid)
    kept = tuple(query for query in checked if any(identity in titled for identity in query.gold))
    if not kept:
        raise InputError(f"{path} has single questions over passages without a title: no conversation can be made of them.")
    return replace(part, queries=kept)
