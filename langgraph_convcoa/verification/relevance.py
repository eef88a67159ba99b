"""Answer relevance: the probability that a guess which the evidence holds is the answer to the question.

Another answer may stand in the same passage. The sentence that holds the guess must speak of the question, the guess must be
of the kind that is asked for, and in a conversation it is seldom what was answered before. A logistic function of these gives
the probability; its weights are fitted on questions with a right answer and another answer of the same passage.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from langgraph_convcoa.text.questions import holds_date, holds_quantity, question_kind
from langgraph_convcoa.text.words import Item, content_items, content_tokens
from langgraph_convcoa.verification.references import Reference, References, Segment
from langgraph_convcoa.verification.support import Array

CONTEXT_SHARE = 0.2
"""A question's word that only the sentence before or the title holds counts this much."""
ABSENT_SHARE = 0.5
"""A question's word that the whole text lacks counts this share of what one that it has counts on average."""
FLOOR = 0.1
"""What is left of a supported guess whose sentence says nothing of the question: other words may say the same."""
UNHELD = 0.01
"""What is left of a sentence that holds nothing of the guess beyond the question: "It was built in 1894" says the year."""
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
_WANTED: dict[str, tuple[str, ...]] = {"time": ("date", "quantity"), "quantity": ("quantity",)}
_WANTED |= dict.fromkeys(("person", "place", "name"), ("name",))
_LONG = 8

# A logistic regression of right answers against other answers of the same passage: 3,000 questions of SQuAD 2.0's training
# split, 826 of Abg-CoQA's, and 566 of QuAC's of 35% of the conversations, each data set counting the same, fitted by `convcoa
# evaluate guesses DATA/squad2 DATA/abg_coqa DATA/quac_dev --fit`; reported are SQuAD's development split and the other 65% of
# QuAC's conversations. "repeated" weighs what it weighs in such pairs, where three of four wrong answers of a QuAC follow-up
# were given before; 1 to 5% of right answers were, in QuAC, Abg-CoQA, PACIFIC and MTRAG. A right guess that is taken for a
# repetition costs a correction.
_SHAPE_WEIGHTS: dict[str, dict[str, float]] = {
    "more": {"any": -0.638, "bare name": -0.788, "bare number": 0.827, "length": 0.93},
    "name": {"any": -0.217, "bare name": 0.458, "bare number": -3.246, "length": 0.505, "name": 0.361},
    "other": {"any": 0.478, "bare name": -0.208, "bare number": -1.437, "length": 0.213},
    "person": {"any": 0.768, "bare name": 0.569, "bare number": -3.936, "length": -0.799, "name": 0.863},
    "place": {"any": 0.803, "bare name": -0.472, "bare number": -3.233, "length": -0.969, "name": 1.326},
    "quantity": {"any": -0.842, "bare name": -1.019, "bare number": 0.114, "length": -0.126, "quantity": 2.13},
    "reason": {"any": -2.111, "bare name": -4.718, "bare number": -4.065, "length": 1.852},
    "thing": {"any": 0.005, "bare name": -0.023, "bare number": -1.148, "length": 0.352},
    "time": {"any": -0.11, "bare name": -1.102, "bare number": -0.006, "date": 2.28, "length": -0.728, "quantity": 0.906},
    "way": {"any": -0.501, "bare name": -1.783, "bare number": -1.54, "length": 0.768},
}
RELEVANCE_WEIGHTS: dict[str, float] = {
    **{f"{kind}: {shape}": weight for kind, shapes in _SHAPE_WEIGHTS.items() for shape, weight in shapes.items()},
    "better": -1.238,
    "bias": 0.179,
    "context": 0.469,
    "following": 0.96,
    "missed": -1.27,
    "near": 2.124,
    "nothing new": -2.018,
    "of best": 0.613,
    "repeated": -4.475,
    "share": -1.761,
}
"""Weights of `answer_relevance` by feature: "KIND: SHAPE" of question and guess, "bias", the place and the conversation."""


@dataclass(frozen=True, eq=False)
class Relevance:
    """How far each of the m segments of a text is about a question.

    `rarity`: what each of the question's words counts, summing to 1, the rarer in the text the more (inverse segment
    frequency); `shares` and `context`: what those in the segment count together (1 where the question names nothing), and
    those that only the sentence before or the title holds; `gates`: factors in [0, 1] for the support that each segment gives
    to the guess. All (m,).
    """

    rarity: Mapping[str, float]
    shares: Array
    context: Array
    gates: Array


