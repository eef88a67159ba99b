"""Whether a guess that the evidence holds is the answer to the question: another answer stands in the same passage.

The sentence that holds the guess must speak of the question, the guess must be of the kind that is asked for, and in a
conversation it is seldom what was answered before. A logistic function of these gives the probability; its weights are fitted
on questions whose right answer is told from another answer of the same passage.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from langgraph_convcoa.text.question_kind import guess_shape, question_kind
from langgraph_convcoa.text.words import content_tokens
from langgraph_convcoa.verification.bearing_weights import BEARING_WEIGHTS
from langgraph_convcoa.verification.references import Item, Reference, References, Segment, content_items
from langgraph_convcoa.verification.relevance import CONTEXT_SHARE, Relevance
from langgraph_convcoa.verification.support import Array

DISTANCE_DECAY = 0.1
"""A question's word that stands d items from the guess counts 1 / (1 + 0.1 (d - 1))."""
REPEATED_OVERLAP = 0.6
"""Jaccard overlap from which a guess is the answer that an earlier question had."""
SAME_QUESTION_OVERLAP = 0.5
"""Jaccard overlap from which a question is the earlier one again, whose answer may well be given again."""
FOLLOWING_DECAY = 3.0
"""A follow-up is often answered near its predecessor: a sentence d sentences from the last answer counts exp(-d / 3)."""
NUMBER_ELSEWHERE = 0.3
"""What a date or a quantity loses at most that stands in a sentence without the question's words, where another has them: many
stand in a passage, and each is of the right kind. Chosen on the questions that the weights were fitted on."""
_SAME = 1e-9


@dataclass(frozen=True, eq=False)
class Guess:
    """A guess beside its question.

    Attributes:
        text: The guess.
        question: What it answers.
        items: Its items.
        new: Those that the question does not have.
        asked: The distinct forms of the question's items; none where it has function words only, as "When was it?".
        told: The forms of the new items, or of all where there are no others.
    """

    text: str
    question: str
    items: tuple[Item, ...]
    new: tuple[Item, ...]
    asked: tuple[str, ...]
    told: frozenset[str]

    @classmethod
    def of(cls, text: str, claims: Sequence[Segment], question: str) -> Guess:
        """A guess, whose sentences are cut already."""
        asked = tuple(dict.fromkeys(item.form for item in content_items(question))) if content_tokens(question) else ()
        items = tuple(item for claim in claims for item in claim.items)
        new = tuple(item for item in items if item.form not in asked)
        return cls(text, question, items, new, asked, frozenset(item.form for item in new or items))


@dataclass(frozen=True)
class Place:
    """Where a text bears a guess out best.

    Attributes:
        segment: The segment's index among all references'.
        claim: The sentence of the guess that it bears out.
        features: What is known of the guess there, by name; those that are 0 may be left out.
        factor: What is left of a number that stands where less is said of the question than elsewhere in the text.
    """

    segment: int
    claim: int
    features: dict[str, float]
    factor: float


def places_of(
    guess: Guess, parts: Sequence[Array], references: References, relevances: Sequence[Relevance]
) -> Iterator[Place]:
    """The best place of each reference: one sentence of the guess must stand there, the others need support alone.

    Args:
        guess: With its question.
        parts: For each of its sentences precision, recall and word length against each of m segments, (m, 3).
        references: What it is held against.
        relevances: Of each reference to the question.
    """
    said = _said(guess, references)
    last = next((reference for reference in reversed(references.references) if reference.earlier), None)
    precision = np.stack([part[:, 0] for part in parts])
    for owner, (text, relevance) in enumerate(zip(references.references, relevances, strict=True)):
        if not text.segments:
            continue
        first, end = references.span(owner)
        scores = precision[:, first:end] * relevance.gates
        claim, place = divmod(int(scores.argmax()), end - first)
        placed = _placed(guess, text, relevance, place)
        features = {**said, **placed, "following": _following(text, last, place)}
        factor = _elsewhere(relevance, place) if question_kind(guess.question) in ("time", "quantity") else 1.0
        yield Place(first + place, claim, features, factor)


def bearing(features: Mapping[str, float], weights: Mapping[str, float] = BEARING_WEIGHTS) -> float:
    """The probability, in (0, 1), that a guess with these features answers its question.

    Example:
        >>> bearing({"bias": 1.0}, {"bias": 0.0}), bearing({"bias": 1.0, "near": 1.0}, {"near": 2.0}) > 0.8
        (0.5, True)
    """
    return 1 / (1 + math.exp(-sum(weights.get(name, 0.0) * value for name, value in features.items())))


def _said(guess: Guess, references: References) -> dict[str, float]:
    """What the guess, the question and the earlier answers say, whatever the evidence."""
    kind = question_kind(guess.question)
    shape = {f"{kind}: {name}": value for name, value in guess_shape(kind, guess.text, guess.new).items()}
    forms = {item.form for item in guess.items}
    asked = set(guess.asked)
    earlier = [r for r in references.references if r.earlier and r.about and not _same(r.about, asked)]
    repeated = any(_overlap(reference.forms, forms) >= REPEATED_OVERLAP for reference in earlier)
    return {"bias": 1.0, "repeated": float(repeated), "nothing new": float(not guess.new), f"{kind}: any": 1.0, **shape}


def _placed(guess: Guess, text: Reference, relevance: Relevance, place: int) -> dict[str, float]:
    """What the segment that holds the guess says of the question, beside the other segments of its text."""
    here, best = float(relevance.shares[place]), float(relevance.shares.max())
    return {
        "share": here,
        "near": _nearness(text.segments[place], relevance.rarity, guess.told) if guess.asked else 1.0,
        "context": float(relevance.context[place]),
        "better": float((relevance.shares > here + _SAME).mean()),
        "of best": here / best if best else 0.0,
        "missed": (best - here) * math.log1p(len(guess.asked)),
    }


def _elsewhere(relevance: Relevance, place: int) -> float:
    best = float(relevance.shares.max())
    if not best:
        return 1.0
    here = float(relevance.shares[place] + CONTEXT_SHARE * relevance.context[place])
    return 1 - NUMBER_ELSEWHERE * (1 - min(here / best, 1.0))


def _following(text: Reference, last: Reference | None, place: int) -> float:
    """How near a segment of a text stands to the one that holds the last answer."""
    if last is None or not last.forms or text.earlier:
        return 0.0
    shares = [len(last.forms & segment.forms) / len(last.forms) for segment in text.segments]
    if max(shares) < REPEATED_OVERLAP:
        return 0.0
    return math.exp(-abs(place - shares.index(max(shares))) / FOLLOWING_DECAY)


def _nearness(segment: Segment, weights: Mapping[str, float], told: Set[str]) -> float:
    """What the question's words in a segment count, each by its distance in items to the guess."""
    held = {form for form in weights if form in segment.forms}
    places = [n for n, item in enumerate(segment.items) if item.form in told]
    if not held or not places:
        return 0.0
    distances: dict[str, int] = {}
    for n, item in enumerate(segment.items):
        if item.form in held:
            distance = min(abs(n - place) for place in places)
            distances[item.form] = min(distance, distances.get(item.form, distance))
    return sum(weights[form] / (1 + DISTANCE_DECAY * max(distance - 1, 0)) for form, distance in distances.items())


def _same(earlier: Set[str], asked: Set[str]) -> bool:
    return _overlap(earlier, asked) >= SAME_QUESTION_OVERLAP


def _overlap(left: Set[str], right: Set[str]) -> float:
    union = left | right
    return len(left & right) / len(union) if union else 0.0
