"""Sentences, words and content words of a text, for retrieval, verification and the extractive reasoner."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

import Stemmer
from sentencex import get_sentence_boundaries

CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Chinese and Japanese characters, for a character class of a pattern."""
# Scripts without spaces between words, with vowel signs that `\w` does not match: Thai, Lao, Myanmar, Khmer.
_UNSPACED = "\u0e01-\u0e4e\u0e81-\u0ece\u1000-\u103f\u1780-\u17d3"
_UNSPACED_SIGN = "\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece\u102b-\u103e\u17b4-\u17d3"
# Signs inside a word: combining accents, Hebrew points, Arabic signs, the vowel signs of the scripts of India.
_SIGN = (
    "\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8"
    "\u06ea-\u06ed\u0900-\u0903\u093a-\u0963\u0980-\u09e3\u0a00-\u0a65\u0a70-\u0ae3\u0b00-\u0b65\u0b80-\u0be5\u0c00-\u0c65\u0c80-\u0ce5"
    "\u0d00-\u0d65\u0d80-\u0de5\u0df2\u0df3"
)
_PLAIN = rf"[^\W_{CJK}{_UNSPACED}]"
_LETTERS = rf"{_PLAIN}+(?:[{_SIGN}]+{_PLAIN}*)*"
# A CJK character is a word, and so is a Thai letter with its signs. In other scripts a word may hold inner
# apostrophes, and a number may hold separators.
_WORD = re.compile(
    rf"[{CJK}]|\d+(?:[.,:/]\d+)*(?:[^\W\d_{CJK}{_UNSPACED}]+)?|{_LETTERS}(?:['’]{_LETTERS})*|[{_UNSPACED}][{_UNSPACED_SIGN}]*"
)
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+(?![\d,])")

STOP_WORDS = frozenset(files(__package__).joinpath("stop_words.txt").read_text(encoding="utf-8").split())
STOPS = ".!?。！？؟"  # Signs that end a sentence.
CLOSING = "\"'”’»)\\]"  # Signs that may follow a sign of `STOPS`, for a character class of a pattern.
ENDED = re.compile(rf"[{STOPS}:;…][{CLOSING}*_]*+\s*+\Z")
"""Matches the end of a text whose last sentence is complete or ends in a colon, a semicolon or …"""
LIST_MARK = r"(?:[-*•–]|\(?\d{1,3}[.)])"  # The pattern of the mark at the start of a list item.
_FEW_WORDS = 12  # A text of fewer words, its context included, counts as English.
_WINDOW = 4_000  # Number of characters that are split at once; also the maximum length of a sentence.


_COUNTS = re.compile(
    r"(?<!\d )(?<!\w)(?:[Vv]ols?|[Cc]h(?:s|aps?)?|[Ss]ecs?|[Ff]igs?|[Ee]qs?|[Bb]ks?|[Pp]ts?|[Aa]rts?|[Pp]aras?|[Oo]pp?)\.\Z"
)
_BEGINS = frozenset("0123456789IVXLC")
_COUNTED = re.compile(
    r"(?<![^\S\n])[^\S\n]++(?:\d|(?=[IVXLC])(?:X[LC]|L?X{0,3})(?:I[XV]|V?I{0,3})(?!\w)(?!(?<= I) (?!&|and |to |or |through )))"
)


class Sentence(NamedTuple):
    """A sentence and its place: `text == source[start:end]`."""

    text: str
    start: int
    end: int


def sentences(text: str) -> list[Sentence]:
    """Split text into sentences, without the white space around them. "Vols. I & II" is not split."""
    found: list[Sentence] = []
    position = 0
    for piece in _cut(text):
        stripped = piece.strip()
        # `find`, because the offsets of sentencex are wrong after a character outside the basic multilingual plane.
        start = text.find(stripped, position)
        if not stripped or start < 0:
            continue
        before, position = position, start + len(stripped)
        if found and stripped[0] in _BEGINS and _is_counted(text, before):
            start = found.pop().start
        found.append(Sentence(text[start:position], start, position))
    return found


