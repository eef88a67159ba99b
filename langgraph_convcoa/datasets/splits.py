"""Training and development parts of a data set, split by conversation: no conversation is in both."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from langgraph_convcoa.datasets.queries import Dataset, splits_of
from langgraph_convcoa.errors import InputError

Part = Literal["train", "dev"]

DEV_SHARE = 0.2
"""Share of the conversations in the development part, if a data set has no such part."""

_NAMES = {
    "train": {"train", "training", "trainset", "trn"},
    "dev": {"dev", "development", "devset", "val", "valid", "validation"},
    "test": {"test", "testing", "testset", "tst"},
}
"""Words in a file's name that give its split."""


@dataclass(frozen=True)
class Split:
    """The queries of a part of a data set with its whole corpus."""

    dataset: Dataset
    name: str  # "train" or "dev", or the share of the conversations if they are split by a hash.
    left_out: int = 0  # Training queries that are left out because their conversation is in "dev".


def split_of(path: Path) -> str:
    """The split in a file's name; empty if there is none."""
    words = re.split(r"[^a-z]+", path.name.lower())
    return next((split for split, names in _NAMES.items() if not names.isdisjoint(words)), "")


def in_dev_part(conversation: str, share: float = DEV_SHARE) -> bool:
    """Whether a conversation is in the development part; the same on every machine and in every version."""
    digest = hashlib.sha256(conversation.encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


def split_part(dataset: Dataset, part: Part, *, dev_share: float = DEV_SHARE) -> Split:
    """The training or the development part. Raises InputError if it is empty.

    If the data has a split "dev", the training part has the queries of "train" or no split whose conversations are not in
    "dev". Otherwise a hash of the conversations' ids puts a `dev_share` of them into the development part.
    """
    dev = [query for query in dataset.queries if query.split == "dev"]
    trainable = [query for query in dataset.queries if query.split in ("train", "")]
    if dev:
        taken = {query.conversation_id for query in dev}
        kept = dev if part == "dev" else [query for query in trainable if query.conversation_id not in taken]
    else:
        kept = [query for query in trainable if in_dev_part(query.conversation_id, dev_share) == (part == "dev")]
    if not kept:
        raise InputError(f"{dataset.name} has no queries for the {part} part; its splits: {splits_of(dataset.queries)}.")
    share = dev_share if part == "dev" else 1 - dev_share
    name = part if dev else f"{share:.0%} of the conversations, by hash"
    left_out = len(trainable) - len(kept) if dev and part == "train" else 0
    return Split(replace(dataset, queries=tuple(kept)), name, left_out)