def relevance_of(text: Reference, asked: Sequence[str], told: Set[str]) -> Relevance:
    """Judge the segments of a text by the question's distinct forms (`asked`) and those of the guess (`told`).

    A text is judged by itself: no other makes its segments less relevant. A segment that holds fewer forms of the guess counts
    less.

    Example:
        >>> from langgraph_convcoa.verification.references import References
        >>> refs = References.of(["The bridge opened in 1894. A tower fell in 1907."])
        >>> [round(float(gate), 2) for gate in relevance_of(refs.references[0], ["bridg", "open"], {"1894"}).gates]
        [0.85, 0.0]
    """
    m = len(text.segments)
    shares, context, held = np.ones(m), np.zeros(m), np.ones(m)
    rarity: dict[str, float] = {}
    if asked:
        holders = {form: [n for n, segment in enumerate(text.segments) if form in segment.forms] for form in asked}
        weights = {form: math.log((m + 1) / (len(places) + 0.5)) for form, places in holders.items() if places}
        absent = ABSENT_SHARE * sum(weights.values()) / len(weights) if weights else 1.0
        weights = {form: weights.get(form, absent) for form in asked}
        total = sum(weights.values())
        rarity = {form: weight / total for form, weight in weights.items()}
        shares[:] = 0.0
        for form, places in holders.items():
            shares[places] += rarity[form]
    before: Set[str] = frozenset()
    for n, segment in enumerate(text.segments):
        context[n] = sum(r for f, r in rarity.items() if f not in segment.forms and (f in before or f in text.about))
        held[n] = len(told & segment.forms) / len(told) if told else 1.0
        before = segment.forms
    about = (shares + CONTEXT_SHARE * context) / (1 + CONTEXT_SHARE)
    return Relevance(rarity, shares, context, (FLOOR + (1 - FLOOR) * about) * (UNHELD + (1 - UNHELD) * held**2))


@dataclass(frozen=True, eq=False)
class Guess:
    """A guess and the question that it answers, with its items; `new` are those that the question does not have.

    `asked`: the distinct forms of the question's items, none where it has function words only, as "When was it?"; `told`: the
    forms of the new items, or of all where there are no others.
    """

    text: str
    question: str
    items: tuple[Item, ...]
    new: tuple[Item, ...]
    asked: tuple[str, ...]
    told: frozenset[str]

    @classmethod
    def of(cls, text: str, claims: Sequence[Segment], question: str) -> Guess:
        asked = tuple(dict.fromkeys(item.form for item in content_items(question))) if content_tokens(question) else ()
        items = tuple(item for claim in claims for item in claim.items)
        new = tuple(item for item in items if item.form not in asked)
        return cls(text, question, items, new, asked, frozenset(item.form for item in new or items))


@dataclass(frozen=True)
class Place:
    """The segment (index among all references') that supports a sentence of a guess (`claim`) best.

    `features`: what is known of the guess there, those that are 0 may be left out; `factor`: what is left of a number that
    stands where less is said of the question than elsewhere in the text.
    """

    segment: int
    claim: int
    features: dict[str, float]
    factor: float


def places_of(
    guess: Guess, parts: Sequence[Array], references: References, relevances: Sequence[Relevance]
) -> Iterator[Place]:
    """The best place of each reference: one sentence of the guess must stand there, the others need support alone.

    `parts` are, for each sentence of the guess, precision, recall and word length against each of m segments, (m, 3).
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


def answer_relevance(features: Mapping[str, float], weights: Mapping[str, float] = RELEVANCE_WEIGHTS) -> float:
    """The probability, in (0, 1), that a guess with these features answers its question."""
    return 1 / (1 + math.exp(-sum(weights.get(name, 0.0) * value for name, value in features.items())))


def guess_shape(kind: str, guess: str, new: Sequence[Item]) -> dict[str, float]:
    """Whether a guess holds what is asked for, is nothing but a number or a name, and how long it is.

    `new` are its items that the question does not have: what a sentence says beside the answer does not count against it.
    """
    held = {"quantity": holds_quantity(guess), "date": holds_date(guess), "name": any(item.is_name for item in new)}
    return {
        **{shape: float(held[shape]) for shape in _WANTED.get(kind, ())},
        "bare number": float(bool(new) and all(item.is_number for item in new)),
        "bare name": float(bool(new) and all(item.is_name for item in new)),
        "length": math.log1p(min(len(new), _LONG)),
    }


def _said(guess: Guess, references: References) -> dict[str, float]:
    """What the guess, the question and the earlier answers say, whatever the evidence."""
    kind = question_kind(guess.question)
    shape = {f"{kind}: {name}": value for name, value in guess_shape(kind, guess.text, guess.new).items()}
    forms, asked = {item.form for item in guess.items}, set(guess.asked)
    earlier = [r for r in references.references if r.earlier and r.about and _overlap(r.about, asked) < SAME_QUESTION_OVERLAP]
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


def _overlap(left: Set[str], right: Set[str]) -> float:
    union = left | right
    return len(left & right) / len(union) if union else 0.0
