"""What the tools of the MCP server take and return; a client's model reads the descriptions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import quote

from langchain_core.documents import Document
from pydantic import BaseModel, Field

TEXT, QUOTE = 2_000, 500
"""Maximum number of characters of a passage that was found, and of a quote."""


def passage_uri(id_: str) -> str:
    """The address of a passage as a resource.

    Example:
        >>> passage_uri("papers/a b.pdf:page-3#1")
        'passage://papers%2Fa%20b.pdf%3Apage-3%231'
    """
    return f"passage://{quote(id_, safe='')}"


def cut(text: str, length: int) -> str:
    """Cut a text at a word if it is longer than `length`.

    Example:
        >>> cut("one two three", 11)
        'one two …'
    """
    text = text.strip()
    return text if len(text) <= length else f"{text[: length - 2].rsplit(' ', 1)[0]} …"


class Turn(BaseModel):
    """An earlier turn of the conversation."""

    question: str = Field(description="What the user asked.")
    answer: str = Field(description="What was answered.")


class Passage(BaseModel):
    """A passage that was found."""

    id: str
    uri: str = Field(description="The resource under which the whole passage can be read.")
    source: str = Field(description="The document that it is from.")
    title: str
    score: float = Field(description="Likeness to the query, 0 for none; only scores of one search can be compared.")
    quote: str = Field(description="The sentences that match best.")
    text: str = Field(description=f"The passage, cut after {TEXT:,} characters.")

    @classmethod
    def of(cls, document: Document) -> Passage:
        """Make a passage of a document that the retriever returned."""
        metadata, id_ = document.metadata, str(document.id)
        return cls(
            id=id_,
            uri=passage_uri(id_),
            source=str(metadata.get("source") or ""),
            title=cut(str(metadata.get("title") or ""), QUOTE),
            score=round(float(metadata["score"]), 4),
            quote=cut(str(metadata.get("quote") or ""), QUOTE),
            text=cut(document.page_content, TEXT),
        )


class Found(BaseModel):
    """What a search found."""

    passages: list[Passage] = Field(description="Best first; empty where nothing was found.")


class Source(BaseModel):
    """What [n] in an answer stands for."""

    number: int
    id: str
    uri: str = Field(description="The resource under which the passage can be read; empty where it is of a table or the web.")
    source: str
    quote: str = Field(description="The words that support the answer.")


class Step(BaseModel):
    """A sub-question that was looked up."""

    sub_question: str
    action: str = Field(description="What it was looked up with.")
    answer: str
    status: str = Field(
        description="kept, confirmed, corrected, filled and recalled are supported by evidence; partial holds only the "
        "nearest fact; unsupported and failed have no answer."
    )
    score: float = Field(description="How far the evidence supports the answer, 0 to 1.")


class Answer(BaseModel):
    """A verified answer."""

    answer: str = Field(description="With marks [n] that refer to the citations; says so where nothing was found.")
    citations: list[Source]
    steps: list[Step] = Field(description="How it came about; empty where one look-up answered it.")
    unsupported: list[str] = Field(description="Sentences of the answer that no evidence supports: doubt them.")
    thread: str = Field(description="Pass it to `ask` again for a follow-up question.")

    @classmethod
    def of(cls, output: Mapping[str, Any], thread: str, passages: Collection[str]) -> Answer:
        """Make an answer of the graph's output. `passages` are the ids that can be read as resources."""
        citations = [
            Source(
                number=number,
                id=str(citation["id"]),
                uri=passage_uri(str(citation["id"])) if citation["id"] in passages else "",
                source=str(citation.get("source") or ""),
                quote=cut(str(citation.get("quote") or ""), QUOTE),
            )
            for number, citation in enumerate(output.get("citations") or (), start=1)
        ]
        steps = [Step.model_validate(item) for item in output.get("chain") or ()]
        return cls(
            answer=output["answer"],
            citations=citations,
            steps=steps,
            unsupported=list(output.get("unsupported") or ()),
            thread=thread,
        )
