"""The passage that an answer cites: its text, the place of the quote, and the passages before and after it."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

_BETWEEN_QUOTES = " … "
_MOST_TEXT = 100_000
"""Maximum number of characters of the text that is shown: the id may name a whole document."""
_PART = re.compile(r"(.+)#(\d+)\Z", re.DOTALL)


def passage_json(retriever: HopfieldRetriever, identity: str, quote: str) -> dict[str, Any] | None:
    """A passage as the page shows it, or None if no passage has this id."""
    found = retriever.get_by_ids([identity])
    if not found:
        return None
    passage = found[0]
    about = passage.metadata
    before = after = ""
    part = _PART.match(identity)
    if part is not None and about.get("document_id") == part[1]:
        names = [f"{part[1]}#{int(part[2]) + step}" for step in (-1, 1)]
        beside = {str(one.id): one.page_content for one in retriever.get_by_ids(names)}
        before, after = (beside.get(name, "") for name in names)
    text = passage.page_content[:_MOST_TEXT]
    return {
        "title": str(about.get("title") or ""),
        "source": str(about.get("source") or about.get("document_id") or identity),
        "page": about.get("page"),
        "text": text,
        "before": before,
        "after": after,
        "spans": [list(place) for place in spans(text, quote)],
    }


def spans(text: str, quote: str) -> Sequence[tuple[int, int]]:
    r"""Where the parts of a quote stand in a text, in order; white space may differ.

    Example:
        >>> spans("It stores patterns.\nThey are minima. It is old.", "It stores patterns. They are minima. … It is old.")
        [(0, 36), (37, 47)]
    """
    words = [(match.start(), match[0]) for match in re.finditer(r"\S+", text)]
    # With single spaces the search is linear. A pattern of the quote's words would try each place for each word.
    flat, starts, length = " ".join(word for _, word in words), list[int](), 0
    for _, word in words:
        starts.append(length)
        length += len(word) + 1

    def place(index: int) -> int:
        number = bisect_right(starts, index) - 1
        return words[number][0] + index - starts[number]

    places = []
    for part in quote.split(_BETWEEN_QUOTES):
        wanted = " ".join(part.split())
        if wanted and (found := flat.find(wanted)) >= 0:
            places.append((place(found), place(found + len(wanted) - 1) + 1))
    joined: list[tuple[int, int]] = []
    for start, end in sorted(places):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
