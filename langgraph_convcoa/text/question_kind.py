"""What kind of answer an English question asks for, and what a guess brings: numbers, dates, names, length."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from langgraph_convcoa.verification.references import Item

_WHAT = r"\b(?:what|which) (?:(?:is|was|were|are) the )?(?:\w+ )?"
_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        ("more", r"\b(?:else|other|interesting|tell me)\b"),
        ("time", rf"\bwhen\b|{_WHAT}(?:year|date|day|month|decade|century|time|season)s?\b"),
        (
            "quantity",
            r"\bhow (?:many|much|old|long|far|tall|high|large|big|often|fast|deep|wide)\b"
            rf"|{_WHAT}(?:percent|percentage|number|population|amount|age|rate|distance|temperature|size|area|length|height|width"
            r"|depth|weight|speed|price|cost|value|sum|total|revenue|income|profit|loss|sales|turnover|margin|budget|salary|growth)s?\b",
        ),
        (
            "person",
            r"\bwho(?:m|se)?\b"
            rf"|{_WHAT}(?:person|man|woman|king|queen|president|player|singer|author|scientist|actor|actress|director|leader"
            r"|emperor|artist|writer)\b",
        ),
        ("place", rf"\bwhere\b|{_WHAT}(?:city|country|state|place|town|location|continent|region|river|island|county)\b"),
        ("reason", rf"\bwhy\b|\bhow come\b|{_WHAT}(?:cause|reason)s?\b"),
        (
            "name",
            rf"{_WHAT}(?:name|album|song|single|book|film|movie|team|band|company|group|record|show|award|language|school"
            r"|university|college|magazine)s?\b|\b(?:titled|called|named)\b",
        ),
        ("way", r"\bhow\b"),
        ("thing", r"\b(?:what|which)\b"),
    )
)
KINDS = (*(kind for kind, _ in _KINDS), "other")
"""What a question may ask for; "other" is a yes or a no, and whatever cannot be told."""
_WANTED: dict[str, tuple[str, ...]] = {
    "time": ("date", "quantity"),
    "quantity": ("quantity",),
    "person": ("name",),
    "place": ("name",),
    "name": ("name",),
}

_QUANTITY = re.compile(
    r"\d|\b(?:zero|one|once|twice|half|third|quarter|dozens?|hundreds?|thousands?|millions?|billions?|trillions?|first|second"
    r"|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|(?:twen|thir|for|fif|six|seven|eigh|nine)ty)\b",
    re.IGNORECASE,
)
_DATE = re.compile(
    r"\b(?:1\d{3}|20\d\d|\d+0s|january|february|march|april|may|june|july|august|september|october|november|december"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)day|spring|summer|autumn|winter|century|centuries|decades?)\b",
    re.IGNORECASE,
)
_LONG = 8


def question_kind(question: str) -> str:
    """What a question asks for, one of `KINDS`.

    Example:
        >>> [question_kind(q) for q in ("When was it built?", "What city is it in?", "How was it built?", "Was it built?")]
        ['time', 'place', 'way', 'other']
    """
    return next((kind for kind, pattern in _KINDS if pattern.search(question)), "other")


def guess_shape(kind: str, guess: str, new: Sequence[Item]) -> dict[str, float]:
    """Whether a guess holds what is asked for, is nothing but a number or a name, and how long it is.

    What a whole sentence says beside the answer does not count against it.

    Args:
        kind: What is asked for.
        guess: The text.
        new: Its items that the question does not have: a sentence says the question over again.

    Example:
        >>> from langgraph_convcoa.verification.references import content_items
        >>> {name: round(value, 2) for name, value in guess_shape("time", "in 1982", content_items("in 1982")).items()}
        {'date': 1.0, 'quantity': 1.0, 'bare number': 1.0, 'bare name': 0.0, 'length': 0.69}
    """
    held = {
        "quantity": _QUANTITY.search(guess) is not None,
        "date": _DATE.search(guess) is not None,
        "name": any(item.is_name for item in new),
    }
    return {
        **{shape: float(held[shape]) for shape in _WANTED.get(kind, ())},
        "bare number": float(bool(new) and all(item.is_number for item in new)),
        "bare name": float(bool(new) and all(item.is_name for item in new)),
        "length": math.log1p(min(len(new), _LONG)),
    }
