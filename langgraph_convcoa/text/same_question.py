"""Comparison of two self-contained questions, precision first: a wrong recall is a wrong answer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from langgraph_convcoa.text.kept import kept_by_characters
from langgraph_convcoa.text.questions import NEGATIONS, PERSONAL, WH, answer_type
from langgraph_convcoa.text.words import content_items, content_words, stem, words

SAME_SIMILARITY = 0.8
"""Least cosine of two questions whose words agree (chosen on the tuning part of `python -m experiments.memory`)."""
LONGEST_COMPARED = 500
"""Characters; what is longer is never taken for the same question."""
LEAST_ITEMS = 2
"""Fewer content words do not say what is meant."""

_LEAD = re.compile(
    r"^(?:(?:can|could|would|will) you (?:please |kindly |also )?"
    r"(?:tell|explain|give|say|describe|show|let|remind|provide|clarify)(?: to)?(?: me| us)?(?: again| once more)?"
    r"(?: know)?(?: about)?"
    r"|(?:do|did) you (?:happen to )?know|(?:are you able to) tell me"
    r"|i(?: would|['’]d)? (?:like|love|want|need) to know|i (?:wonder|am wondering|was wondering)"
    r"|(?:please )?(?:tell|remind|give) me(?: again| once more)?(?: about)?"
    r"|please (?:explain|describe))\b[,:]?\s*(?:if |whether )?",
    re.IGNORECASE,
)
_FILLER = re.compile(r"^(?:(?:ok(?:ay)?|so|well|hi|hello|please|also|again|once more)\b[,!.]?\s+)+", re.IGNORECASE)
_HAVE_TO = re.compile(r"\b(?:need|needs|have|has) to\b", re.IGNORECASE)
_TAIL = re.compile(r"[\s,]*\b(?:please|again|once more|exactly|by the way)[\s?.!]*$", re.IGNORECASE)
_LEANS = re.compile(
    rf"\b(?:{PERSONAL}|these|those|this|here|there['’]s|former|latter|same|ones"
    r"|that (?:year|period|time|case|company|one|person|place|date|amount|event))\b|^\W*(?:and|but|what about|how about)\b",
    re.IGNORECASE,
)
_NEWS = re.compile(
    r"\b(?:latest|newest|currently"
    r"|(?<!non-)current(?! (?:assets?|liabilit|ratio|tax|portion|accounts?|and\b|or\b|monetary)|[?.,])"
    r"|today|tonight|tomorrow|yesterday|now|nowadays|at the moment|recent|recently|news"
    r"|up[- ]to[- ]date|so far|this (?:week|month|year|morning|season)|last (?:week|month|night))\b",
    re.IGNORECASE,
)
_NEGATION = re.compile(rf"\b(?:{NEGATIONS}|except|excluding)\b", re.IGNORECASE)
_WH = re.compile(rf"\b(?:{WH})\b(?:\s+(\w+))?", re.IGNORECASE)
_SIGNS = re.compile(r"\w[+#]+(?!\w)|(?<![\w.)])[-−]\d")
_AMOUNT = re.compile(r"\bthe (?:total )?amount of\b", re.IGNORECASE)
_EMBEDDED = "?"
_WHY = re.compile(r"\b(?:why|reasons?|causes?|caused|led to)\b", re.IGNORECASE)


def _set_of(texts: str) -> frozenset[str]:
    return frozenset(texts.split())


_AUXILIARY = _set_of("is are was were be been am do does did has have had can could will would should must may might")


_TIMES = _set_of("in on at during before after")
_PREPOSITIONS = _set_of("to from with by against for of")
# Function words that change what is asked.
_TELLING = _set_of(
    """before after above below under over more most only other up down out off against few all both same until
    without while former latter own"""
)
_MODALS = {"should": "must", "must": "must", "may": "may", "might": "may", "can": "can", "could": "can"}
# Words that a question may have or lack without another meaning; none of them says which one is meant.
_LIGHT = frozenset(
    stem(word)
    for word in _set_of(
        """tell know knows explain describe give say said get got happen happened occur occurred take took taken place
        called named known termed name term exactly actually really precisely kind type sort mean means meant there
        become became become used use uses involve involved involves specific particular certain respectively year date"""
    )
)
_SYNONYMS = {
    stem(word): stem(group.split()[0])
    for group in """
    film films movie movies; die died dies death; born birth; found founded founding established establish creation created
    create; build built constructed construct construction; write wrote written writes author authored; begin began begins
    started start starts commence commenced beginning; end ended ends finish finished conclude concluded; change changes
    changed difference; increase increased increases rise rose growth grew grow; decrease decreased decreases decline
    declined reduction; buy bought purchase purchased acquire acquired acquisition; cost costs price; locate located location
    situated; big large; child children kid kids; lawyer lawyers attorney attorneys; car cars automobile automobiles; help
    assist assistance; allow allowed permit permitted; obtain obtained receive received; show display; important significant;
    whole entire; percent percentage; amount value; quantity number count; people persons person; play played plays; win won
    wins winner; publish published publication; release released releases; introduce introduced introduction; invent invented
    invention inventor; discover discovered discovery; language languages; usa us; television tv
    """.split(";")  # noqa: SIM905
    for word in group.split()
}
# "The amount of X in 2018" is "X in 2018", "the number of teams" is "how many teams".
_MEASURE = frozenset({"amount", "quantiti", "mani", "much"})
_DEFINITION = re.compile(
    r"^(?:what|who) (?:is|are|was|were) (?:an? )?\w[\w-]*[?.!\s]*$|^(?:what|who) (?:an? )?\w+ (?:is|are)[?.!\s]*$", re.I
)


@dataclass(frozen=True)
class Meaning:
    """What a question asks as far as its words tell: two that ask the same have equal meanings.

    `role`: whether what is asked for acts ("who beat X"); `items`, `names`, `numbers`, `order`: its content words with
    synonyms as one, all of them in order last; `ending`: the preposition that belongs to what is asked for ("migrate from",
    "to whom"); `telling`: function words that change the meaning; `leans`: it needs the conversation to be understood; `news`:
    it asks for what changes from day to day.
    """

    kind: str
    role: str
    items: frozenset[str]
    names: tuple[str, ...]
    numbers: tuple[str, ...]
    order: tuple[str, ...]
    ending: str
    telling: frozenset[str]
    negated: bool
    leans: bool
    news: bool


@kept_by_characters(500_000)
def meaning(question: str) -> Meaning:
    """What a question asks.

    Example:
        >>> found = meaning("Can you tell me when the film was released in France?")
        >>> found.kind, sorted(found.items), found.names
        ('date', ['film', 'franc', 'releas'], ('franc',))
    """
    plain_text = _HAVE_TO.sub("must", _FILLER.sub("", " ".join(question.split())))
    text = _TAIL.sub("", led := _LEAD.sub("", plain_text))
    kind = _kind(_AMOUNT.sub("", text))
    items = content_items(text) if content_words(text) else ()
    forms = [item.form if item.is_name or item.is_number else _SYNONYMS.get(item.form, item.form) for item in items]
    dropped = _LIGHT | _MEASURE if kind in ("number", "thing") else _LIGHT
    kept = [
        (form, item)
        for form, item in zip(forms, items, strict=True)
        if item.is_name or item.is_number or form not in dropped or (form in ("year", "date") and kind != "date")
    ]
    plain = words(text)
    return Meaning(
        kind=kind,
        role=_role(text, kind, embedded=led != plain_text),
        items=frozenset(form for form, _ in kept),
        names=tuple(dict.fromkeys(form for form, item in kept if item.is_name)),
        numbers=tuple(dict.fromkeys(form for form, item in kept if item.is_number)),
        order=tuple(dict.fromkeys(form for form, _ in kept)),
        ending=_ending(text, plain),
        telling=frozenset(_TELLING.intersection(plain)) | frozenset(_MODALS[word] for word in plain if word in _MODALS),
        negated=_NEGATION.search(text) is not None,
        leans=_LEANS.search(text) is not None or len(kept) < (1 if _DEFINITION.match(text) else LEAST_ITEMS),
        news=_NEWS.search(text) is not None,
    )


def words_agree(first: str, second: str) -> bool:
    """The part of `asks_the_same` that needs no vectors."""
    if max(len(first), len(second)) > LONGEST_COMPARED:
        return False
    one, other = meaning(first), meaning(second)
    if one.leans or other.leans or one.news or other.news or _signs(first) != _signs(second):
        return False
    if one.role != other.role and (_EMBEDDED not in (one.role, other.role) or one.order != other.order):
        return False
    return (
        (one.kind, one.ending, one.items) == (other.kind, other.ending, other.items)
        and (one.numbers, one.telling, one.negated) == (other.numbers, other.telling, other.negated)
        and _order_of_names(one, other) == _order_of_names(other, one)
    )


def asks_the_same(first: str, second: str, similarity: float, threshold: float = SAME_SIMILARITY) -> bool:
    """Whether an answer to one self-contained question answers the other, given the cosine of their vectors.

    Their words must agree: names and numbers, negation, what is asked for and every content word up to synonyms. A question
    that depends on the conversation, or asks for news, is never the same as another.

    Example:
        >>> asks_the_same("When was Acme founded?", "In what year was Acme founded?", 0.95)
        True
        >>> asks_the_same("What was the revenue of Acme in 2018?", "What was the revenue of Acme in 2019?", 0.98)
        False
    """
    return similarity >= threshold and words_agree(first, second)


def _signs(text: str) -> list[str]:
    """Signs that words leave out: "C++" and "C#" beside "C", -5 beside 5."""
    return sorted(sign.lower() for sign in _SIGNS.findall(text))


def _kind(text: str) -> str:
    kind = answer_type(text)
    if kind == "reason" and not _WHY.search(text):
        return "manner"
    if kind != "thing":
        return kind
    if (asked := _WH.search(text)) is None:
        first = (words(text) or [""])[0]
        return "polar" if first in _AUXILIARY else "thing"
    return "manner" if asked.group().lower().startswith("how") else "thing"


def _role(text: str, kind: str, *, embedded: bool) -> str:
    """What is asked for "acts" in "who beat X" and "which team beat X"; "" where it cannot be told or makes no difference."""
    asked = _WH.search(text)
    if asked is None or kind not in ("person", "thing", "place"):
        return ""
    if (word := asked.group().split()[0].lower()) not in ("who", "what", "which"):
        return ""
    before = [] if text[: asked.start()].rstrip().endswith(",") else words(text[: asked.start()])
    if before and before[-1] not in _set_of("in on at of by for to with from and"):
        return "last"  # "Beyonce lost to which artist"
    after = words(text[asked.end() - len(asked[1] or "") :])
    auxiliaries = [n for n, other in enumerate(after) if other in _AUXILIARY]
    if not auxiliaries or (word == "who" and auxiliaries[0] > 0):
        # "Tell me who beat Ajax", "tell me who Ajax beat": the order of the words must tell.
        return _EMBEDDED if embedded else "acts"
    return ""


def _order_of_names(one: Meaning, other: Meaning) -> list[str]:
    """Names in order, also those that the other question alone writes with a capital: "Did Ajax beat Feyenoord?"."""
    named = {*one.names, *other.names}
    return [form for form in one.order if form in named]


def _ending(text: str, plain: list[str]) -> str:
    if plain and plain[-1] in _PREPOSITIONS:
        return plain[-1]
    if stranded := next((one for one, other in pairwise(plain) if one in _PREPOSITIONS and other in _TIMES), ""):
        return stranded
    if (asked := _WH.search(text)) and (before := words(text[: asked.start()])) and before[-1] in _PREPOSITIONS:
        return before[-1]
    return ""
