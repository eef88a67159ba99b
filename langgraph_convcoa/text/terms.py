"""Terms of a question that its evidence must hold: names, numbers, quoted words and words that are rare in English."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.resources import files
from itertools import pairwise
from typing import Literal

from langgraph_convcoa.text.kept import kept_by_characters
from langgraph_convcoa.text.questions import WH, bare
from langgraph_convcoa.text.words import STOP_WORDS, content_tokens, number_form, stem

TermKind = Literal["name", "number", "quoted", "rare"]
MIN_RARE = 3
"""Letters of the shortest word that counts as rare."""
LONG_WORD = 7
"""Letters of the shortest stem that may be an ordinary word with a typing error in it."""
TYPING_ERROR = 5
"""Letters of the shortest word in which one may differ; from TYPING_ERRORS letters on two may."""
TYPING_ERRORS = 9
DERIVED = 4
"""Letters that two words of one root ("Canada", "Canadian") have in common at least."""
_PIECE = re.compile(r"[^\s/—–]+")
_QUOTED = re.compile(r"[\"“”„«»]([^\"“”„«»]{2,80})[\"“”„«»]|(?<!\w)['‘]([^'‘’]{2,80})['’](?!\w)")
_CONTRACTION = re.compile(r"(?:n['’]t|['’](?:s|d|re|ll|ve|m))(?=\W*$)", re.IGNORECASE)
_OPENS = re.compile(r"(?:^|[.?!:;…]|\s[-–—])[\s\"'“‘(*_]*$")
_ENDS_RUN = (",", ";", ":", "?", "!", ".", ")", "”", '"')
_QUESTION_WORD = re.compile(rf"^(?:{WH}|name|list|give|tell|describe|explain|compare|find|show)$", re.IGNORECASE)
_SUFFIXES = frozenset(
    """ s es ed d e ing ion ions ation al ic ical ics ist ists istic ism er ers r or ors ian ians ean eans n ns an ans ese ish
    i ia ies y ity ive ous ly ally ness ment a o is us um en ern ite ites t te ted ting tion like based""".split()  # noqa: SIM905
) | {""}
_PREFIXES = tuple("un re non mis over under inter anti pre post sub super multi dis out co self".split())  # noqa: SIM905
_COUNTRIES = """
    us usa u.s america american, uk britain british england, french franc, dutch netherland, swiss switzerland, greek greec,
    spanish spain, polish poland, danish denmark, welsh wale, irish ireland, scottish scotland, english england,
    turkish turkey, swedish sweden, finnish finland, norwegian norway"""
_SAME = {word: frozenset(group.split()) for group in _COUNTRIES.split(",") for word in group.split()}
"""Stems that name the same country."""


@dataclass(frozen=True)
class Term:
    """A word of a question that says what it is about.

    `text` as it stands; `form` its stem without accents; `run` the number of the name that it is a part of ("Ada Lovelace" is
    one), -1 outside a name; `common`: it is an ordinary English word too ("University", "Bill"); `last`: it ends its name.
    """

    text: str
    form: str
    kind: TermKind
    run: int = -1
    common: bool = False
    last: bool = True


def may_be_name(form: str) -> bool:
    """Whether a stem in lower case may be a name: it is no English word, none with a prefix, and none with a typing error.

    Example:
        >>> [may_be_name(form) for form in ("colbert", "unbound", "attibut", "sparsemax")]
        [True, False, False, True]
    """
    words = _dictionary()
    rests = [form[len(prefix) :] for prefix in ("", *_PREFIXES) if form.startswith(prefix)]
    # Of "reshaped" the stem is without the e that "shape" keeps.
    if any(rest in words or f"{rest}e" in words for rest in rests):
        return False
    return len(form) < LONG_WORD or not any(other in words for other in _one_error(form))


def _one_error(word: str) -> Iterator[str]:
    """A word with a letter too many, too few or two in the wrong order; another letter makes a name of too many words."""
    for n in range(1, len(word) + 1):
        before, after = word[:n], word[n:]
        yield before + after[1:]
        yield before[:-1] + after[:1] + before[-1:] + after[1:]
        yield from (before + letter + after for letter in "abcdefghijklmnopqrstuvwxyz")


@cache
def _dictionary() -> frozenset[str]:
    text = (files("langgraph_convcoa.text") / "english_words.txt").read_text(encoding="utf-8")
    return frozenset(word for line in text.splitlines() if not line.startswith("#") for word in line.split())


def plain(text: str) -> str:
    """Lower case without accents: "Beyoncé" is "beyonce"."""
    if text.isascii():
        return text.lower()
    return "".join(c for c in unicodedata.normalize("NFKD", text.lower()) if not unicodedata.combining(c))


@dataclass(frozen=True)
class _Piece:
    raw: str
    form: str
    opens: bool
    breaks: bool
    quoted: bool


def find_terms(question: str) -> tuple[Term, ...]:
    """The names, numbers, quoted words and rare words of a question, in order.

    A capital counts unless it opens a sentence or all words have one; without capitals, and there, it is the rare word that
    counts. In a question that is not English only numbers and quoted words do: which of its words are rare is not known.

    Example:
        >>> [(t.text, t.kind) for t in find_terms("When did Ada Lovelace meet Babbage in 1833?")]
        [('Ada', 'name'), ('Lovelace', 'name'), ('Babbage', 'name'), ('1833', 'number')]
        >>> [(t.text, t.kind) for t in find_terms("who introduced colbert, and what is sparsemax?")]
        [('colbert', 'rare'), ('sparsemax', 'rare')]
        >>> find_terms("How many layers does the network have?")
        ()
    """
    pieces = _pieces(question[:2_000])
    english = _is_english(pieces)
    inner = [piece for piece in pieces if not piece.opens and piece.raw.isalpha()]
    capitals = sum(piece.raw[0].isupper() for piece in inner)
    telling = english and (capitals < len(inner) or len(inner) < 2) and not question.isupper()
    telling = telling and not (len(inner) >= 4 and capitals > 0.75 * len(inner))
    found: list[Term] = []
    run, running = -1, False
    for n, piece in enumerate(pieces):
        common = piece.form in _dictionary()
        following = pieces[n + 1] if n + 1 < len(pieces) else None
        named = telling and piece.raw[0].isupper() and not _QUESTION_WORD.match(piece.raw) and piece.form not in STOP_WORDS
        if named and piece.opens:
            joined = following is not None and not piece.breaks and following.raw[0].isupper()
            named = not common or joined
        if piece.form[0].isdigit():
            found.append(Term(piece.raw, number_form(piece.form), "number"))
            running = running and not piece.breaks
        elif named:
            if not running:
                run += 1
            elif found and found[-1].run == run:
                found[-1] = replace(found[-1], last=False)
            found.append(Term(piece.raw, piece.form, "name", run, common))
            running = not piece.breaks
        elif piece.quoted and piece.form not in STOP_WORDS:
            found.append(Term(piece.raw, piece.form, "quoted", common=common))
            running = False
        elif english and _may_be_rare(piece):
            found.append(Term(piece.raw, piece.form, "rare"))
            running = False
        else:
            running = False
    return tuple(found)


def _may_be_rare(piece: _Piece) -> bool:
    return (
        len(piece.raw) >= MIN_RARE
        and piece.form not in STOP_WORDS
        and piece.form.isalpha()
        and may_be_name(piece.form)
        and not _QUESTION_WORD.match(piece.raw)
    )


def _pieces(question: str) -> list[_Piece]:
    spans = [match.span() for match in _QUOTED.finditer(question)]
    found: list[_Piece] = []
    for match in _PIECE.finditer(question):
        opens = _OPENS.search(question[max(0, match.start() - 6) : match.start()]) is not None
        quoted = any(first <= match.start() and match.end() <= last + 2 for first, last in spans)
        # A contraction ("what's", "wasn't") is no name.
        tokens = content_tokens(_CONTRACTION.sub("", match.group()))
        breaks = match.group().endswith(_ENDS_RUN) and not re.fullmatch(r"(?:\w\.)+|(?:Dr|St|Mr|Mrs|Jr|Sr)\.", match.group())
        if not tokens:
            if word := bare(_CONTRACTION.sub("", match.group())):
                found.append(_Piece(word, word.lower(), opens, breaks, quoted))
            continue
        for n, token in enumerate(tokens):
            final = n == len(tokens) - 1
            found.append(_Piece(token.raw, plain(token.item), opens and n == 0, breaks and final, quoted))
    return found


def _is_english(pieces: list[_Piece]) -> bool:
    """Whether the words that are no names are mostly English; a question of one or two words may be anything."""
    words = [piece for piece in pieces if piece.raw.isalpha() and (piece.opens or not piece.raw[0].isupper())]
    known = sum(piece.form in STOP_WORDS or piece.form in _dictionary() for piece in words)
    return len(words) - known < 2 or known >= len(words) / 2


class Held:
    """What some texts hold, to be asked for terms: the same stem, or a simple variant of it.

    Variants are accents, a derived form ("Canada", "Canadian"), one typing error in a word of five letters (two from nine
    on), initials ("J. Hopfield", "UN") and a compound written apart.

    Example:
        >>> held = Held(["The United Nations met in Norway in the 1990s with Beyoncé."])
        >>> [held.holds(term) for term in find_terms("Did the UN or the Norwegian Beyonce meet Hopfax in 1990?")]
        [True, True, True, False, True]
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self.forms: set[str] = set()
        self._raws: set[str] = set()
        self._initials: set[str] = set()
        self._joined: set[str] = set()
        for text in texts:
            forms, raws, initials, joined = _contents(text)
            self.forms |= forms
            self._raws |= raws
            self._initials |= initials
            self._joined |= joined
        self._cache: dict[str, bool] = {}

    def holds(self, term: Term) -> bool:
        """Whether the texts hold a term or a variant of it."""
        key = f"{term.kind == 'number'} {term.text}"
        if key not in self._cache:
            self._cache[key] = self._number(term) if term.kind == "number" else self._word(term)
        return self._cache[key]

    def holds_initial(self, term: Term, last: Term) -> bool:
        """Whether the texts hold a name with the initial of a word of it ("J. Hopfield" of "John Hopfield")."""
        return f"{plain(term.text)[:1]} {plain(last.text)}" in self._initials

    def _number(self, term: Term) -> bool:
        if term.form in self.forms:
            return True
        digits = re.match(r"\d+", term.form)
        # "1990s" holds 1990, "1990-91" is two words; "5.0" is not 50.
        return (
            digits is not None and digits.group() == term.form and any(f"{term.form}{end}" in self.forms for end in _ENDINGS)
        )

    def _word(self, term: Term) -> bool:
        form, raw = term.form, plain(term.text)
        if form in self.forms or raw in self._raws or raw in self._joined:
            return True
        if not self.forms.isdisjoint(_SAME.get(form, ())) or not self._raws.isdisjoint(_SAME.get(raw, ())):
            return True
        if raw in self._initials and term.text.isupper():
            return True
        if len(raw) < DERIVED:
            return False
        return any(_same_root(raw, other) or _nearly(raw, other) for other in self._raws if abs(len(raw) - len(other)) <= 6)


