"""JSON as models write it, read in one pass: what is malformed is taken for what was most likely meant.

The work is linear in the length of the text and the nesting is bounded, whatever the text is: a reply is written by whoever
wrote the documents that the model has read.
"""

from __future__ import annotations

import json
import re
from typing import Any

from langgraph_convcoa.text.clean import DEEPEST

_SPACE = re.compile(r"(?:\s++|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/|\Z))*+")
_CLOSED_BY = {'"': '"', "'": "'", "“": "”", "‘": "’", "`": "`"}
_RUN = {close: re.compile(rf"[^\\{close}]*+") for close in _CLOSED_BY.values()}
_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|.)?", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_BARE_KEY = re.compile(r"[^:,{}\[\]\n]*+")
_BARE = re.compile(r"[^,{}\[\]\n]*+")
_BLANK = re.compile(r"\s*+")
_QUOTED_KEY = re.compile(r"""["'“‘`]\s{0,9}[\w-][\w .-]{0,60}["'”’`]\s{0,9}:""")
_KEY = re.compile(rf"{_QUOTED_KEY.pattern}|[\w-]{{1,60}}\s{{0,9}}:|[\"'“‘`][\w .-]{{0,60}}\Z")
_MOST_STARTS = 5
_LITERALS = {"true": True, "false": False, "null": None, "none": None, "": None}
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?(?:[eE][+-]?\d{1,2})?")


def loads(text: str) -> Any:
    r"""The first object or list of a text; None where it holds none, or one nested deeper than `DEEPEST` levels.

    Quotes of any kind or none, commas too many or too few, comments, quotes in texts that are not escaped and closing brackets
    that lack are read; what is broken off ends where it does.

    Example:
        >>> loads("Sure: {'chain': [{sub: 'Who?', flag: True,}, ], 'final_answer': 'It's the \"Tay\", bu")
        {'chain': [{'sub': 'Who?', 'flag': True}], 'final_answer': 'It\'s the "Tay", bu'}
    """
    place, found = 0, None
    # "As [1] says {so}: {...}": what is empty or a list of numbers is no reply where another value follows.
    for _ in range(_MOST_STARTS):
        starts = [start for start in (text.find("{", place), text.find("[", place)) if start >= 0]
        if not starts:
            break
        value, place = _first(text, min(starts))
        found = value if found is None else found
        if (isinstance(value, dict) and value) or (isinstance(value, list) and any(isinstance(x, dict | list) for x in value)):
            return value
    return found


def _first(text: str, place: int) -> tuple[Any, int]:
    """The value that begins at a place, and where it ends."""
    try:
        return json.JSONDecoder(strict=False).raw_decode(text, place)
    except (ValueError, RecursionError):
        reader = _Reader(text, place)
    try:
        return reader.value(0, in_object=False), reader.place
    except _TooDeepError:
        return None, len(text)


class _TooDeepError(Exception):
    """The nesting is deeper than that of any reply."""


class _Reader:
    """A recursive descent over a text."""

    def __init__(self, text: str, place: int) -> None:
        self._text, self.place = text, place

    def value(self, depth: int, *, in_object: bool) -> Any:
        sign = self._skip()
        if sign in _CLOSED_BY:
            return self._string(in_object)
        if sign not in ("{", "["):
            return self._bare()
        if depth >= DEEPEST:
            raise _TooDeepError
        self.place += 1
        return self._object(depth) if sign == "{" else self._list(depth, in_object)

    def _skip(self) -> str:
        """Pass white space and comments; the next character, "" at the end."""
        found = _SPACE.match(self._text, self.place)
        self.place = found.end() if found else self.place
        return self._text[self.place : self.place + 1]

    def _object(self, depth: int) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        while sign := self._skip():
            if sign == "}" or (sign == "]" and depth):
                # A list's end, which comes before the object's own, is left to the list.
                self.place += sign == "}"
                break
            if sign in "{[":
                inner = self.value(depth + 1, in_object=True)
                fields = {**inner, **fields} if isinstance(inner, dict) else fields
                continue
            key = str(self._string(None) if sign in _CLOSED_BY else self._taken(_BARE_KEY).strip())
            if self._skip() == ":":
                self.place += 1
                fields[key] = self.value(depth + 1, in_object=True)
            elif not key:
                self.place += 1
        return fields

    def _list(self, depth: int, in_object: bool) -> list[Any]:
        values: list[Any] = []
        while sign := self._skip():
            start = self.place
            if sign == "]":
                self.place += 1
                break
            if sign in ",:}":
                self.place += 1
                continue
            value = self.value(depth + 1, in_object=False)
            if in_object and isinstance(value, str) and self._skip() == ":":
                # The list was not closed: this is the next key of the object around it.
                self.place = start
                break
            if self.place == start:
                self.place += 1
            elif value is not None:
                values.append(value)
        return values

    def _taken(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self.place)
        self.place = found.end() if found else self.place
        return found.group() if found else ""

    def _bare(self) -> Any:
        """A number, a literal or a text without quotes."""
        text = self._taken(_BARE).strip()
        if _NUMBER.fullmatch(text):
            return int(text) if text.lstrip("-").isdecimal() else float(text)
        return _LITERALS.get(text.lower(), text)

    def _string(self, in_object: bool | None) -> str:
        """A text in quotes: a value of an object or of a list, or a key (None)."""
        close = _CLOSED_BY[self._text[self.place]]
        self.place += 1
        parts: list[str] = []
        while True:
            parts.append(self._taken(_RUN[close]))
            sign = self._text[self.place : self.place + 1]
            if sign == "\\":
                parts.append(_unescaped(self._taken(_ESCAPE)))
                continue
            self.place += 1
            if not sign or self._closes(in_object):
                return "".join(parts)
            parts.append(sign)

    def _closes(self, in_object: bool | None) -> bool:
        """Whether the quote before this place ends its text, by what follows: many quotes inside texts are not escaped."""
        follows = self._behind(self.place)
        after = self._text[follows : follows + 1]
        if in_object is None or after in ("", "}", "]"):
            return True
        if after == ",":
            follows = self._behind(follows + 1)
            after = self._text[follows : follows + 1]
            if after in ("", "}", "]"):
                return True
            return _KEY.match(self._text, follows) is not None if in_object else after in _STARTS
        if in_object:
            return _QUOTED_KEY.match(self._text, follows) is not None
        return after in "{[:" or (after in _CLOSED_BY and follows > self.place)

    def _behind(self, place: int) -> int:
        """The place behind the white space at a place."""
        found = _BLANK.match(self._text, place)
        return found.end() if found else place


_STARTS = frozenset("{[\"'“‘`-0123456789tfnTFN")
"""What a value of a list may begin with, behind a comma."""


def _unescaped(escape: str) -> str:
    """What an escape stands for; a backslash before another letter stays, as in a regular expression."""
    if escape[1:2] == "u" and len(escape) == 6:
        return chr(int(escape[2:], 16))
    sign = escape[1:]
    return _ESCAPED.get(sign) or (escape if sign.isalnum() else sign)
