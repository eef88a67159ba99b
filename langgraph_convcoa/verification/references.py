"""References: evidence and history cut into sentence segments, each text once however many candidates it verifies."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from langchain_core.documents import Document
from numpy.typing import NDArray

from langgraph_convcoa.text.clean import clean
from langgraph_convcoa.text.kept import kept_by_characters
from langgraph_convcoa.text.questions import holds_negation
from langgraph_convcoa.text.words import Item, content_items, content_tokens, sentences

_AUXILIARY = re.compile(
    r"\b(?:is|are|was|were|has|have|had|does|do|did|can|could|will|would|should|must|may|might)\b", re.IGNORECASE
)
_ASSERTION_ITEMS = 4
_KEPT_CHARACTERS = 1_000_000
"""Segments take some sixty times the memory of their text."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A sentence of a text, ready to be compared. `text` is the text's [start:end].

    `negated`: it holds a "not" or the like; `asserts`: it says something that a "not" would turn round, unlike a bare name.
    """

    text: str
    start: int
    end: int
    items: tuple[Item, ...]
    forms: frozenset[str]
    pairs: frozenset[tuple[str, str]]
    negated: bool
    asserts: bool


@kept_by_characters(_KEPT_CHARACTERS)
def segments(text: str) -> tuple[Segment, ...]:
    r"""The sentences of a text, line by line, that hold a word. Kept for texts that come again.

    Example:
        >>> [(s.text, s.start) for s in segments("A title\nIt has one line. It has two.")]
        [('A title', 0), ('It has one line.', 8), ('It has two.', 25)]
    """
    found, offset = [], 0
    for line in text.split("\n"):
        cut = ((sentence, content_items(sentence.text)) for sentence in sentences(line))
        found += [segment_of(sentence.text, offset + sentence.start, items) for sentence, items in cut if items]
        offset += len(line) + 1
    return tuple(found)


def segment_of(text: str, start: int, items: tuple[Item, ...]) -> Segment:
    """A sentence with its items; it starts at `start` of its text."""
    forms = [item.form for item in items]
    return Segment(
        text=text,
        start=start,
        end=start + len(text),
        items=items,
        forms=frozenset(forms),
        pairs=frozenset(pairwise(forms)),
        negated=(negated := holds_negation(text)),
        asserts=negated or len(items) >= _ASSERTION_ITEMS or _AUXILIARY.search(text) is not None,
    )


@dataclass(frozen=True)
class Reference:
    """One reference text.

    `about` holds the forms of what it is about: its title, or the question that it answers; `earlier`: it is the answer of an
    earlier turn.
    """

    text: str
    segments: tuple[Segment, ...]
    about: frozenset[str] = frozenset()
    earlier: bool = False

    @cached_property
    def forms(self) -> frozenset[str]:
        """The forms of all its segments."""
        return frozenset().union(*(segment.forms for segment in self.segments))


@dataclass(frozen=True, eq=False)
class References:
    """Everything that a candidate may be faithful to, built once for several candidates.

    `references`: the evidence in the order given, then the answers of the history; `segments`: those of all references in
    order, m of them; `owners`: for each the index of its reference; `where`: for each item's form the segments that hold it;
    `sizes`: distinct items of each segment, (m,).

    Example:
        >>> refs = References.of(["Modern Hopfield networks store patterns."], history=[("Who?", "John Hopfield, in 1982.")])
        >>> len(refs.references), refs.where["hopfield"]
        (2, [0, 1])
    """

    references: tuple[Reference, ...]
    segments: tuple[Segment, ...] = field(repr=False)
    owners: tuple[int, ...] = field(repr=False)
    where: dict[str, list[int]] = field(repr=False)
    sizes: NDArray[np.float64] = field(repr=False)
    known: dict[Any, Any] = field(default_factory=dict, repr=False)
    """What of earlier claims is known: an answer is verified again with each sentence that is added to it."""

    @classmethod
    def of(cls, references: Sequence[str | Document] | References, history: Sequence[tuple[str, str]] = ()) -> References:
        if isinstance(references, References) and not history:
            return references
        given = references.references if isinstance(references, References) else map(_reference, references)
        # Only what was answered is evidence; what was asked says what the answer is about.
        pairs = [(clean(question), clean(answer)) for question, answer in history]
        earlier = [Reference(answer, segments(answer), _forms(question), earlier=True) for question, answer in pairs]
        found = (*given, *earlier)
        every = [(owner, segment) for owner, reference in enumerate(found) for segment in reference.segments]
        where: dict[str, list[int]] = {}
        for n, (_, segment) in enumerate(every):
            for form in segment.forms:
                where.setdefault(form, []).append(n)
        return cls(
            references=found,
            segments=tuple(segment for _, segment in every),
            owners=tuple(owner for owner, _ in every),
            where=where,
            sizes=np.array([len(segment.forms) for _, segment in every], dtype=np.float64),
        )

    def span(self, reference: int) -> tuple[int, int]:
        """The first segment of a reference, and the one after its last."""
        return bisect_left(self.owners, reference), bisect_left(self.owners, reference + 1)


def _reference(reference: str | Document) -> Reference:
    if isinstance(reference, str):
        reference = clean(reference)
        return Reference(reference, segments(reference))
    title, text = reference.metadata.get("title"), clean(reference.page_content)
    return Reference(text, segments(text), _forms(title) if isinstance(title, str) else frozenset())


def _forms(text: str) -> frozenset[str]:
    return frozenset(item.form for item in content_items(text)) if content_tokens(text) else frozenset()
