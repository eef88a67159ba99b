"""The classes `Query` and `Dataset`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError


@dataclass(frozen=True)
class Query:
    """A question of a conversation and the passages that answer it. Unknown fields are empty."""

    id: str
    question: str
    history: tuple[tuple[str, str], ...] = ()  # Earlier pairs of question and answer, oldest first.
    gold: tuple[str, ...] = ()  # Ids of the passages that answer it.
    rewrite: str = ""  # The question in full.
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
        """The id of the conversation, or of the row if there is none."""
        return self.conversation or self.id

    @property
    def two_turns(self) -> str:
        """The previous user turn and the question."""
        return " ".join([*(question for question, _ in self.history[-1:]), self.question])


@dataclass(frozen=True)
class Dataset:
    """Queries and the passages to search (empty if the set has none). `name` is the name of the folder or file."""

    name: str
    queries: tuple[Query, ...]
    corpus: tuple[Document, ...]

    def answerable(self, among: Collection[str] | None = None) -> tuple[Query, ...]:
        """The queries with a gold passage in `among`, or in the corpus if it is None. Raises InputError if there are none."""
        ids = {str(document.id) for document in self.corpus} if among is None else among
        found = tuple(query for query in self.queries if any(identity in ids for identity in query.gold))
        if not found:
            first = next((query for query in self.queries if query.gold), None)
            place = f" (the first: {first.gold[0]!r}, {first.where or first.id})" if first else ""
            raise InputError(f"No query of {self.name} has a gold passage among the documents that are searched{place}.")
        return found


def splits_of(queries: Iterable[Query]) -> str:
    """The splits that queries have, for messages."""
    return ", ".join(sorted({query.split for query in queries if query.split})) or "none"


Entries = Iterator[Query | Document]
"""The questions and the passages of a published file."""


def passage(identity: str, text: str, *titles: str) -> Document:
    """Make a passage. Its title joins the parts that are not empty."""
    title = ", ".join(part for part in titles if part)
    return Document(id=identity, page_content=text, metadata={"title": title} if title else {})
