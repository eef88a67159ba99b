"""Text made safe and short for a terminal."""

from __future__ import annotations

import json
import re
from typing import Any

from langgraph_convcoa.text.clean import clean

# Retrieved text must not steer the terminal: escape sequences, other control characters, changes of writing direction.
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_RAW_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


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


def one_line(text: str, limit: int = 240) -> str:
    r"""The text on one line, shortened at a word."""
    line = " ".join(printable(text).split())
    if len(line) <= limit:
        return line
    head = line[:limit]
    return head.rsplit(" ", 1)[0].rstrip(" ,;:") + "…"
