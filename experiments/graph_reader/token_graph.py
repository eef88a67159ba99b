"""The token graph of evidence and question: a chain for each text, and links between equal words and names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

from langgraph_convcoa.text.words import STOP_WORDS, stem

_WORD = re.compile(r"[^\W_]+(?:['’.,][^\W_]+)*")

Tokenize = Callable[[str], tuple[Sequence[int], Sequence[tuple[int, int]]]]
"""Token ids of a text, and the start and end (exclusive) of each token in it."""


class Relation(IntEnum):
    """Type of an edge."""

    NEXT = 0
    PREVIOUS = 1
    ITSELF = 2
    ASKED = 3  # A word of the question and the same word in the evidence.
    SAME_NAME = 4  # A name or number and the same one in another piece of evidence.


class Edge(NamedTuple):
    """An edge; messages go from `source` to `target`, both numbers of nodes."""

    source: int
    target: int
    relation: Relation


@dataclass(frozen=True)
class TokenGraph:
    """Tokens as nodes: first the tokens of the evidence, then those of the question.

    Attributes:
        tokens: Token ids.
        evidence: Number of tokens of the evidence.
        edges: All edges.
    """

    tokens: tuple[int, ...]
    evidence: int
    edges: tuple[Edge, ...]

    @classmethod
    def of(cls, question: str, pieces: Sequence[str], tokenize: Tokenize) -> TokenGraph:
        """The graph of a question and pieces of evidence; each of them is a chain.

        A content word of the question is linked with every word of the evidence that has the same stem. A name or number is
        linked with its next occurrence in another piece only, so that the number of edges is linear in the text.

        Example:
            >>> def letters(text):
            ...     return [ord(sign) for sign in text], [(n, n + 1) for n in range(len(text))]
            >>> graph = TokenGraph.of("X?", ["X a", "b"], letters)
            >>> graph.evidence, [edge[:2] for edge in graph.edges if edge.relation is Relation.ASKED]
            (4, [(4, 0), (0, 4)])
        """
        texts = [*pieces, question]
        tokens: list[int] = []
        words: list[list[_Word]] = []
        edges: list[Edge] = []
        for text in texts:
            ids, places = tokenize(text)
            start = len(tokens)
            tokens += ids
            edges += (Edge(node, node, Relation.ITSELF) for node in range(start, len(tokens)))
            for left, right in pairwise(range(start, len(tokens))):
                edges += (Edge(left, right, Relation.NEXT), Edge(right, left, Relation.PREVIOUS))
            words.append(list(_words(text, start, places)))
            if len(words) == len(pieces):
                evidence = len(tokens)
        edges += _asked(words[:-1], words[-1])
        edges += _same_names(words[:-1])
        return cls(tuple(tokens), evidence if pieces else 0, tuple(edges))


class _Word(NamedTuple):
    form: str
    nodes: range
    start: int
    end: int
    name: bool


def _words(text: str, first: int, places: Sequence[tuple[int, int]]) -> Iterator[_Word]:
    """The content words of a text and their nodes; the text starts at the node `first`."""
    token = 0
    for match in _WORD.finditer(text):
        while token < len(places) and places[token][1] <= match.start():
            token += 1
        last = token
        while last < len(places) and places[last][0] < match.end():
            last += 1
        written = match.group()
        if last > token and written.lower() not in STOP_WORDS:
            nodes = range(first + token, first + last)
            yield _Word(stem(written.lower()), nodes, match.start(), match.end(), written[0].isupper() or written[0].isdigit())


def _asked(pieces: Sequence[Sequence[_Word]], question: Sequence[_Word]) -> Iterator[Edge]:
    asked = {word.form: word.nodes for word in reversed(question)}
    for piece in pieces:
        for word in piece:
            if (nodes := asked.get(word.form)) is not None:
                for place, node in enumerate(word.nodes):
                    other = nodes[min(place, len(nodes) - 1)]
                    yield Edge(other, node, Relation.ASKED)
                    yield Edge(node, other, Relation.ASKED)


def _same_names(pieces: Sequence[Sequence[_Word]]) -> Iterator[Edge]:
    before: dict[tuple[str, ...], tuple[int, list[_Word]]] = {}
    for number, piece in enumerate(pieces):
        for name in _names(piece):
            key = tuple(word.form for word in name)
            found = before.get(key)
            if found is not None and found[0] != number:
                for word, other in zip(name, found[1], strict=True):
                    for here, there in zip(word.nodes, other.nodes, strict=False):
                        yield Edge(there, here, Relation.SAME_NAME)
                        yield Edge(here, there, Relation.SAME_NAME)
            before[key] = (number, name)


def _names(piece: Sequence[_Word]) -> Iterator[list[_Word]]:
    """Runs of adjacent words that start with a capital or a digit."""
    run: list[_Word] = []
    for word in piece:
        if run and not (word.name and word.start == run[-1].end + 1):
            yield run
            run = []
        if word.name:
            run.append(word)
    if run:
        yield run
