"""Rules for English questions: their vocabulary, the kind of answer that they ask for, and the words that fit that kind."""

from __future__ import annotations

import re
from typing import Literal

AnswerType = Literal["date", "number", "person", "owner", "place", "reason", "thing"]
"""The kind of answer that a question asks for: a date, a number, a name, an owner, a place, a reason, or anything else."""

# Vocabulary, as alternatives of a regular expression.
WH = "who|whom|whose|what|which|when|where|why|how"
PERSONAL = "it|its|they|them|their|theirs|he|him|his|she|her|hers"
AUXILIARIES = "is|are|am|was|were|be|been|do|does|did|has|have|had|can|could|will|would|shall|should|may|might|must"
NEGATIONS = r"not|no|never|none|nobody|nothing|neither|nor|without|cannot|\w+n['’]t"
_SMALL = (
    "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
# "one" is left out: it is a pronoun more often than a number.
NUMBER_WORDS = {word: str(n) for n, word in enumerate(_SMALL.split(), 2)}
NUMBER_WORDS |= {word: str(10 * n) for n, word in enumerate(_TENS.split(), 2)}
"""Number words with their digits."""
_AMOUNTS = "dozen|hundred|thousand|million|billion|trillion|one|once|twice|half|third|quarter|first|second|percent"
_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
_WEEKDAYS = "monday|tuesday|wednesday|thursday|friday|saturday|sunday"
_DEGREES = "many|much|long|old|far|tall|high|large|big|often|fast|deep|wide"
_TIMES = "year|date|decade|century|month|day"
_QUANTITIES = (
    "percent|percentage|number|population|amount|age|size|rate|temperature|length|height|width|depth|distance|price|cost"
)
_PEOPLE = "person|man|woman|king|queen|author"
_PLACES = "city|country|state|place|town|river|region|continent|island|county|location"

_WHAT = r"\b(?:what|which) (?:\w+ )?"
_TYPES: dict[AnswerType, str] = {
    "date": rf"\bwhen\b|{_WHAT}(?:(?:{_TIMES})s?|centuries|era)\b",
    "number": rf"\bhow (?:{_DEGREES}|heavy|hot|cold)\b|\b(?:what|which) (?:\w+ ){{0,3}}?(?:{_QUANTITIES}|rank)\b"
    r"|\b(?:percent(?:age)?|number) of\b.*\bwhat\b",
    "person": rf"\b(?:who|whom)\b|{_WHAT}(?:{_PEOPLE})\b",
    "owner": r"\bwhose\b",
    "place": rf"\bwhere\b|{_WHAT}(?:{_PLACES}|nation|countries|cities|states|street|building|area|province|village)\b",
    "reason": r"\bwhy\b|\bwhat (?:was |is )?(?:the )?(?:reason|cause[ds]?|led to)\b|\bhow (?:come|did|do|does)\b",
}
_NEGATION = re.compile(rf"\b(?:{NEGATIONS})\b", re.IGNORECASE)
_TYPE_PATTERNS = {kind: re.compile(pattern, re.IGNORECASE) for kind, pattern in _TYPES.items()}

_YEAR = re.compile(r"^(?:c\.)?(?:1\d{3}|20\d\d)(?:s|[-–/]\d{2,4})?$")
_SHORT_MONTHS = "jan|feb|mar|apr|aug|sept|sep|oct|nov|dec"
_MONTH_WORDS = frozenset(f"{_MONTHS}|{_SHORT_MONTHS}".split("|")) - {"may"}
_TIME_WORDS = frozenset(f"century|centuries|decade|ago|bc|bce|ad|ce|era|{_WEEKDAYS}".split("|"))
_NUMBERS = frozenset([*NUMBER_WORDS, *_AMOUNTS.split("|")])
REASON_WORDS = frozenset(
    "because|due|since|therefore|thus|hence|so|order|allow|allowed|caused|cause|reason|result|led".split("|")  # noqa: SIM905
)
_LEANS = re.compile(
    rf"^\W*(?:and|but|so|what about|how about|what else)\b|\b(?:{PERSONAL}|this|that|these|those|there|one|ones|former|latter"
    r"|same|else|other|others|another)\b",
    re.IGNORECASE,
)
_EDGES = "\"'“”‘’.,;:!?()[]{}…—–-"


def answer_type(question: str) -> AnswerType:
    """The kind of answer that the first question word asks for; "thing" if no rule fits."""
    found = [(match.start(), kind) for kind, pattern in _TYPE_PATTERNS.items() if (match := pattern.search(question))]
    # A later question word joins a clause: "Who ruled when the city fell?"
    return min(found)[1] if found else "thing"


def bare(token: str) -> str:
    """A token without the punctuation around it."""
    return token.strip(_EDGES)


def is_date(token: str) -> bool:
    """Whether a token (with its punctuation) is part of a date."""
    word = bare(token)
    lower = word.lower()
    return bool(_YEAR.match(word)) or (word[:1].isupper() and (lower in _MONTH_WORDS or word == "May")) or lower in _TIME_WORDS


def is_number(token: str) -> bool:
    """Whether a token holds a digit or is a number word."""
    words = bare(token).lower().split("-")
    return any(character.isdigit() for character in token) or not _NUMBERS.isdisjoint(words)


def is_name(token: str, first: bool) -> bool:
    """Whether a token looks like a part of a name: a capital that is not only there because the sentence starts."""
    word = bare(token)
    return bool(word) and word[0].isupper() and (not first or not word[1:].islower())


def leans_on_conversation(question: str) -> bool:
    """True if a word of a question may point to earlier turns: a pronoun, "the same", "and" or "what about" at its start."""
    return _LEANS.search(question) is not None


def holds_negation(text: str) -> bool:
    """True if a text has a word such as "not"."""
    return _NEGATION.search(text) is not None
