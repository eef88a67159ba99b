"""The premise of a claim: the sentences of the evidence that it is checked against, short enough for a cross-encoder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from langgraph_convcoa.text.words import content_items, sentences

PREMISE_WORDS = 60
"""Longest premise, in words. The verifier was trained with premises of this length."""
_NAME_WEIGHT = 2.0


class Piece(NamedTuple):
    """A sentence or a line of a piece of evidence."""

    text: str
    document: int
    forms: frozenset[str]
    words: int


class Premise(NamedTuple):
    """The text of a premise and the numbers of the documents that it was taken from, the best one first."""

    text: str
    documents: tuple[int, ...]


class Evidence:
    """Pieces of evidence, cut into sentences once and searched for each claim.

    Args:
        documents: Pairs of a title ("" for none) and a text.

    Example:
        >>> evidence = Evidence([("Jade Hotel", "It has 40 rooms. Breakfast costs 9 euros."), ("", "Cats sleep.")])
        >>> evidence.premise("Breakfast is 9 euros.")
        Premise(text='Jade Hotel: It has 40 rooms. Breakfast costs 9 euros.', documents=(0,))
    """

    def __init__(self, documents: Sequence[tuple[str, str]]) -> None:
        self.titles = [" ".join(title.split()) for title, _ in documents]
        self._about = [frozenset(item.form for item in content_items(title)) for title in self.titles]
        self.pieces: list[Piece] = []
        for number, (_, text) in enumerate(documents):
            for line in text.splitlines():
                for sentence in sentences(line):
                    forms = frozenset(item.form for item in content_items(sentence.text))
                    self.pieces.append(Piece(sentence.text, number, forms, len(sentence.text.split())))
        self._counts = Counter(form for piece in self.pieces for form in piece.forms)

    def premise(self, claim: str, words: int = PREMISE_WORDS) -> Premise:
        """The sentences that share most with a claim, with their neighbours, in their order, under their titles."""
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
        for step in (-1, 1, -2, 2, -3, 3, -4, 4):
            for place in list(chosen):
                other = place + step
                near = 0 <= other < len(self.pieces) and self.pieces[other].document == self.pieces[place].document
                if near and other not in chosen and self.pieces[other].words <= room:
                    chosen.append(other)
                    room -= self.pieces[other].words
        if not chosen and self.pieces:
            chosen = [0]
        order = tuple(dict.fromkeys(self.pieces[place].document for place in chosen))
        return Premise(" ".join(self._shown(number, chosen) for number in sorted(order)), order)

    def _gain(self, piece: Piece, left: dict[str, float], used: set[int]) -> float:
        """The weight of the claim's words that a piece adds; a document that is in use already is preferred."""
        gain = sum(left[form] for form in piece.forms & left.keys())
        if gain and piece.document not in used:
            gain += sum(left[form] for form in (self._about[piece.document] - piece.forms) & left.keys())
            return gain * (0.8 if used else 1.0)
        return gain

    def _shown(self, number: int, chosen: Sequence[int]) -> str:
        text = " ".join(self.pieces[place].text for place in sorted(chosen) if self.pieces[place].document == number)
        title = self.titles[number]
        return f"{title}: {text}" if title and not text.startswith(title) else text
