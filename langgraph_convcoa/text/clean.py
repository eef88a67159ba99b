"""Makes text from outside safe for every store, encoder and terminal: valid Unicode of bounded length."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

LONGEST_ANSWER = 200_000  # Maximum number of characters of an answer. A longer answer is cut, with a note.
LONGEST_FIELD = 20_000  # Maximum number of characters of any other text of a model, such as a sub-question or a guess.
DEEPEST = 32  # Maximum number of nested levels in JSON. Deeper values become None.
_CUT = f" … (cut: an answer has {LONGEST_ANSWER:,} characters at most)"
# Retrieved text must not steer the terminal: escape sequences, other control characters, changes of writing direction.
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_RAW_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def clean(text: str) -> str:
    r"""Make a text safe to store and encode: NUL and lone halves of surrogate pairs become U+FFFD.

    Two halves that belong together become their character. All text of models, tools, pages, documents, questions and
    imports passes through here.

    Example:
        >>> clean("cut \ud83d, whole \ud83d\ude00, and \x00"), clean("as it is")
        ('cut \ufffd, whole 😀, and \ufffd', 'as it is')
    """
    if "\0" not in text and _encodes(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\0", "\ufffd")


def _encodes(text: str) -> bool:
    # Encoding is ten times as fast as a search for surrogates.
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def clean_value(value: Any, depth: int = 0) -> Any:
    """Clean all texts and keys of a JSON value. Values deeper than `DEEPEST` levels and integers of more than 64 bits
    become None.
    """
    if isinstance(value, str):
        return clean(value)
    if not isinstance(value, Mapping | list | tuple):
        return value if not isinstance(value, int) or -(2**63) <= value < 2**63 else None
    if depth >= DEEPEST:
        return None
    if isinstance(value, Mapping):
        return {clean(key) if isinstance(key, str) else key: clean_value(item, depth + 1) for key, item in value.items()}
    return [clean_value(item, depth + 1) for item in value]


def cut_answer(text: str) -> str:
    """Clean an answer and cut it to `LONGEST_ANSWER` characters, with a note."""
    if len(text) > LONGEST_ANSWER:
        text = text[: LONGEST_ANSWER - len(_CUT)] + _CUT
    return clean(text)


def cut_field(text: str) -> str:
    """Clean a text of a model other than an answer, and cut it to `LONGEST_FIELD` characters."""
    return clean(text[:LONGEST_FIELD])


def flat(text: str) -> str:
    r"""The text on one line: every run of white space, also of Unicode's line separators, becomes one space.

    Example:
        >>> flat("a title\u2028[9] another\x85\n")
        'a title [9] another'
    """
    return " ".join(text.split())


def printable(text: str) -> str:
    r"""The text without the characters that control a terminal.

    Example:
        >>> printable("a\x1b[31mred\x07\nline")
        'ared\nline'
    """
    return _CONTROL.sub("", clean(text))


def json_text(value: Any, *, ascii_only: bool = False, indent: int | None = None) -> str:
    r"""JSON for a terminal or a file: characters that control a terminal are escaped."""
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    return _RAW_IN_JSON.sub(lambda sign: f"\\u{ord(sign[0]):04x}", text)


def shortened(text: str, most: int) -> str:
    """The text on one line, cut at a word if it has more than `most` characters."""
    text = flat(text)
    return text if len(text) <= most else f"{text[:most].rsplit(' ', 1)[0]} …"


def one_line(text: str, limit: int = 240) -> str:
    r"""The text on one line, shortened at a word."""
    line = " ".join(printable(text).split())
    if len(line) <= limit:
        return line
    head = line[:limit]
    return head.rsplit(" ", 1)[0].rstrip(" ,;:") + "…"
