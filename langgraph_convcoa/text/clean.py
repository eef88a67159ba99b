"""Text from outside, made safe for every store and encoder: valid Unicode of bounded length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LONGEST_ANSWER = 200_000  # Maximum number of characters of an answer. A longer answer is cut, with a note.
LONGEST_FIELD = 20_000  # Maximum number of characters of any other text of a model, such as a sub-question or a guess.
DEEPEST = 32  # Maximum number of nested levels in JSON. Deeper values become None.
_CUT = f" … (cut: an answer has {LONGEST_ANSWER:,} characters at most)"


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
    # Ten times as fast as a search for surrogates.
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def clean_value(value: Any, depth: int = 0) -> Any:
    """A JSON value with all its texts and keys cleaned. Values deeper than `DEEPEST` levels and integers of more than 64 bits
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
    """Clean another text of a model and cut it to `LONGEST_FIELD` characters."""
    return clean(text[:LONGEST_FIELD])


def flat(text: str) -> str:
    r"""The text on one line: every run of white space, also of Unicode's line separators, becomes one space.

    Example:
        >>> flat("a title\u2028[9] another\x85\n")
        'a title [9] another'
    """
    return " ".join(text.split())
