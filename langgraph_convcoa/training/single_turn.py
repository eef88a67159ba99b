"""Telling questions over titled articles from conversations: the first are what conversations are made of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from langgraph_convcoa.data.datasets import load_dataset
from langgraph_convcoa.data.queries import Dataset
from langgraph_convcoa.data.splits import split_part
from langgraph_convcoa.errors import InputError


def load_single_turn(path: str | Path) -> Dataset | None:
    """The training part of a data set of questions without any history over passages with titles; None for conversations.

    Raises:
        InputError: The data cannot be read, or has single questions over passages without titles: nothing says which of them
            belong together, so that no conversation can be made of them.
    """
    dataset = load_dataset(path)
    if any(query.history for query in dataset.queries):
        return None
    titled = {str(passage.id) for passage in dataset.corpus if passage.metadata.get("title")}
    part = split_part(dataset, "train").dataset
    kept = tuple(query for query in part.queries if any(identity in titled for identity in query.gold))
    if not kept:
        raise InputError(f"{path} has single questions over passages without a title: no conversation can be made of them.")
    return replace(part, queries=kept)