def _is_counted(text: str, end: int) -> bool:
    """Whether an abbreviation and its number meet at `end`: "Vols. I & II", but not "in 3 vols. 2 are lost"."""
    return _COUNTED.match(text, end) is not None and _COUNTS.search(text[max(0, end - 10) : end]) is not None


def _cut(text: str) -> Iterator[str]:
    """Split a text into sentences with the white space around them, window by window: this limits the time for a long text."""
    start = 0
    while len(text) - start > _WINDOW:
        window = text[start : start + _WINDOW]
        pieces = [str(boundary["text"]) for boundary in get_sentence_boundaries("en", window)]
        # The last sentence may go on after the window.
        end = window.rfind(pieces[-1]) if len(pieces) > 1 else 0
        if end > 0:
            yield from pieces[:-1]
        else:
            end = max(window.rfind(" "), window.rfind("\n")) + 1 or _WINDOW
            yield window[:end]
        start += end
    yield from (str(boundary["text"]) for boundary in get_sentence_boundaries("en", text[start:]))


class Word(NamedTuple):
    """A content word: the written form, and the form that is compared."""

    raw: str
    item: str


def words(text: str) -> list[str]:
    """Lower-cased words of a text in order, without punctuation and the commas of thousands."""
    return [word.lower() for word in _raw_words(text)]


def is_english(text: str, context: str) -> bool:
    """Whether enough words of a text, or of the text and its context together, are English function words.

    At least 70% of the letters must be ASCII. Text and context are also English if both together have few words, or if a fifth
    of the text's words are function words (the context may be a table). Words of one letter do not count.
    """
    both = f"{text} {context}"
    letters = sum(map(str.isalpha, both))
    if sum(character.isascii() and character.isalpha() for character in both) < 0.7 * letters:
        return False
    own, found = words(text), words(both)
    shares = [sum(len(word) > 1 and word in STOP_WORDS for word in one) / max(1, len(one)) for one in (own, found)]
    return shares[0] >= 0.2 or len(found) < _FEW_WORDS or shares[1] > 0.08


def content_words(text: str) -> list[str]:
    """Stemmed words of a text without function words; numbers and names always count.

    A stop word in capitals counts ("the WHO", "IT"), unless the whole text is in capitals.
    """
    return [*filter(None, map(_shouted_form if text.isupper() else _content_form, _WORD.findall(_alike(text))))]


def content_tokens(text: str) -> list[Word]:
    """The words that `content_words` returns, each with its written form."""
    shouting = text.isupper()
    known = _shouted_form if shouting else _content_form
    return [
        Word(raw[:-2] if raw.lower().endswith("'s") else raw, item)
        for raw in _raw_words(text)
        if (item := known(raw) if len(raw) <= _KEPT_LETTERS else _form(raw, shouting))
    ]


_KEPT_LETTERS = 40  # Words with more letters seldom occur again: they are not cached.


@lru_cache(maxsize=200_000)
def _content_form(raw: str) -> str:
    return _form(raw, shouting=False)


@lru_cache(maxsize=20_000)
def _shouted_form(raw: str) -> str:
    return _form(raw, shouting=True)


def _form(raw: str, shouting: bool) -> str:
    """The stem of a word; "" for a function word. `shouting`: the whole text is in capitals."""
    raw = _without_commas(raw)
    word = raw.lower()
    if word.endswith("'s"):
        raw, word = raw[:-2], word[:-2]
    function_word = word in STOP_WORDS and not (len(raw) > 1 and raw.isupper() and not shouting)
    return "" if function_word or ("'" in word and word.split("'")[0] in _CONTRACTED) else stem(word)


