"""Whether the sentence that holds a guess is about the question: a number stands in many that do not answer it."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from langgraph_convcoa.verification.references import References, Segment

DISTANCE_DECAY = 0.1
"""A question's word that stands d items from the guess counts 1 / (1 + 0.1 (d - 1))."""
CONTEXT_SHARE = 0.2
"""A question's word that only the sentence before or the title holds counts this much."""
FLOOR = 0.1
"""What is left of a supported guess whose sentence says nothing of the question: other words may say the same."""
BEST_SHARE = 0.5
"""Half of the relevance is absolute, half relative to the most relevant sentence of the same text."""
WRONG_KIND = 0.5
"""What is left of a guess that is not of the kind that is asked for (no number or date after "when" or "how many")."""

_ASKS_QUANTITY = re.compile(
    r"\bhow (?:many|much|old|long|far|tall|high|large|big|often|fast|deep|wide)\b|\bwhen\b"
    r"|\b(?:what|which) (?:year|date|day|month|decade|century|percent|percentage|number|population|amount)\b",
    re.IGNORECASE,
)
_ASKS_PERSON = re.compile(r"\bwho(?:m|se)?\b", re.IGNORECASE)
_QUANTITY = re.compile(
    r"\d|\b(?:zero|one|once|twice|half|third|quarter|dozens?|hundreds?|thousands?|millions?|billions?|trillions?|first|second|\w+teen|"
    r"two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+ty|january|february|march|april|may|june|july|august|"
    r"september|october|november|december|(?:mon|tues|wednes|thurs|fri|satur|sun)day|spring|summer|autumn|winter|"
    r"century|centuries|decades?|years?|months?|weeks?|days?|hours?|minutes?|morning|evening|night|today|before|after|during)\b",
    re.IGNORECASE,
)


def is_of_kind(question: str, guess: str) -> bool:
    """Whether a guess is of the kind that an English question asks for; True for what cannot be told.

    Example:
        >>> is_of_kind("When was it founded?", "in 1982"), is_of_kind("When was it founded?", "John Hopfield")
        (True, False)
    """
    if _ASKS_QUANTITY.search(question):
        return _QUANTITY.search(guess) is not None
    if _ASKS_PERSON.search(question):
        return not guess.isascii() or (not guess[:1].isdigit() and any(c.isupper() for c in guess))
    return True


def relevances(references: References, question: Sequence[str], guess: Collection[str]) -> NDArray[np.float64]:
    """How far each segment is about the question, in [0, 1], as an (m,) array.

    Args:
        references: The texts whose segments are judged.
        question: The distinct forms of the question's items.
        guess: The forms of the guess; a question's word counts more the nearer it stands to one of them.
    """
    if not question:
        return np.ones(len(references.segments))
    found: list[float] = []
    for reference in references.references:
        shares = []
        before: frozenset[str] = frozenset()
        for segment in reference.segments:
            near = _nearness(segment, question, guess)
            context = sum(form not in segment.forms and (form in before or form in reference.about) for form in question)
            shares.append((near + CONTEXT_SHARE * context) / len(question))
            before = segment.forms
        best = max(shares, default=0.0)
        found += [FLOOR + (1 - FLOOR) * ((1 - BEST_SHARE) * s + BEST_SHARE * s / best) if s else FLOOR for s in shares]
    return np.array(found)


def _nearness(segment: Segment, question: Sequence[str], guess: Collection[str]) -> float:
    """The question's words in a segment, each by its distance in items to the guess."""
    held = [form for form in question if form in segment.forms]
    if not held or segment.forms.isdisjoint(guess):
        return float(len(held))
    order = [item.form for item in segment.items]
    places = [n for n, form in enumerate(order) if form in guess]
    total = 0.0
    for form in held:
        distance = min(abs(n - place) for n, other in enumerate(order) if other == form for place in places)
        total += 1 / (1 + DISTANCE_DECAY * max(distance - 1, 0))
    return total
