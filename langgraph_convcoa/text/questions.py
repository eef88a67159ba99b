"""Rules for English questions: vocabulary, the kind of answer to a question, and whether two questions ask the same."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from langgraph_convcoa.text.clean import flat
from langgraph_convcoa.text.words import NUMBER_WORDS, STOP_WORDS, content_items, content_words, words

AnswerType = Literal["date", "number", "person", "owner", "place", "reason", "thing"]
"""The kind of answer that a question asks for: a date, a number, a name, an owner, a place, a reason, or anything else."""

# Vocabulary, as alternatives of a regular expression.
WH = "who|whom|whose|what|which|when|where|why|how"
PERSONAL = "it|its|they|them|their|theirs|he|him|his|she|her|hers"
AUXILIARIES = "is|are|am|was|were|be|been|do|does|did|has|have|had|can|could|will|would|shall|should|may|might|must"
NEGATIONS = r"not|no|never|none|nobody|nothing|neither|nor|without|cannot|\w+n['’]t"
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
    # A later question word only joins a clause: "Who ruled when the city fell?"
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
    """True if a token looks like part of a name: it has a capital, and not only because a sentence starts with it."""
    word = bare(token)
    return bool(word) and word[0].isupper() and (not first or not word[1:].islower())


def leans_on_conversation(question: str) -> bool:
    """True if a word of a question may point to earlier turns: a pronoun, "the same", "and" or "what about" at its start."""
    return _LEANS.search(question) is not None


def holds_negation(text: str) -> bool:
    """True if a text has a word such as "not"."""
    return _NEGATION.search(text) is not None


SAME_SIMILARITY = 0.8
"""Minimum cosine of two questions that count as the same (chosen on the tuning part of `python -m experiments.memory`)."""
LONGEST_COMPARED = 500  # Maximum number of characters. A longer question is never the same as another.
LEAST_ITEMS = 2  # A question with fewer content words counts as dependent on the conversation.
_LEAD = re.compile(
    r"^(?:(?:please|also|again)\b,?\s+)*(?:(?:(?:can|could|would|will) you (?:please )?)?(?:tell|remind|show) me(?: again)?\b"
    r"|do you know\b|i (?:would like|want|need) to know\b|i wonder\b)?,?\s*",
    re.IGNORECASE,
)
_NEWS = re.compile(
    r"\b(?:latest|newest|current|currently|today|tonight|tomorrow|yesterday|now|nowadays|at the moment|recent|recently|news"
    r"|up[- ]to[- ]date|so far|(?:this|last) (?:week|month|year|night|morning|season))\b",
    re.IGNORECASE,
)
_WH = re.compile(rf"\b(?:{WH})\b", re.IGNORECASE)
_WHY = re.compile(r"\b(?:why|reasons?|causes?|caused|led to)\b", re.IGNORECASE)
_SIGNS = re.compile(r"\w[+#]+(?!\w)|(?<![\w.)])[-−]\d")
_DEFINITION = re.compile(
    r"^(?:what|who) (?:(?:is|are|was|were) (?:an? )?\w[\w-]*|(?:an? )?\w+ (?:is|are))[?.!\s]*$", re.IGNORECASE
)
# Words that are not compared: "in what year" is "when", "the number of" is "how many".
_LIGHT = frozenset(f"a an the is are was were be been am in of {WH.replace('|', ' ')}".split())
_MEASURES = {"date": frozenset(["year", "date"]), "number": frozenset(["amount", "quantiti", "mani", "much", "number"])}


@dataclass(frozen=True)
class Meaning:
    """What a question asks, as far as its words show.

    `order` has its content words. `telling` has the function words that change the meaning. `leans` is True if the question
    depends on the conversation, `news` if it asks for something that changes from day to day.
    """

    kind: str
    order: tuple[str, ...]
    names: frozenset[str]
    numbers: tuple[str, ...]
    telling: frozenset[str]
    leans: bool
    news: bool


@lru_cache(maxsize=2_000)
def meaning(question: str) -> Meaning:
    """What a question asks."""
    text = _LEAD.sub("", flat(question), count=1)
    kind = _kind(text)
    items = content_items(text) if content_words(text) else ()
    items = tuple(item for item in items if item.form not in _MEASURES.get(kind, ()))
    return Meaning(
        kind=kind,
        order=tuple(dict.fromkeys(item.form for item in items)),
        names=frozenset(item.form for item in items if item.is_name),
        numbers=tuple(dict.fromkeys(item.form for item in items if item.is_number)),
        telling=frozenset(words(text)) & STOP_WORDS - _LIGHT,
        leans=leans_on_conversation(text) or len(items) < (1 if _DEFINITION.match(text) else LEAST_ITEMS),
        news=_NEWS.search(text) is not None,
    )


def words_agree(first: str, second: str) -> bool:
    """True if two self-contained questions have the same words, so that one answer may serve both.

    Their content words, numbers, kinds of answer, and function words such as "not", "before" and "did" must be equal. A
    question that depends on the conversation, or asks for news, is never the same as another.
    """
    if max(len(first), len(second)) > LONGEST_COMPARED or _signs(first) != _signs(second):
        return False
    one, other = meaning(first), meaning(second)
    if one.leans or other.leans or one.news or other.news:
        return False
    # A name may have a capital in only one of the questions: "did ajax beat Feyenoord".
    named = one.names | other.names
    return (
        (one.kind, one.numbers, one.telling, set(one.order)) == (other.kind, other.numbers, other.telling, set(other.order))
    ) and [form for form in one.order if form in named] == [form for form in other.order if form in named]


def _signs(text: str) -> list[str]:
    """The signs that matter although `words` drops them: "C++" and "C#" are not "C", and -5 is not 5."""
    return sorted(sign.lower() for sign in _SIGNS.findall(text))


def _kind(text: str) -> str:
    kind = answer_type(text)
    if kind == "reason" and not _WHY.search(text):
        return "manner"
    if kind != "thing":
        return kind
    asked = _WH.search(text)
    if asked is None:
        return "polar" if (words(text) or [""])[0] in AUXILIARIES.split("|") else "thing"
    return "manner" if asked.group().lower().startswith("how") else "thing"
