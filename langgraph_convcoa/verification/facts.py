"""The facts of a sentence: its items in comparable form, what of them is strict, and what stands under a "not"."""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass
from functools import lru_cache

from langgraph_convcoa.text.kept import kept_by_characters
from langgraph_convcoa.text.numbers import normalize
from langgraph_convcoa.text.questions import NEGATIONS
from langgraph_convcoa.text.words import content_tokens, words

_NEGATION = re.compile(
    rf"\b(?!(?:not only|no (?:later|earlier|sooner|more|less|fewer) than|no matter|nothing but)\b)(?:{NEGATIONS})\b",
    re.IGNORECASE,
)
_SOFT_NEGATION = re.compile(
    r"\b(?:un(?!der|til|it|ion|iver|iqu|less|to)\w{3,}|in(?:eligible|valid|capable|sufficient|correct)|im(?:possible|proper)|"
    r"lack\w*|fail\w*|prevent\w*|prohibit\w*|refus\w*|den(?:y|ied|ies)|hardly|exclud\w*|except|avoid\w*|absen\w*|forb[ai]d\w*|"
    r"ban(?:s|ned)?|reject\w*|declin\w*|ceas\w*|stop(?:s|ped)?|instead of|rather than|zero)\b",
    re.IGNORECASE,
)
_SUFFIXES = frozenset(("s", "es", "n", "an", "ian", "ish", "ese", "i", "er"))
_SCOPE = 3
"""Content words behind a "not" that it turns round."""
_OPENING = frozenset(':.!?"“‘(*•–—-')
_CLAUSE = re.compile(r"[,;:()—–]|\b(?:and|but|or|which|who|that|while|when|where|because|after|before)\b", re.IGNORECASE)
_WITHIN_NAME = re.compile(r"\s*(?:of|the|and|de|for|&|van|von|la)?\s*")


@dataclass(frozen=True, slots=True)
class Fact:
    """An item of a sentence: the form that must match, the word itself, whether it is a number or a name, whether it goes on
    with the name before it, and the number of its clause.
    """

    form: str
    word: str
    is_number: bool
    is_name: bool
    joined: bool = False
    clause: int = 0

    @property
    def strict(self) -> bool:
        """Whether no other word may stand for it."""
        return self.is_number or self.is_name


@dataclass(frozen=True, slots=True)
class Facts:
    """A sentence as it is compared.

    `facts`: in order; `forms`: theirs; `names`: those in capitals, other than a word that only opens the sentence;
    `openers`: those that do; `common`: forms in small letters; `initials`: of its names of several words, with the forms of
    these; `negated`: the forms that stand under a "not"; `negative`: whether there is one; `softly`: whether other words deny
    something ("lacks", "refused").
    """

    text: str
    facts: tuple[Fact, ...]
    forms: frozenset[str]
    names: frozenset[str]
    openers: frozenset[str]
    common: frozenset[str]
    initials: tuple[tuple[str, frozenset[str]], ...]
    negated: frozenset[str]
    negative: bool
    softly: bool


@kept_by_characters(1_000_000)
def facts_of(text: str) -> Facts:
    """The facts of a sentence; its function words where it has nothing else.

    Example:
        >>> found = facts_of("It was not closed by Ada Lovelace until twenty-five years later.")
        >>> [fact.form for fact in found.facts if fact.strict], sorted(found.negated)
        (['ada', 'lovelac', '25'], ['ada', 'close', 'lovelac'])
    """
    plain = normalize(text)
    shouting = plain.isupper()
    found: list[Fact] = []
    openers: set[str] = set()
    capitals: list[list[tuple[str, str]]] = []
    position = last = clause = 0
    tokens = content_tokens(plain)
    places: list[int] = []
    for n, token in enumerate(tokens):
        start = plain.find(token.raw, position)
        if start < 0:
            start = position
        clause += _CLAUSE.search(plain, position, start) is not None
        number = not token.item.isalpha() and any(character.isdigit() for character in token.item)
        capital = not number and not shouting and token.raw[0].isupper()
        name = capital
        if capital and ((before := plain[position:start].strip() or plain[:start].rstrip())[-1:] in _OPENING or not before):
            # A capital that opens a sentence says nothing, unless the next word has one too ("Ada Lovelace wrote").
            after = plain[start + len(token.raw) :].lstrip(" ")
            follows = after[:1].isupper() and n + 1 < len(tokens) and after.startswith(tokens[n + 1].raw)
            name = len(token.raw) > 1 and (follows or token.raw.isupper() or not token.raw[1:].islower())
            if not name:
                openers.add(token.item)
        joined = False
        if name:
            joined = bool(capitals) and _WITHIN_NAME.fullmatch(plain, last, start) is not None
            if not joined:
                capitals.append([])
            capitals[-1].append((token.raw[0].lower(), token.item))
            last = start + len(token.raw)
        found.append(Fact(token.item, token.raw, number, name, joined, clause))
        places.append(start)
        position = start + len(token.raw)
    if not found:
        found = [Fact(word, word, False, False) for word in words(plain)]
    negations = [match.end() for match in _NEGATION.finditer(plain)]
    negated: set[str] = set()
    for end in negations:
        negated.update([f.form for f, start in zip(found, places, strict=False) if start >= end][:_SCOPE])
    names = [run for run in capitals if len(run) > 1]
    return Facts(
        text=text,
        facts=tuple(found),
        forms=frozenset(fact.form for fact in found),
        names=frozenset(fact.form for fact in found if fact.is_name),
        openers=frozenset(openers),
        common=frozenset(fact.form for fact in found if not fact.strict) - openers,
        initials=tuple(("".join(first for first, _ in run), frozenset(form for _, form in run)) for run in names),
        negated=frozenset(negated),
        negative=bool(negations),
        softly=_SOFT_NEGATION.search(plain) is not None,
    )


def same_name(form: str, held: Set[str]) -> bool:
    """Whether a name stands among the forms of a text, also as the name of its people or language.

    Example:
        >>> same_name("norwegian", {"norway"}), same_name("american", {"america"}), same_name("austria", {"australia"})
        (False, True, False)
    """
    return not names_like(form).isdisjoint(held)


@lru_cache(maxsize=8_192)
def names_like(form: str) -> frozenset[str]:
    """A name, and what differs from it in a suffix alone."""
    if len(form) < _LEAST_LETTERS:
        return frozenset((form,))
    shorter = {form.removesuffix(suffix) for suffix in _SUFFIXES if form.endswith(suffix)}
    return frozenset({form + suffix for suffix in ("", *_SUFFIXES)} | {n for n in shorter if len(n) >= _LEAST_LETTERS})


_LEAST_LETTERS = 4
