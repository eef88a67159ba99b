"""Citations in an answer: checked against what was retrieved, renumbered by first use, while the text is still streaming."""

from __future__ import annotations

import re
from collections.abc import Collection

_MARK = re.compile(r"\[\s*(\d{1,4}(?:\s*[,;–-]\s*\d{1,4})*)\s*\]")
# What may still become a mark: an opening bracket and digits, commas, dashes after it. White space before it is held back
# too, so that a removed mark leaves no gap.
_PENDING = re.compile(r"\s*\[[\s\d,;–-]{0,60}\Z|\s+\Z")
_LONGEST_RANGE = 50


class CitationFilter:
    """Lets text through with every [n] checked and renumbered.

    `[n]` must be one of `available`, given as a count (1..n) or as the numbers themselves. A valid mark gets the number of its
    first use, so that the n-th entry of `cited` is what [n] means in the filtered text; an invalid one is dropped and counted
    in `removed`. `[1, 3]` and `[1-3]` become single marks. The joined pieces equal the filtered whole, whatever the chunks.

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

    def feed(self, text: str) -> str:
        """Take the next piece of text; returns what can be shown by now."""
        self._held += text
        pending = _PENDING.search(self._held)
        cut = pending.start() if pending else len(self._held)
        ready, self._held = self._held[:cut], self._held[cut:]
        return self._show(ready)

    def close(self) -> str:
        """The rest of the text, without the white space at its end."""
        rest, self._held = self._held.rstrip(), ""
        return self._show(rest)

    def _show(self, text: str) -> str:
        shown = _WITH_SPACE.sub(self._replace, text)
        if not self._begun:
            shown = shown.lstrip()
            self._begun = bool(shown)
        return shown

    def _replace(self, match: re.Match[str]) -> str:
        marks = "".join(f"[{number}]" for number in map(self._number, _numbers(match.group(2))) if number)
        return match.group(1) + marks if marks else ""

    def _number(self, number: int) -> int:
        if number not in self.available:
            self.removed += 1
            return 0
        if number - 1 not in self.cited:
            self.cited.append(number - 1)
        return self.cited.index(number - 1) + 1


_WITH_SPACE = re.compile(rf"(\s*){_MARK.pattern}")


def _numbers(inside: str) -> list[int]:
    found: list[int] = []
    for part in re.split(r"[,;]", inside):
        ends = [int(digits) for digits in re.findall(r"\d+", part)]
        if len(ends) == 2 and 0 < ends[1] - ends[0] <= _LONGEST_RANGE:
            found.extend(range(ends[0], ends[1] + 1))
        else:
            found.extend(ends)
    return found


def check_citations(text: str, available: int) -> tuple[str, list[int], int]:
    """Check and renumber the marks of a whole text: (text, indexes cited in order of first use, marks removed)."""
    marks = CitationFilter(available)
    checked = marks.feed(text) + marks.close()
    return checked, marks.cited, marks.removed
