"""The marks [n] of citations: found, removed, and renumbered by first use, also while a text streams."""

from __future__ import annotations

import re
from collections.abc import Collection

MARK = r"\[\s*+(\d++(?:\s*+[,;–-]\s*+\d++)*+)\s*+\]"
"""The pattern of a mark, [n], [n, m] or [n-m]; its group holds the numbers. All patterns here take linear time."""
# The start of a possible mark: an opening bracket and digits, commas, dashes after it. White space before it is held back
# too, so that a removed mark leaves no gap.
_PENDING = re.compile(r"(?<!\s)(?:\s*+\[[\s\d,;–-]{0,200}+\Z|\s++\Z)")
_UNCLOSED = re.compile(r"\[[\s\d,;–-]*+\Z")
_LONGEST_RANGE = 50
_MOST_DIGITS = 9


class CitationFilter:
    """Checks and renumbers the [n] of a text that comes in pieces.

    `available` is a count (1..n) or the valid numbers. Marks are numbered by first use: [n] of the result cites the evidence
    with the index `cited[n - 1]`. Invalid marks are dropped and counted in `removed`. `[1, 3]` becomes two marks.

    Example:
        >>> marks = CitationFilter(available=5)
        >>> marks.feed("It was 1982 [4") + marks.feed("]. Forged [7]. Again [4][2].") + marks.close()
        'It was 1982 [1]. Forged. Again [1][2].'
        >>> marks.cited, marks.removed
        ([3, 1], 1)
    """

    def __init__(self, available: int | Collection[int]) -> None:
        self.available = range(1, available + 1) if isinstance(available, int) else available
        self.cited: list[int] = []
        self.removed = 0
        self._held = ""
        self._begun = False
        self._unclosed = False

    def feed(self, text: str) -> str:
        """Take the next piece of text; returns the text that can be shown now."""
        self._held += text
        pending = _PENDING.search(self._held)
        cut = pending.start() if pending else len(self._held)
        ready, self._held = self._held[:cut], self._held[cut:]
        return self._show(ready)

    def verbatim(self, text: str) -> str:
        """Take text in which brackets are not marks, such as code. Returns the text held back so far, then this text."""
        held, self._held = self._held, ""
        before = self._show(held)
        self._unclosed = False
        self._begun = self._begun or bool(text)
        return before + text

    def close(self) -> str:
        """Return the text held back, without the white space at its end."""
        rest, self._held = self._held.rstrip(), ""
        return self._show(rest)

    def _show(self, text: str) -> str:
        parts: list[str] = []
        position = 0
        for match in _WITH_SPACE.finditer(text):
            self._add(parts, text[position : match.start()])
            marks = "".join(f"[{number}]" for number in map(self._number, _numbers(match.group(2))) if number)
            # The text around a dropped mark must not become a new mark: "[1[9]3]".
            self._add(parts, match.group(1) + marks if marks else "…" * self._unclosed)
            position = match.end()
        self._add(parts, text[position:])
        shown = "".join(parts)
        if not self._begun:
            shown = shown.lstrip()
            self._begun = bool(shown)
        return shown

    def _add(self, parts: list[str], text: str) -> None:
        """Append a text, and note whether it ends in an open bracket that further digits may turn into a mark."""
        parts.append(text)
        if text:
            self._unclosed = bool(_UNCLOSED.search(f"[{text}" if self._unclosed else text))

    def _number(self, number: int) -> int:
        if number not in self.available:
            self.removed += 1
            return 0
        if number - 1 not in self.cited:
            self.cited.append(number - 1)
        return self.cited.index(number - 1) + 1


_BETWEEN = " \t\n,;:()–—"
_WITH_SPACE = re.compile(rf"((?<!\s)\s*+){MARK}")


def _numbers(inside: str) -> list[int]:
    found: list[int] = []
    for part in re.split(r"[,;]", inside):
        ends = [int(digits[:_MOST_DIGITS]) for digits in re.findall(r"\d+", part)]
        if len(ends) == 2 and 0 < ends[1] - ends[0] <= _LONGEST_RANGE:
            found.extend(range(ends[0], ends[1] + 1))
        else:
            found.extend(ends)
    return found


def without_marks(text: str) -> str:
    """Remove the [n] from a text. If the text around a removed mark forms a new mark, "…" replaces the new mark."""
    plain = _WITH_SPACE.sub("", text)
    return _WITH_SPACE.sub("…", plain) if plain is not text else text


def cited_parts(text: str) -> list[tuple[str, list[int]]]:
    """Split a sentence at its marks: [(part, numbers of the marks after it)].

    Example:
        >>> cited_parts("It is in New York [2], the other in Louisiana [1][3].")
        [('It is in New York', [2]), ('the other in Louisiana', [1, 3])]
    """
    parts: list[tuple[str, list[int]]] = []
    position = 0
    for match in _WITH_SPACE.finditer(text):
        part = text[position : match.start()].strip(_BETWEEN)
        if part or not parts:
            parts.append((part, []))
        parts[-1][1].extend(_numbers(match.group(2)))
        position = match.end()
    return parts


def kept_marks(text: str, numbers: Collection[int], most: int) -> str:
    """Keep only the marks of `numbers` in a sentence, at most `most` in one place. If two places in a row would show the
    same marks, only the last shows them.

    Example:
        >>> kept_marks("It is in New York [2], the other in Louisiana [1][3].", {1, 2}, most=3)
        'It is in New York [2], the other in Louisiana [1].'
    """
    places: list[tuple[str, str, list[int]]] = []
    position = 0
    for match in _WITH_SPACE.finditer(text):
        if match.start() > position or not places:
            places.append((text[position : match.start()], match.group(1), []))
        here = places[-1][2]
        here += [n for n in dict.fromkeys(_numbers(match.group(2))) if n in numbers and n not in here][: most - len(here)]
        position = match.end()
    shown = ""
    for n, (before, space, here) in enumerate(places):
        # The next place shows the same numbers.
        again = n + 1 < len(places) and places[n + 1][2] == here
        shown += before + (space + "".join(f"[{number}]" for number in here) if here and not again else "")
    return shown + text[position:]


def renumbered_marks(text: str, available: int) -> tuple[str, list[int], int]:
    """Apply `CitationFilter` to a whole text: (text, cited indexes in order of first use, number of removed marks)."""
    marks = CitationFilter(available)
    shown = marks.feed(text) + marks.close()
    return shown, marks.cited, marks.removed
