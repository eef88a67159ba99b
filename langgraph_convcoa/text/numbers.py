"""Numbers, dates, units and acronyms of an English text in one form, so that two texts can be compared by them."""

from __future__ import annotations

import re
import unicodedata

from langgraph_convcoa.text.questions import SMALL_NUMBERS, TENS

_SMALL = {word: n for n, word in enumerate(SMALL_NUMBERS.split("|"), 2)} | {"one": 1}
_TENS = {word: n for n, word in zip(range(20, 100, 10), TENS.split("|"), strict=True)}
_MAGNITUDES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12, "bn": 10**9}
_ORDINALS = "second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth|thirteenth|fourteenth|fifteenth|"
_ORDINALS += "sixteenth|seventeenth|eighteenth|nineteenth|twentieth"
_ORDINAL = {word: n for n, word in enumerate(_ORDINALS.split("|"), 2)}
_MONTHS = {
    short: full
    for full in "January February March April June July August September October November December".split()  # noqa: SIM905
    for short in {full[:3], full[:4] if full == "September" else full[:3]}
}
_UNITS = {
    "km": "kilometer", "cm": "centimeter", "mm": "millimeter", "kg": "kilogram", "mg": "milligram", "mi": "mile", "ft": "foot",
    "lb": "pound", "lbs": "pound", "oz": "ounce", "hr": "hour", "hrs": "hour", "min": "minute", "mins": "minute",
    "sec": "second", "secs": "second", "mph": "mile per hour", "kmh": "kilometer per hour", "gb": "gigabyte", "mb": "megabyte",
    "tb": "terabyte", "yrs": "year", "feet": "foot",
}  # fmt: skip

_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_SLASHES = re.compile(r"(?<=\d)[/:](?=\d)")
_ONES = "|".join(_SMALL)
_HUNDREDS = re.compile(rf"\b({_ONES}|a)\s+hundred(?:\s+and)?(?:\s+({TENS}))?(?:[\s-]+({_ONES}))?\b", re.I)
_TWENTIES = re.compile(rf"\b({TENS})[\s-]({_ONES})\b", re.I)
_WORDS = re.compile(rf"(?<!\bthose )(?<!\bthese )\b({TENS}|{SMALL_NUMBERS})\b", re.I)
_LARGE = re.compile(rf"\b(\d+(?:\.\d+)?|{_ONES}|{TENS}|a)[\s-]?({'|'.join(_MAGNITUDES)})s?\b", re.I)
_NTH = re.compile(r"\b(?:0++(?=\d))?+(\d++)(?:st|nd|rd|th)\b", re.I)
_NTH_WORD = re.compile(rf"\b(?:({TENS})[\s-])?(first|{_ORDINALS})\b", re.I)
_DECADE = re.compile(r"(?<![\w])['’](\d0s)\b")
_POSSESSIVE_DECADE = re.compile(r"\b(\d{3}0)['’]s\b")
_MONTH = re.compile(rf"\b({'|'.join(sorted(_MONTHS))})\b\.?(?=\s+\d)|(?<=\d\s)({'|'.join(sorted(_MONTHS))})\b\.?", re.I)
_UNIT = re.compile(rf"(?<=\d)[\s-]?({'|'.join(sorted(_UNITS, key=len, reverse=True))})\b\.?", re.I)
_HALF_DAY = re.compile(r"(?<=\d)\s*([ap])\.?\s?m\b\.?", re.I)
_ZEROS = re.compile(r"(?<![\d.])0+(?=\d)|(?<=\d)\.0+\b")
_ACRONYM = re.compile(r"\b(?:[A-Z]\.){2,}")
_METRE = re.compile(r"(met|lit)re(s?)\b")
_PERCENT = re.compile(r"(?<!\s)\s*+(?:%|\bper\s?cent\b)", re.I)
_CURRENCY = re.compile(r"([$£€])\s*(?=\d)")
_DIGIT = re.compile(r"\d")
_LETTERS = re.compile(r"[a-z]+")
_WORDS_OF_NUMBERS = frozenset([*_SMALL, *_TENS, *_MAGNITUDES, *(f"{word}s" for word in _MAGNITUDES), "hundred", *_ORDINAL]) - {
    "one"
}
_CURRENCIES = {"$": "dollar ", "£": "pound ", "€": "euro "}


def normalize(text: str) -> str:
    """A text whose numbers, months, units and acronyms have one form each; meant for comparison, not for display.

    Number words become digits, also those of more than one word ("twenty-five", "1.5 million"), but not "one", a pronoun more
    often; ordinals, months and units that stand beside a number are spelt out one way.

    Example:
        >>> normalize("On Sept. 3rd the U.S. paid $1.5 million for 1,200 km, twenty-five percent in the '90s.")
        'On September 3th the US paid dollar 1500000 for 1200 kilometer, 25 percent in the 1990s.'
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).replace("’", "'")
    # Most sentences hold little of this; each rule costs time only where it may apply.
    if "." in text:
        text = _ACRONYM.sub(lambda m: m[0].replace(".", ""), text)
    digits = _DIGIT.search(text) is not None
    if digits:
        text = _CURRENCY.sub(lambda m: _CURRENCIES[m[1]], _SLASHES.sub(" ", _THOUSANDS.sub("", text)))
    if not _WORDS_OF_NUMBERS.isdisjoint(_LETTERS.findall(text.lower())):
        text = _HUNDREDS.sub(_hundreds, text)
        text = _NTH_WORD.sub(_nth, text)
        text = _TWENTIES.sub(lambda m: str(_TENS[m[1].lower()] + _SMALL[m[2].lower()]), text)
        text = _LARGE.sub(_large, text)
        text = _WORDS.sub(lambda m: str(_value(m[1])), text)
    if digits:
        text = _NTH.sub(r"\1th", text)
        text = _POSSESSIVE_DECADE.sub(r"\1s", _DECADE.sub(r"19\1", text))
        text = _MONTH.sub(lambda m: _MONTHS[(m[1] or m[2]).capitalize()], text)
        text = _HALF_DAY.sub(lambda m: f" {m[1].lower()}m", text)
        text = _UNIT.sub(lambda m: f" {_UNITS[m[1].lower()]}", text)
        text = _ZEROS.sub("", text)
    if "%" in text or "cent" in text:
        text = _PERCENT.sub(" percent", text)
    return _METRE.sub(r"\1er\2", text) if "tre" in text else text


def _value(word: str) -> float | int:
    word = word.lower()
    if word == "a":
        return 1
    return _SMALL[word] if word in _SMALL else _TENS[word] if word in _TENS else float(word)


def _hundreds(match: re.Match[str]) -> str:
    return str(int(_value(match[1]) * 100 + sum(_value(word) for word in match.groups()[1:] if word)))


def _large(match: re.Match[str]) -> str:
    return str(round(_value(match[1]) * _MAGNITUDES[match[2].lower()]))


def _nth(match: re.Match[str]) -> str:
    ten, word = match[1], match[2].lower()
    if ten is None:
        return match[0] if word in ("first", "second") else f"{_ORDINAL[word]}th"
    return f"{_TENS[ten.lower()] + _ORDINAL.get(word, 1)}th"
