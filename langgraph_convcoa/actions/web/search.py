"""Web searches: their interface and results, and any search tool or function as one."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import BaseTool

from langgraph_convcoa.actions.web.pages import clean, plausible_date, without_instructions

_TITLE, _SNIPPET, _URL = 300, 2_000, 2_048
_TITLES = ("title", "name", "heading")
_URLS = ("url", "link", "href", "source")
_SNIPPETS = ("snippet", "content", "body", "description", "text", "page_content")
_DATES = ("date", "published_date", "publishedDate", "age")
_LISTS = ("results", "items", "organic", "organic_results", "web", "data")


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


@runtime_checkable
class SearchProvider(Protocol):
    """A web search. Any object with these members is one."""

    @property
    def name(self) -> str:
        """Key of its results in the cache."""
        ...

    async def search(self, query: str, n: int) -> list[SearchResult]:
        """The best n results at most, best first."""
        ...


class ToolSearch:
    """A LangChain tool or retriever, or a function, as a search.

    It may return a list of mappings, of documents, of (title, url, snippet) or of `SearchResult`, a mapping with such a list
    under `results`, JSON of these, or a text, which is then one result.

    Example:
        >>> search = ToolSearch(lambda query: [{"title": "Sparsemax", "link": "https://example.org/", "snippet": "2016"}])
        >>> asyncio.run(search.search("sparsemax", 3))
        [SearchResult(title='Sparsemax', url='https://example.org/', snippet='2016', date='')]
    """

    def __init__(self, tool: BaseTool | BaseRetriever | Callable[..., Any], name: str | None = None) -> None:
        self._tool = tool
        given = name or getattr(tool, "name", None) or getattr(tool, "__qualname__", type(tool).__name__)
        self.name = f"tool {given}"

    async def search(self, query: str, n: int) -> list[SearchResult]:
        return parse_results(await self._call(query, n))[:n]

    async def _call(self, query: str, n: int) -> Any:
        tool = self._tool
        if isinstance(tool, BaseTool):
            return await tool.ainvoke({"query": query} if "query" in tool.args else query)
        if isinstance(tool, BaseRetriever):
            return await tool.ainvoke(query)
        arguments = (query, n) if _takes_two(tool) else (query,)
        found = await asyncio.to_thread(tool, *arguments) if not inspect.iscoroutinefunction(tool) else tool(*arguments)
        return await found if inspect.isawaitable(found) else found


def parse_results(found: Any) -> list[SearchResult]:
    """Results from what a search tool returns, whatever it calls their parts.

    Example:
        >>> parse_results('{"results": [{"url": "https://example.org/", "title": "T", "content": "c"}]}')
        [SearchResult(title='T', url='https://example.org/', snippet='c', date='')]
    """
    if isinstance(found, str):
        try:
            parsed = json.loads(found)
        except ValueError:
            return [SearchResult("", "", found.strip())] if found.strip() else []
        return parse_results(parsed) if not isinstance(parsed, str) else [SearchResult("", "", parsed)]
    if isinstance(found, Mapping):
        inner = next((found[key] for key in _LISTS if isinstance(found.get(key), list | Mapping)), None)
        return parse_results(inner) if inner is not None else [one] if (one := _result(found)) else []
    if isinstance(found, Iterable):
        return [result for entry in found if (result := _result(entry)) is not None]
    return []


def _result(entry: Any) -> SearchResult | None:
    if isinstance(entry, SearchResult):
        return entry
    if isinstance(entry, Document):
        entry = {"source": entry.id or "", **entry.metadata, "snippet": entry.page_content}
    if isinstance(entry, list | tuple) and len(entry) >= 3:
        entry = dict(zip(("title", "url", "snippet"), entry[:3], strict=True))
    if isinstance(entry, str):
        entry = {"snippet": entry}
    if not isinstance(entry, Mapping):
        return None
    title, url, snippet, date = (_first(entry, keys) for keys in (_TITLES, _URLS, _SNIPPETS, _DATES))
    result = SearchResult.of(title, url, snippet, date or _published(entry))
    return result if result.title or result.snippet else None


def _first(entry: Mapping[Any, Any], keys: tuple[str, ...]) -> str:
    return next((value for key in keys if isinstance(value := entry.get(key), str) and value.strip()), "")


def _published(entry: Mapping[Any, Any]) -> str:
    """The date of publication in a result of Google."""
    tags = entry.get("pagemap")
    tags = tags.get("metatags") if isinstance(tags, Mapping) else None
    first = tags[0] if isinstance(tags, list) and tags and isinstance(tags[0], Mapping) else {}
    return str(first.get("article:published_time") or "")


def _takes_two(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    free = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len([p for p in free if p.default is p.empty]) == 2 or (len(free) > 1 and free[1].name in ("n", "k", "max_results"))
