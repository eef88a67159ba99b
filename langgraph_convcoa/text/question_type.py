"""What kind of answer a question wants, and which words of a sentence could be one."""

from __future__ import annotations

import re
from typing import Literal

AnswerType = Literal["date", "number", "person", "place", "reason", "thing"]
"""The kind of answer: a date, a number, a name, a place, a reason, or anything else."""

_RULES: tuple[tuple[AnswerType, re.Pattern[str]], ...] = (
    (
        "date",
        re.compile(
            r"\bwhen\b|\b(?:what|which) (?:\w+ )?(?:years?|dates?|decades?|century|centuries|months?|days?|era)\b", re.I
        ),
    ),
    (
        "number",
        re.compile(
            r"\bhow (?:many|much|long|old|far|tall|high|large|big|often|fast|deep|wide|heavy|hot|cold)\b"
            r"|\b(?:what|which) (?:\w+ ){0,3}?(?:percent(?:age)?|number|population|amount|age|size|rate|temperature"
            r"|length|height|width|depth|distance|price|cost|rank)\b|\b(?:percent(?:age)?|number) of\b.*\bwhat\b",
            re.I,
        ),
    ),
    ("person", re.compile(r"\b(?:who|whom|whose)\b|\b(?:what|which) (?:\w+ )?(?:person|man|woman|king|queen|author)\b", re.I)),
    (
        "place",
        re.compile(
            r"\bwhere\b|\b(?:what|which) (?:\w+ )?(?:city|country|state|place|town|river|region|continent|island|county|nation"
            r"|countries|cities|states|street|building|location|area|province|village)\b",
            re.I,
        ),
    ),
    (
        "reason",
        re.compile(r"\bwhy\b|\bwhat (?:was |is )?(?:the )?(?:reason|cause[ds]?|led to)\b|\bhow (?:come|did|do|does)\b", re.I),
    ),
)


def _set_of(words: str) -> frozenset[str]:
    return frozenset(words.split())


_YEAR = re.compile(r"^(?:c\.)?(?:1\d{3}|20\d\d)(?:s|[-–/]\d{2,4})?$")
_MONTHS = _set_of(
    """
    january february march april june july august september october november december jan feb mar apr aug sept sep oct
    nov dec
    """
)
_TIME_WORDS = _set_of(
    """
    century centuries decade ago bc bce ad ce era monday tuesday wednesday thursday friday saturday sunday
    """
)
_NUMBER_WORDS = _set_of(
    """
    one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
    nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion trillion half third
    quarter dozen percent twice once first second
    """
)
_REASON_WORDS = _set_of(
    """
    because due since therefore thus hence so order allow allowed caused cause reason result led
    """
)
_EDGES = "\"'“”‘’.,;:!?()[]{}…—–-"


def answer_type(question: str) -> AnswerType:
    """The kind of answer that a question wants; "thing" where no rule says more.

    Example:
        >>> [answer_type(q) for q in ("When was it built?", "How many are there?", "Who wrote it?", "What is a memory?")]
        ['date', 'number', 'person', 'thing']
    """
    found = [(match.start(), kind) for kind, pattern in _RULES if (match := pattern.search(question))]
    # The first question word asks, a later one joins a clause: "Who ruled when the city fell?"
    return min(found)[1] if found else "thing"


def bare(token: str) -> str:
    """A token without the punctuation around it."""
    return token.strip(_EDGES)


def is_date(token: str) -> bool:
    """Whether a token (as it stands, punctuation included) is part of a date."""
    word = bare(token)
    lower = word.lower()
    return bool(_YEAR.match(word)) or (word[:1].isupper() and (lower in _MONTHS or word == "May")) or lower in _TIME_WORDS


def is_number(token: str) -> bool:
    """Whether a token holds a digit or is a number word."""
    return any(character.isdigit() for character in token) or bare(token).lower() in _NUMBER_WORDS


def is_name(token: str, first: bool) -> bool:
    """Whether a token looks like a part of a name: a capital that is not only there because the sentence starts."""
    word = bare(token)
    return bool(word) and word[0].isupper() and (not first or not word[1:].islower())


def fits(kind: AnswerType, token: str, first: bool) -> bool:
    """Whether a token could be part of an answer of a kind; every token fits "thing"."""
    if kind == "date":
        return is_date(token)
    if kind == "number":
        return is_number(token)
    if kind in ("person", "place"):
        return is_name(token, first)
    if kind == "reason":
        return bare(token).lower() in _REASON_WORDS
    return True
