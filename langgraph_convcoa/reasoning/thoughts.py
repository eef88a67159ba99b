"""Some local models think aloud, `<think>...</think>`, before they answer; that is for nobody's eyes."""

from __future__ import annotations

import re

_OPEN, _CLOSE = "<think>", "</think>"
_THOUGHT = re.compile(r"\A\s*<think>.*?(?:</think>|\Z)\s*", re.DOTALL)


class ThoughtFilter:
    """Lets a streamed text through without the thought that it begins with.

    Example:
        >>> thoughts = ThoughtFilter()
        >>> "".join(map(thoughts.feed, [" <th", "ink>Hm. </thi", "nk> It was", " 1982."])) + thoughts.close()
        ' It was 1982.'
    """

    def __init__(self) -> None:
        self._held = ""
        self._answering = False

    def feed(self, text: str) -> str:
        """Take the next piece; returns what is not thought."""
        if self._answering:
            return text
        self._held += text
        start = self._held.lstrip()
        if start.startswith(_OPEN):
            _, closed, rest = start.partition(_CLOSE)
            if not closed:
                return ""
            self._answering, self._held = True, ""
            return rest
        if _OPEN.startswith(start):
            return ""
        return self.close()

    def close(self) -> str:
        """What was held back because a thought might have begun; a thought without an end is dropped."""
        held, self._held = self._held, ""
        self._answering = True
        return "" if held.lstrip().startswith(_OPEN) else held


def without_thought(text: str) -> str:
    """A whole text without the thought that it begins with.

    Example:
        >>> without_thought("<think>JSON, they said.</think> {}")
        '{}'
    """
    return _THOUGHT.sub("", text, count=1)