def word_matches(text: str) -> Iterator[re.Match[str]]:
    """Match the words of a text. The places are those in `match.string`: the text with equivalent characters in one form,
    such as full-width digits and composed accents.
    """
    return _WORD.finditer(_alike(text))


def _alike(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFKC", text).replace("’", "'")


def _raw_words(text: str) -> Iterator[str]:
    return map(_without_commas, _WORD.findall(_alike(text)))


def _without_commas(word: str) -> str:
    return word.replace(",", "") if "," in word and _THOUSANDS.match(word) else word


_CONTRACTED = STOP_WORDS | frozenset(
    "don doesn didn isn aren wasn weren won wouldn couldn shouldn hasn haven hadn can".split()  # noqa: SIM905
)


@lru_cache(maxsize=200_000)
def stem(word: str) -> str:
    """Snowball stem of an English word; words with digits and words of other scripts are returned unchanged."""
    if not word.isascii() or not word.isalpha():
        return word
    # A stemmer stores its current word, so threads must not share it: a new stemmer for each new word.
    return str(Stemmer.Stemmer("english", 0).stemWord(word))


_CITATION = re.compile(r"\[\d+(?:\s*[,;-]\s*\d+)*\]")
_LIST_MARK = re.compile(rf"^\s*(?:{LIST_MARK}|[-*•#>]+)(?:\s+|$)")
_SMALL = (
    "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
# "one" is left out: it is a pronoun more often than a number.
NUMBER_WORDS = {word: str(n) for n, word in enumerate(_SMALL.split(), 2)}
NUMBER_WORDS |= {word: str(10 * n) for n, word in enumerate(_TENS.split(), 2)}  # Number words with their digits.
_NUMBERS = {stem(word): digits for word, digits in NUMBER_WORDS.items()}


def number_form(form: str) -> str:
    """The digits for the stem of a number word; other forms are returned unchanged."""
    return _NUMBERS.get(form, form)


NAME_WEIGHT = 2.0
"""Weight of a number or a name. Any other content word has 1: wrong answers mostly have wrong numbers and names."""


class Item(NamedTuple):
    """A compared word: its form, its number of letters, and whether it is a number or a name."""

    form: str
    letters: int
    is_number: bool
    is_name: bool

    @property
    def weight(self) -> float:
        """The weight in the share of supported words: `NAME_WEIGHT` for a number or a name, otherwise 1."""
        return NAME_WEIGHT if self.is_number or self.is_name else 1.0


def content_items(text: str) -> tuple[Item, ...]:
    """The items of a text in order, without citation and list marks. If a text has only function words, they are its items.

    Example:
        >>> [(i.form, i.is_number or i.is_name) for i in content_items("Stored by John Hopfield in three steps [2].")]
        [('store', False), ('john', True), ('hopfield', True), ('3', True), ('step', False)]
    """
    text = _CITATION.sub(" ", _LIST_MARK.sub("", text))
    tokens = content_tokens(text)
    if not tokens:
        return tuple(Item(word, len(word), False, False) for word in words(text))
    if tokens[0].item == "yes" and len(tokens) > 1:
        tokens = tokens[1:]
    shouting = text.isupper()
    opens = text.lstrip(" \"'“‘(*_").startswith(tokens[0].raw)
    items = []
    for n, token in enumerate(tokens):
        form = number_form(token.item)
        is_number = not form.isalpha() and any(c.isdigit() for c in form)
        is_name = not is_number and not shouting and token.raw[0].isupper()
        if n == 0 and opens and is_name:
            # A capital at the start of a sentence says nothing, unless the next word has a capital too ("Ada Lovelace wrote").
            following = tokens[1].raw if len(tokens) > 1 else ""
            joined = following[:1].isupper() and re.search(rf"{re.escape(token.raw)}\s+{re.escape(following)}", text)
            is_name = len(token.raw) > 1 and (token.raw.isupper() or bool(joined))
        items.append(Item(form, len(token.raw), is_number, is_name))
    return tuple(items)
