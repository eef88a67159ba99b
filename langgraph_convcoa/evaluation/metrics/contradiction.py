"""Contradiction of two answers to one question, found by their words; precision first, for every hit is reported."""

from __future__ import annotations

import re

from langgraph_convcoa.text.matching import normalise_answer, strip_citations
from langgraph_convcoa.text.same_question import meaning
from langgraph_convcoa.text.words import Item, content_items, sentences

_POLAR = re.compile(r"\W*(yes|no)\b(?!\s+(?:one|body|longer))", re.IGNORECASE)
_REFUSAL = re.compile(
    r"\b(?:(?:do|does|did|could|can|was|were|is|are)(?: not|n['’]t)|cannot|unable to|no)\s+(?:\w+\s+){0,2}?"
    r"(?:know|find|found|say|tell|answer|determine|enough|information|evidence|sure|mentioned|stated)\b"
    r"|\bunanswerable\b|\bunknown\b|\bnothing (?:was )?found\b",
    re.IGNORECASE,
)
_SCALE = re.compile(r"\b(?:hundred|thousand|million|billion|trillion|dozen)s?\b", re.IGNORECASE)
_SHORT_WORDS = 12
_BARE_ITEMS = 3


def contradicts(question: str, earlier: str, later: str) -> bool | None:
    """Whether two answers to a question exclude each other.

    A yes against a no; for dates and numbers, other numbers; for persons, places and things, other names, or for bare answers
    of a few words other words. An answer that says less is no contradiction ("1815" after "10 December 1815").

    Limits: other words for one name ("USA", "United States") are taken for another; reasons and manners are not compared.
    None where the two cannot be compared: one of them refuses, or gives no value of the kind that is asked for.

    Example:
        >>> contradicts("When was she born?", "10 December 1815", "In 1816 [1]."), contradicts("When?", "1815", "in May 1815")
        (True, False)
        >>> contradicts("Was it built?", "Yes, in 1840.", "No."), contradicts("Who?", "Ada Lovelace", "I could not find it.")
        (True, None)
    """
    one, other = strip_citations(earlier).strip(), strip_citations(later).strip()
    if not one or not other or _REFUSAL.search(one) or _REFUSAL.search(other):
        return None
    first, second = (f" {normalise_answer(text)} " for text in (one, other))
    if first in second or second in first:
        return False
    polar = [match[1].lower() if (match := _POLAR.match(text)) else "" for text in (one, other)]
    if all(polar):
        return polar[0] != polar[1]
    asked = meaning(question)
    if asked.kind in ("reason", "manner", "polar"):
        return None
    known = {item.form for item in content_items(question)}
    items, others = ([item for item in _items(text) if item.form not in known] for text in (one, other))
    short = max(len(one.split()), len(other.split())) <= _SHORT_WORDS
    if asked.kind in ("date", "number"):
        if set(_SCALE.findall(one)) != set(_SCALE.findall(other)):
            return None
        numbers = ({item.form for item in found if item.is_number} for found in (items, others))
        return _apart(*numbers, strict=not short)
    return _other_value(items, others)


def _other_value(items: list[Item], others: list[Item]) -> bool | None:
    names = [{item.form for item in found if item.is_name} for found in (items, others)]
    if all(names):
        return _apart(*names, strict=True)
    if any(names) or not items or not others or max(len(items), len(others)) > _BARE_ITEMS:
        return None
    return _apart({item.form for item in items}, {item.form for item in others}, strict=True)


def _apart(one: set[str], other: set[str], *, strict: bool) -> bool | None:
    """Whether they share nothing; where not strict, whether each also has what the other lacks. None where one is empty."""
    if not one or not other:
        return None
    return one.isdisjoint(other) if strict else not (one <= other or other <= one)


def _items(text: str) -> list[Item]:
    # By sentences, since a capital that opens one is no name; a bare answer is no sentence.
    if len(text.split()) <= _BARE_ITEMS:
        return list(content_items(f"It is {text}"))
    return [item for sentence in sentences(text) for item in content_items(sentence.text)]
