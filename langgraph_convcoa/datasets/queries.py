"""The classes `Query` and `Dataset`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError


@dataclass(frozen=True)
class Query:
    """A question of a conversation and the passages that answer it.

    Attributes:
        id: The row's id.
        question: As it was put.
        history: Earlier pairs of question and answer, oldest first.
        gold: Ids of the passages that answer it.
        rewrite: A form of the question that stands alone, empty where none is known.
        answer: The reference answer, by default the first of the references; empty where none is known.
        split: "train", "dev", ...
        conversation: The id of its conversation, empty where none is given.
        references: The answers that count as right, `answer` alone where the data set has no others; those that several people
            gave stand there as often as they were given. Empty where none is known.
        extra: The row's other fields.
        where: The file and the line, for messages.
    """

    id: str
    question: str
    history: tuple[tuple[str, str], ...] = ()
    gold: tuple[str, ...] = ()
    rewrite: str = ""
    answer: str = ""
    split: str = ""
    conversation: str = ""
    references: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)
    where: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.references and self.answer.strip():
            object.__setattr__(self, "references", (self.answer,))
        elif self.references and not self.answer:
            object.__setattr__(self, "answer", self.references[0])

    @property
    def conversation_id(self) -> str:
        """The conversation's id; the row's own where none is given."""
        return self.conversation or self.id

    @property
    def two_turns(self) -> str:
        """The question behind the user turn before it."""
        return " ".join([*(question for question, _ in self.history[-1:]), self.question])


@dataclass(frozen=True)
class Dataset:
    """Queries and the passages that are searched, none where a set comes without; `name` is the folder's."""

    name: str
    queries: tuple[Query, ...]
    corpus: tuple[Document, ...]

    def answerable(self, among: Collection[str] | None = None) -> tuple[Query, ...]:
        """The queries of which a gold passage is among some ids, those of the corpus where None is given.

        Raises:
            InputError: There is no such query.
        """
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
"""The questions of a published file, and the passages that it carries."""


def passage(identity: str, text: str, *titles: str) -> Document:
    """A passage, its title made of the parts that are not empty."""
    title = ", ".join(part for part in titles if part)
    return Document(id=identity, page_content=text, metadata={"title": title} if title else {})
