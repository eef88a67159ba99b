"""The classes `Query` and `Dataset`. The training and the development part of a data set share no conversation."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError

Part = Literal["train", "dev"]

DEV_SHARE = 0.2  #: Share of the conversations in the development part, if a data set has no such part.
_NAMES = {
    "train": {"train", "training", "trainset", "trn"},
    "dev": {"dev", "development", "devset", "val", "valid", "validation"},
    "test": {"test", "testing", "testset", "tst"},
}  # Words in a file's name that give its split.


@dataclass(frozen=True)
class Query:
    """A question of a conversation and the passages that answer it. Unknown fields are empty."""

    id: str
    question: str
    history: tuple[tuple[str, str], ...] = ()  # Earlier pairs of question and answer, oldest first.
    gold: tuple[str, ...] = ()  # Ids of the passages that answer the question.
    rewrite: str = ""  # The question in words that need no history.
    answer: str = ""  # The reference answer, by default the first of the references.
    split: str = ""  # "train", "dev", ...
    conversation: str = ""  # Id of its conversation.
    references: tuple[str, ...] = ()  # Right answers, by default `answer`; an answer may occur several times.
    extra: dict[str, Any] = field(default_factory=dict)  # The row's other fields.
    where: str = field(default="", compare=False, repr=False)  # File and line, for messages.

    def __post_init__(self) -> None:
        if not self.references and self.answer.strip():
            object.__setattr__(self, "references", (self.answer,))
        elif self.references and not self.answer:
            object.__setattr__(self, "answer", self.references[0])

    @property
    def conversation_id(self) -> str:
        """The id of the conversation; without a conversation, the id of the query."""
        return self.conversation or self.id

    @property
    def two_turns(self) -> str:
        """The previous user turn and the question."""
        return " ".join([*(question for question, _ in self.history[-1:]), self.question])


@dataclass(frozen=True)
class Dataset:
    """Queries and the passages to search (`corpus`, which may be empty). `name` is the name of the folder or file."""

    name: str
    queries: tuple[Query, ...]
    corpus: tuple[Document, ...]

    def answerable(self, ids: Collection[str]) -> tuple[Query, ...]:
        """The queries with a gold passage whose id is in `ids`. Raises InputError if there are none."""
        found = tuple(query for query in self.queries if any(identity in ids for identity in query.gold))
        if not found:
            first = next((query for query in self.queries if query.gold), None)
            place = f" (the first: {first.gold[0]!r}, {first.where or first.id})" if first else ""
            raise InputError(f"No query of {self.name} has a gold passage among the documents that are searched{place}.")
        return found


def splits_of(queries: Iterable[Query]) -> str:
    """Names of the splits of queries, for messages."""
    return ", ".join(sorted({query.split for query in queries if query.split})) or "none"


Entries = Iterator[Query | Document]  #: The questions and the passages of a published file.


def passage(identity: str, text: str, *titles: str) -> Document:
    """Make a passage. Its title joins the parts that are not empty."""
    title = ", ".join(part for part in titles if part)
    return Document(id=identity, page_content=text, metadata={"title": title} if title else {})


@dataclass(frozen=True)
class Split:
    """A part of a data set: some of the queries, and the whole corpus."""

    dataset: Dataset
    name: str  # "train" or "dev"; for a split by a hash, "20% of the conversations, by hash" or the like.
    left_out: int = 0  # Training queries that are left out because their conversation is in "dev".


def split_of(path: Path) -> str:
    """The split in a file's name; empty if there is none."""
    words = re.split(r"[^a-z]+", path.name.lower())
    return next((split for split, names in _NAMES.items() if not names.isdisjoint(words)), "")


def in_dev_part(conversation: str, share: float = DEV_SHARE) -> bool:
    """True if a conversation is in the development part, by its hash. Every machine and version gives the same result."""
    digest = hashlib.sha256(conversation.encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


def split_part(dataset: Dataset, part: Part, *, dev_share: float = DEV_SHARE) -> Split:
    """The training or the development part. Raises InputError if it is empty.

    If the data has a split "dev", the training part has the queries of "train" and those without a split, except the
    conversations of "dev". Otherwise, a hash of the id puts the share `dev_share` of the conversations into "dev".
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
