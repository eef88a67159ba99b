"""Training and development parts, by conversation: one that is developed on is never trained on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Literal

from langgraph_convcoa.datasets.queries import Dataset, Query
from langgraph_convcoa.errors import InputError

Part = Literal["train", "dev"]

DEV_SHARE = 0.2
"""Share of the conversations that are the development part of a data set that has none of its own."""


@dataclass(frozen=True)
class Split:
    """A part of a data set.

    Attributes:
        dataset: The data set with the queries of the part and its whole corpus.
        hashed: Whether the part was made by the hash of the conversation's id, since the data set has no such split itself.
        left_out: How many queries of the training split were left out, since the development part has their conversation.
    """

    dataset: Dataset
    hashed: bool = False
    left_out: int = 0


def in_dev_part(conversation: str, share: float = DEV_SHARE) -> bool:
    """Whether a conversation falls into the development part; the same on every machine and in every version.

    Example:
        >>> sum(in_dev_part(f"conversation {n}") for n in range(1000))
        189
    """
    digest = hashlib.sha256(conversation.encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


def split_part(dataset: Dataset, part: Part, *, dev_share: float = DEV_SHARE) -> Split:
    """The training or the development part.

    Where the data set has a split "dev", that is the development part, and the split "train" the training part, less the
    conversations that are in "dev" as well. Otherwise the conversations are parted by a hash of their ids.

    Args:
        dataset: All splits of it.
        part: "train" or "dev".
        dev_share: Share of the conversations that are hashed into the development part.

    Raises:
        InputError: The part is empty.
    """
    splits = {query.split for query in dataset.queries}
    if "dev" in splits:
        dev = [query for query in dataset.queries if query.split == "dev"]
        if part == "dev":
            return Split(replace(dataset, queries=tuple(dev)))
        taken = {query.conversation_id for query in dev}
        trainable = [query for query in dataset.queries if query.split in ("train", "")]
        kept = [query for query in trainable if query.conversation_id not in taken]
        return Split(_part(dataset, kept, part, splits), left_out=len(trainable) - len(kept))
    trainable = [query for query in dataset.queries if query.split in ("train", "")]
    kept = [query for query in trainable if in_dev_part(query.conversation_id, dev_share) == (part == "dev")]
    return Split(_part(dataset, kept, part, splits), hashed=True)


def _part(dataset: Dataset, queries: list[Query], part: Part, splits: set[str]) -> Dataset:
    if not queries:
        known = ", ".join(sorted(name for name in splits if name)) or "none"
        raise InputError(f"{dataset.name} has no queries for the {part} part; its splits: {known}.")
    return replace(dataset, queries=tuple(queries))
