"""Terms of a question that its evidence must hold: names, numbers, quoted words and words that are rare in English."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache, lru_cache
from importlib.resources import files
from itertools import pairwise, zip_longest
from threading import Lock
from typing import Any, Literal, NamedTuple

from cachetools import LRUCache, cached

from langgraph_convcoa.text.questions import WH, bare
from langgraph_convcoa.text.words import STOP_WORDS, content_tokens, number_form, stem

TermKind = Literal["name", "number", "quoted", "rare"]
MIN_RARE = 3  # Minimum number of letters of a word that counts as rare.
DERIVED = 4  # Minimum number of first letters that two words of one root ("Canada", "Canadian") share.
ALIKE = 0.83  # Minimum `SequenceMatcher.ratio` of two words that differ by a typing error.
_TYPED = 5  # Minimum number of letters of a word that may have a typing error.
_PIECE = re.compile(r"[^\s/—–]+")
_QUOTED = re.compile(r"[\"“”„«»]([^\"“”„«»]{2,80})[\"“”„«»]|(?<!\w)['‘]([^'‘’]{2,80})['’](?!\w)")
_CONTRACTION = re.compile(r"(?:n['’]t|['’](?:s|d|re|ll|ve|m))(?=\W*$)", re.IGNORECASE)
_OPENS = re.compile(r"(?:^|[.?!:;…]|\s[-–—])[\s\"'“‘(*_]*$")
_ENDS_RUN = (",", ";", ":", "?", "!", ".", ")", "”", '"')
_ABBREVIATION = re.compile(r"(?:\w\.)+|(?:Dr|St|Mr|Mrs|Jr|Sr)\.")
_QUESTION_WORD = re.compile(rf"^(?:{WH}|name|list|give|tell|describe|explain|compare|find|show)$", re.IGNORECASE)
_SUFFIXES = frozenset(
    """ s es ed d e ing ion ions ation al ic ical ics ist ists istic ism er ers r or ors ian ians ean eans n ns an ans ese ish
    i ia ies y ity ive ous ly ally ness ment a o is us um en ern ite ites t te ted ting tion like based""".split()  # noqa: SIM905
) | {""}
_PREFIXES = tuple("un re non mis over under inter anti pre post sub super multi dis out co self".split())  # noqa: SIM905


@dataclass(frozen=True)
class Term:
    """A word that says what a question is about.

    `text` is the written word, `form` its stem without accents. Words of one name, such as "Ada Lovelace", have the same
    `run`; other words have -1. `common` is True if the word is also an ordinary English word ("University", "Bill").
    """

    text: str
    form: str
    kind: TermKind
    run: int = -1
    common: bool = False


def may_be_name(form: str) -> bool:
    """True if a stem in lower case is not an English word, and no English word remains without its prefix."""
    rests = [form[len(prefix) :] for prefix in ("", *_PREFIXES) if form.startswith(prefix)]
    # The stem "reshap" of "reshaped" lacks the e of "shape".
    return not any(rest in _dictionary() or f"{rest}e" in _dictionary() for rest in rests)


@cache
def _dictionary() -> frozenset[str]:
    text = (files("langgraph_convcoa.text") / "english_words.txt").read_text(encoding="utf-8")
    return frozenset(word for line in text.splitlines() if not line.startswith("#") for word in line.split())


def plain(text: str) -> str:
    """Lower case without accents: "Beyoncé" is "beyonce"."""
    if text.isascii():
        return text.lower()
    return "".join(c for c in unicodedata.normalize("NFKD", text.lower()) if not unicodedata.combining(c))


class _Piece(NamedTuple):
    """A word of a question: whether it `opens` a sentence, `breaks` off a name (a comma or stop follows), or is `quoted`."""

    raw: str
    form: str
    opens: bool
    breaks: bool
    quoted: bool


def find_terms(question: str) -> tuple[Term, ...]:
    """The names, numbers, quoted words and rare words of a question, in order.

    A word with a capital is a name, unless it opens a sentence or most words have capitals. Other words count if they are rare
    in English. In a question in another language, only numbers and quoted words count.
    """
    pieces = _pieces(question[:2_000])
    english = _is_english(pieces)
    inner = [piece.raw[0].isupper() for piece in pieces if not piece.opens and piece.raw.isalpha()]
    telling = english and not question.isupper() and (len(inner) < 2 or sum(inner) <= 0.75 * len(inner))
    found: list[Term] = []
    run, running = -1, False
    for piece, following in zip_longest(pieces, pieces[1:]):
        kind = _kind(piece, following, telling, english)
        if kind == "name":
            run += not running
        if kind is not None:
            found.append(Term(piece.raw, piece.form, kind, run if kind == "name" else -1, piece.form in _dictionary()))
        running = not piece.breaks and (kind == "name" or (kind == "number" and running))
    return tuple(found)


def _kind(piece: _Piece, following: _Piece | None, telling: bool, english: bool) -> TermKind | None:
    """The kind of a term; None if the word is not a term. `telling`: capitals mark names in this question."""
    if piece.form[0].isdigit():
        return "number"
    asks = _QUESTION_WORD.match(piece.raw) is not None
    if telling and piece.raw[0].isupper() and not asks and piece.form not in STOP_WORDS:
        # A capitalised first word is a name if a capitalised word follows, or if it is not an English word.
        joined = following is not None and not piece.breaks and following.raw[0].isupper()
        if not piece.opens or joined or piece.form not in _dictionary():
            return "name"
    if piece.form in STOP_WORDS:
        return None
    if piece.quoted:
        return "quoted"
    rare = english and not asks and len(piece.raw) >= MIN_RARE and piece.form.isalpha() and may_be_name(piece.form)
    return "rare" if rare else None


def _pieces(question: str) -> list[_Piece]:
    spans = [match.span() for match in _QUOTED.finditer(question)]
    found: list[_Piece] = []
    for match in _PIECE.finditer(question):
        opens = _OPENS.search(question[max(0, match.start() - 6) : match.start()]) is not None
        quoted = any(first <= match.start() and match.end() <= last + 2 for first, last in spans)
        # A contraction ("what's", "wasn't") is not a name.
        tokens = content_tokens(_CONTRACTION.sub("", match.group()))
        breaks = match.group().endswith(_ENDS_RUN) and not _ABBREVIATION.fullmatch(match.group())
        if not tokens:
            if word := bare(_CONTRACTION.sub("", match.group())):
                found.append(_Piece(word, word.lower(), opens, breaks, quoted))
            continue
        for n, token in enumerate(tokens):
            final = n == len(tokens) - 1
            found.append(_Piece(token.raw, plain(token.item), opens and n == 0, breaks and final, quoted))
    return found


def _is_english(pieces: list[_Piece]) -> bool:
    """True if fewer than two words are not English, or at least half of the words are. Names do not count."""
    words = [piece for piece in pieces if piece.raw.isalpha() and (piece.opens or not piece.raw[0].isupper())]
    known = sum(piece.form in STOP_WORDS or piece.form in _dictionary() for piece in words)
    return len(words) - known < 2 or known >= len(words) / 2


class _Contents(NamedTuple):
    """What a text holds: stems, written forms, initials of runs of words ("j hopfield", "un"), and joined pairs of words."""

    forms: frozenset[str]
    raws: frozenset[str]
    initials: frozenset[str]
    joined: frozenset[str]


class Held:
    """Looks up terms in texts, by the stem or a simple variant of each term.

    Variants are accents, a derived form ("Canada", "Canadian"), a typing error in a word of five letters or more, initials
    ("J. Hopfield", "UN") and a compound in two words.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        parts = list(map(_contents, texts)) or [_Contents(*[frozenset[str]()] * 4)]
        self._held = _Contents(*(frozenset[str]().union(*part) for part in zip(*parts, strict=True)))
        self._cache: dict[tuple[bool, str], bool] = {}

    def holds(self, term: Term) -> bool:
        """Whether the texts hold a term or a variant of it."""
        key = (term.kind == "number", term.text)
        if key not in self._cache:
            self._cache[key] = self._number(term) if term.kind == "number" else self._word(term)
        return self._cache[key]

    def holds_initial(self, term: Term, last: Term) -> bool:
        """Whether the texts hold `last` after the initial of `term`: "J. Hopfield" for "John Hopfield"."""
        return f"{plain(term.text)[:1]} {plain(last.text)}" in self._held.initials

    def _number(self, term: Term) -> bool:
        # "1990s" holds 1990; "5.0" is not 50.
        endings = ("", "s", "th", "st", "nd", "rd") if term.form.isdigit() else ("",)
        return any(f"{term.form}{ending}" in self._held.forms for ending in endings)

    def _word(self, term: Term) -> bool:
        forms, raws, initials, joined = self._held
        raw = plain(term.text)
        if term.form in forms or raw in raws or raw in joined or (raw in initials and term.text.isupper()):
            return True
        return len(raw) >= DERIVED and any(_same_root(raw, other) or _nearly(raw, other) for other in raws)


