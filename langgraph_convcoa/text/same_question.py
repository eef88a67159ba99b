"""Comparison of two self-contained questions. In doubt they count as different: a wrong recall gives a wrong answer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from langgraph_convcoa.text.clean import flat
from langgraph_convcoa.text.questions import AUXILIARIES, WH, answer_type, leans_on_conversation
from langgraph_convcoa.text.words import STOP_WORDS, content_items, content_words, words

SAME_SIMILARITY = 0.8
"""Minimum cosine of two questions whose words agree (chosen on the tuning part of `python -m experiments.memory`)."""
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
# "In what year" is "when", "the number of" is "how many".
_LIGHT = frozenset(f"a an the is are was were be been am in of {WH.replace('|', ' ')}".split())
_MEASURES = {"date": frozenset(["year", "date"]), "number": frozenset(["amount", "quantiti", "mani", "much", "number"])}


@dataclass(frozen=True)
class Meaning:
    """What a question asks, as far as its words show.

    `order` has its content words. `telling` has the function words that change the meaning. `leans`: it depends on the
    conversation. `news`: it asks for something that changes from day to day.
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
    """True if, by their words, an answer to one self-contained question may answer the other.

    Their content words, numbers, kinds of answer and telling function words ("not", "before", "did") must be equal. A
    question that depends on the conversation, or asks for news, is never the same as another.

    Example:
        >>> words_agree("When was Acme founded?", "In what year was Acme founded?")
        True
        >>> words_agree("What was the revenue of Acme in 2018?", "What was the revenue of Acme in 2019?")
        False
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
    """Signs that `words` drops, although they matter: "C++" and "C#" are not "C", and -5 is not 5."""
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
