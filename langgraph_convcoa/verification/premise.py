"""The premise of a claim: the sentences of the evidence that it is checked against, short enough for a cross-encoder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from functools import cached_property
from itertools import zip_longest
from typing import NamedTuple

from langchain_core.documents import Document

from langgraph_convcoa.text.clean import clean
from langgraph_convcoa.text.words import content_items, words
from langgraph_convcoa.verification.sentences import listed_sentences

PREMISE_WORDS = 60  # Longest premise, in words. The verifier was trained with premises of this length.
_NAME_WEIGHT = 2.0
_PART_WORDS = 30
_CUT = "…"


class Piece(NamedTuple):
    """A sentence or a line of a piece of evidence."""

    text: str
    document: int
    forms: frozenset[str]
    words: int


class Premise(NamedTuple):
    """The text of a premise, the indexes of its documents (best first), and its best sentence."""

    text: str
    documents: tuple[int, ...]
    best: str = ""


class Evidence:
    """Pieces of evidence, cut into sentences once and searched for each claim.

    Args:
        documents: Pairs of a title ("" for none) and a text.
        computed: Indexes of documents that are not prose: the result of a query, or a list of documents.

    Example:
        >>> evidence = Evidence([("Jade Hotel", "It has 40 rooms. Breakfast costs 9 euros."), ("", "Cats sleep.")])
        >>> evidence.premise("Breakfast is 9 euros.")
        Premise(text='Jade Hotel: It has 40 rooms. Breakfast costs 9 euros.', documents=(0,), best='Breakfast costs 9 euros.')
    """

    def __init__(self, documents: Sequence[tuple[str, str]], computed: Collection[int] = ()) -> None:
        self.computed = frozenset(computed)
        self.titles = [" ".join(title.split()) for title, _ in documents]
        self._about = [frozenset(item.form for item in content_items(title)) for title in self.titles]
        self.pieces: list[Piece] = []
        for number, (_, text) in enumerate(documents):
            for line in text.splitlines():
                for sentence in listed_sentences(line):
                    for part in _short(sentence.text):
                        forms = frozenset(item.form for item in content_items(part))
                        self.pieces.append(Piece(part, number, forms, len(part.split())))
        self._counts = Counter(form for piece in self.pieces for form in piece.forms)

    @classmethod
    def of(cls, evidence: Sequence[str | Document], history: Sequence[tuple[str, str]] = ()) -> Evidence:
        """Make evidence from texts or documents, and then answers of earlier turns, with their questions as titles."""
        documents = [Document(one) if isinstance(one, str) else one for one in evidence]
        found = [(str(one.metadata.get("title") or ""), one.page_content) for one in documents]
        computed = [
            n for n, one in enumerate(documents) if "query" in one.metadata or one.metadata.get("source") == "overview"
        ]
        return cls([(clean(title), clean(text)) for title, text in [*found, *history]], computed)

    def premise(self, claim: str, words: int = PREMISE_WORDS) -> Premise:
        """The sentences that share most with a claim, and their neighbours, in the order of the text, with their titles."""
        chosen = self._closest(claim, words) or [0] * bool(self.pieces)
        room = words - sum(self.pieces[place].words for place in chosen)
        best = self.pieces[chosen[0]].text if chosen else ""
        for step in (-1, 1, -2, 2, -3, 3, -4, 4):
            for place in list(chosen):
                other = place + step
                near = 0 <= other < len(self.pieces) and self.pieces[other].document == self.pieces[place].document
                if near and other not in chosen and self.pieces[other].words <= room:
                    chosen.append(other)
                    room -= self.pieces[other].words
        order = tuple(dict.fromkeys(self.pieces[place].document for place in chosen))
        return Premise(" ".join(self._shown(number, chosen) for number in sorted(order)), order, best)

    def quotes(self, claim: str) -> list[str]:
        """The sentences that share most with a claim. Each adds words of the claim that the sentences before it lack."""
        return [self.pieces[place].text for place in self._closest(claim, PREMISE_WORDS)]

    def _closest(self, claim: str, words: int) -> list[int]:
        left = {
            item.form: (_NAME_WEIGHT if item.is_number or item.is_name else 1.0) / self._counts[item.form] ** 0.5
            for item in content_items(claim)
            if self._counts[item.form]
        }
        whole = sum(left.values()) or 1.0
        chosen: list[int] = []
        used: set[int] = set()
        room = words
        while left:
            gains = [(self._gain(piece, left, used), -n) for n, piece in enumerate(self.pieces) if n not in chosen]
            gain, place = max(gains, default=(0.0, 0))
            if gain < 0.05 * whole or (chosen and self.pieces[-place].words > room):
                break
            piece = self.pieces[-place]
            chosen.append(-place)
            used.add(piece.document)
            room -= piece.words
            left = {form: weight for form, weight in left.items() if form not in piece.forms | self._about[piece.document]}
        return chosen

    def holder(self, claim: str) -> int | None:
        """Index of the document that has a claim word for word as one or two whole sentences, or None.

        A part of a sentence counts only if "…" marks it as a part: "Dogs are allowed" may follow "It is not true that".
        """
        wording = _worded(claim)
        if wording and _CUT in claim:
            return next((piece.document for piece in self.pieces if f" {wording} " in f" {_worded(piece.text)} "), None)
        return self._whole.get(wording)

    @cached_property
    def _whole(self) -> dict[str, int]:
        """The document of each sentence, and of each pair of consecutive sentences."""
        found: dict[str, int] = {}
        for piece, following in zip_longest(self.pieces, self.pieces[1:]):
            found.setdefault(_worded(piece.text), piece.document)
            if following and following.document == piece.document:
                found.setdefault(_worded(f"{piece.text} {following.text}"), piece.document)
        found.pop("", None)
        return found

    def _gain(self, piece: Piece, left: dict[str, float], used: set[int]) -> float:
        """The weight of the claim's words that a piece adds. A document that is already used is preferred."""
        gain = sum(left[form] for form in piece.forms & left.keys())
        if gain and piece.document not in used:
            gain += sum(left[form] for form in (self._about[piece.document] - piece.forms) & left.keys())
            return gain * (0.8 if used else 1.0)
        return gain

    def _shown(self, number: int, chosen: Sequence[int]) -> str:
        text = " ".join(self.pieces[place].text for place in sorted(chosen) if self.pieces[place].document == number)
        title = self.titles[number]
        return f"{title}: {text}" if title and not text.startswith(title) else text


def _short(sentence: str) -> list[str]:
    """Cut a sentence that is too long for a premise: menus and lists of a web page have no full stop."""
    split = sentence.split()
    if len(split) <= PREMISE_WORDS:
        return [sentence]
    return [" ".join(split[start : start + _PART_WORDS]) for start in range(0, len(split), _PART_WORDS)]


def _worded(text: str) -> str:
    return " ".join(words(text))