def _size(made: _Contents) -> int:
    return 100 + sum(len(word) for part in made for word in part)


@cached(LRUCache[Any, _Contents](500_000, getsizeof=_size), lock=Lock())
def _contents(text: str) -> _Contents:
    tokens = content_tokens(text[:100_000])
    raws = [plain(token.raw) for token in tokens]
    forms = {number_form(plain(token.item)) for token in tokens} | {stem(raw) for raw in raws}
    initials: set[str] = set()
    letters, capitals = "", ""
    for token, raw in zip(tokens, raws, strict=True):
        initials |= {f"{letter} {raw}" for letter in letters if len(raw) > 1}
        letters = (letters + raw)[-4:] if len(raw) == 1 else ""
        capitals = (capitals + token.raw[0].lower())[-6:] if token.raw[0].isupper() else ""
        initials |= {capitals[-n:] for n in range(2, len(capitals) + 1)}
    return _Contents(frozenset(forms), frozenset(raws), frozenset(initials), frozenset(a + b for a, b in pairwise(raws)))


@lru_cache(maxsize=200_000)
def _same_root(one: str, other: str) -> bool:
    shared = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    ends = range(max(DERIVED, shared - 2), shared + 1)
    return any(one[end:] in _SUFFIXES and other[end:] in _SUFFIXES for end in ends)


@lru_cache(maxsize=200_000)
def _nearly(one: str, other: str) -> bool:
    """Whether two words differ by a typing error; their first letters must be equal."""
    if one[0] != other[0] or min(len(one), len(other)) < _TYPED or abs(len(one) - len(other)) > 2:
        return False
    return SequenceMatcher(None, one, other, autojunk=False).ratio() >= ALIKE
