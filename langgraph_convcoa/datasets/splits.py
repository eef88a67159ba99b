"""Training and development parts of a data set, split by conversation: none is in both."""

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
"""Share of the conversations that are the development part of a data set that has none of its own."""

_NAMES = (("train", "train"), ("trn", "train"), ("dev", "dev"), ("val", "dev"), ("test", "test"), ("tst", "test"))


@dataclass(frozen=True)
class Split:
    """The queries of a part of a data set with its whole corpus.

    `name` is "train" or "dev", or which share of the conversations it is where these were split by the hash of their ids;
    `left_out` is how many queries of the training split are not in it, since the development part has their conversation.
    """

    dataset: Dataset
    name: str
    left_out: int = 0


def split_of(path: Path) -> str:
    """The split that a file's name tells, empty where it tells none.

    Example:
        >>> [split_of(Path(name)) for name in ("qrecc_train.json", "val_v0.2.json", "reference.jsonl")]
        ['train', 'dev', '']
    """
    words = re.split(r"[^a-z]+", path.name.lower())
    return next((split for start, split in _NAMES if any(word.startswith(start) for word in words)), "")


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
    conversations that are in "dev" as well. Otherwise the conversations are split by a hash of their ids, a `dev_share` of
    them into the development part. InputError where the part is empty.
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