_ENDINGS = ("s", "th", "st", "nd", "rd")


@kept_by_characters(500_000)
def _contents(text: str) -> tuple[frozenset[str], frozenset[str], frozenset[str], frozenset[str]]:
    tokens = content_tokens(text[:100_000])
    raws = [plain(token.raw) for token in tokens]
    forms = {number_form(plain(token.item)) for token in tokens} | {stem(raw) for raw in raws}
    joined = {a + b for a, b in pairwise(raws)}
    initials: set[str] = set()
    single: list[str] = []
    for raw in raws:
        if len(raw) > 1:
            initials |= {f"{letter} {raw}" for letter in single}
        single = [*single[-3:], raw] if len(raw) == 1 else []
    capitals = ""
    for token in tokens:
        capitals = (capitals + token.raw[0].lower())[-6:] if token.raw[0].isupper() else ""
        initials |= {capitals[-n:] for n in range(2, min(len(capitals), 6) + 1)}
    return frozenset(forms), frozenset(raws), frozenset(initials), frozenset(joined)


@lru_cache(maxsize=200_000)
def _same_root(one: str, other: str) -> bool:
    """Whether two words differ in suffixes only."""
    shared = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        shared += 1
    return shared >= DERIVED and any(
        one[end:] in _SUFFIXES and other[end:] in _SUFFIXES for end in range(shared, max(DERIVED, shared - 2) - 1, -1)
    )


@lru_cache(maxsize=200_000)
def _nearly(one: str, other: str) -> bool:
    """Whether one typing error (two in a long word) makes one word of the other; the first letter stands."""
    limit = 0 if min(len(one), len(other)) < TYPING_ERROR else 1 if len(one) < TYPING_ERRORS else 2
    if not limit or one[0] != other[0] or abs(len(one) - len(other)) > limit:
        return False
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        older, before, row = before, row, [i]
        for j, b in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if older and j > 1 and a == other[j - 2] and one[i - 2] == b:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
        if min(row) > limit:
            return False
    return row[-1] <= limit
