"""Text made safe and short for a terminal."""

from __future__ import annotations

import re

# Retrieved text must not steer the terminal: escape sequences, other control characters, changes of writing direction.
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""The text without what a terminal would obey.

    Example:
        >>> printable("a\x1b[31mred\x07\nline")
        'ared\nline'
    """
    return _CONTROL.sub("", text)


def one_line(text: str, limit: int = 240) -> str:
    r"""The text on one line, shortened at a word.

    Example:
        >>> one_line("one  two\nthree four", limit=14)
        'one two three…'
    """
    line = " ".join(printable(text).split())
    if len(line) <= limit:
        return line
    head = line[:limit]
    return head.rsplit(" ", 1)[0].rstrip(" ,;:") + "…"
