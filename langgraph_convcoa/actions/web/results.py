"""A result of a web search."""

from __future__ import annotations

from dataclasses import dataclass

from langgraph_convcoa.actions.web.pages import plausible_date
from langgraph_convcoa.actions.web.text import clean, without_instructions

_TITLE, _SNIPPET, _URL = 300, 2_000, 2_048


@dataclass(frozen=True)
class SearchResult:
    """A page that a search found.

    Attributes:
        title: Of the page.
        url: Of the page; empty for an answer of the search itself.
        snippet: The part of the page that the search shows.
        date: Of publication, as YYYY-MM-DD; empty where the search does not tell.
    """

    title: str
    url: str
    snippet: str
    date: str = ""

    @classmethod
    def of(cls, title: object, url: object, snippet: object, date: object = "") -> SearchResult:
        """A result from what a search sent: on one line, within bounds, without instructions to a model."""
        head, body = (_line(text, most) for text, most in ((title, _TITLE), (snippet, _SNIPPET)))
        return cls(head, str(url or "").strip()[:_URL], body, plausible_date(date))


def _line(text: object, most: int) -> str:
    return without_instructions(" ".join(clean(text if isinstance(text, str) else "").split())[:most])[0]
