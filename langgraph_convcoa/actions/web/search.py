"""What a web search is, and how any search tool or function becomes one."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import BaseTool

from langgraph_convcoa.actions.web.engines import DuckDuckGo, GoogleSearch, SearXNG, Tavily
from langgraph_convcoa.actions.web.results import SearchResult
from langgraph_convcoa.errors import InputError

__all__ = ["SearchProvider", "SearchResult", "ToolSearch", "as_search"]

_TITLES = ("title", "name", "heading")
_URLS = ("url", "link", "href", "source")
_SNIPPETS = ("snippet", "content", "body", "description", "text", "page_content")
_DATES = ("date", "published_date", "publishedDate", "age")
_LISTS = ("results", "items", "organic", "organic_results", "web", "data")


@runtime_checkable
class SearchProvider(Protocol):
    """A web search. Any object with these members is one."""

    @property
    def name(self) -> str:
        """Tells its results from another search's in the cache."""
        ...

    async def search(self, query: str, n: int) -> list[SearchResult]:
        """The best n results at most, best first."""
        ...


def as_search(search: SearchProvider | BaseTool | BaseRetriever | Callable[..., Any] | str) -> SearchProvider:
    """A search from what a user names.

    Args:
        search: "ddgs" (no key), "tavily", "google", "searxng" (its address in SEARXNG_URL), the base URL of a SearXNG, a
            LangChain tool or retriever, a function `f(query)` or `f(query, n)`, plain or async, or an object with `search`.

    Raises:
        InputError: There is no such search, or its key is missing.

    Example:
        >>> as_search("https://searx.example.org").name
        'searxng https://searx.example.org'
    """
    if isinstance(search, str):
        return _named(search.strip())
    if isinstance(search, BaseTool | BaseRetriever):
        return ToolSearch(search)
    if isinstance(search, SearchProvider):
        if not inspect.iscoroutinefunction(search.search):
            raise InputError(f"the search {search.name!r} needs an async search: write `async def search(self, query, n)`")
        return search
    if callable(search):
        return ToolSearch(search)
    raise InputError(
        f"a search must be a name, a SearXNG address, a LangChain tool or a function, not {type(search).__name__}"
    )


def _named(name: str) -> SearchProvider:
    if name.lower().startswith(("http://", "https://")):
        return SearXNG(name)
    if name.lower() == "searxng":
        if not (address := os.environ.get("SEARXNG_URL")):
            raise InputError("set SEARXNG_URL, or name your SearXNG by its address, such as http://127.0.0.1:8888")
        return SearXNG(address)
    if name.lower() in ("ddgs", "duckduckgo"):
        return DuckDuckGo()
    if name.lower() == "tavily":
        return Tavily()
    if name.lower() == "google":
        return GoogleSearch()
    raise InputError(f"there is no search {name[:60]!r}: use ddgs, tavily, google, or the address of a SearXNG")


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
    result = SearchResult.of(*(_first(entry, keys) for keys in (_TITLES, _URLS, _SNIPPETS, _DATES)))
    return result if result.title or result.snippet else None


def _first(entry: Mapping[Any, Any], keys: tuple[str, ...]) -> str:
    return next((value for key in keys if isinstance(value := entry.get(key), str) and value.strip()), "")


def _takes_two(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    free = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len([p for p in free if p.default is p.empty]) == 2 or (len(free) > 1 and free[1].name in ("n", "k", "max_results"))
