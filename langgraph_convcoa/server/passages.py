"""The passage that an answer cites: its text, where the quote stands in it, and what is said just before and after it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

_BETWEEN_QUOTES = " … "
_PART = re.compile(r"(.+)#(\d+)\Z", re.DOTALL)


def passage_json(retriever: HopfieldRetriever, identity: str, quote: str) -> dict[str, Any] | None:
    """The passage of an id as the page shows it; None where there is none."""
    found = retriever.get_by_ids([identity])
    if not found:
        return None
    passage = found[0]
    about = passage.metadata
    before = after = ""
    part = _PART.match(identity)
    if part is not None and about.get("document_id") == part[1]:
        name, number = part[1], int(part[2])
        beside = {
            str(one.id): one.page_content for one in retriever.get_by_ids([f"{name}#{number - 1}", f"{name}#{number + 1}"])
        }
        before, after = beside.get(f"{name}#{number - 1}", ""), beside.get(f"{name}#{number + 1}", "")
    places = spans(passage.page_content, quote)
    return {
        "id": identity,
        "title": str(about.get("title") or ""),
        "source": str(about.get("source") or about.get("document_id") or identity),
        "page": about.get("page"),
        "text": passage.page_content,
        "before": before,
        "after": after,
        "spans": [list(place) for place in places],
        "found": bool(places),
    }


def spans(text: str, quote: str) -> Sequence[tuple[int, int]]:
    r"""Where the parts of a quote stand in a text, in order; white space may differ.

    Example:
        >>> spans("It stores patterns.\nThey are minima. It is old.", "It stores patterns. They are minima. … It is old.")
        [(0, 36), (37, 47)]
    """
    places = []
    for part in quote.split(_BETWEEN_QUOTES):
        words = [re.escape(word) for word in part.split()]
        # A word after another in one pass; a quote is at most some hundred words.
        if words and (match := re.search(r"\s+".join(words), text)):
            places.append(match.span())
    joined: list[tuple[int, int]] = []
    for start, end in sorted(places):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
