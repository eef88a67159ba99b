"""Web searches: ddgs, SearXNG, Tavily and Google, and any LangChain tool or function as a search."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

import httpx
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import BaseTool

from langgraph_convcoa.actions.web.fetch import RETRIED, PageError, read_body, wait_before
from langgraph_convcoa.actions.web.pages import plausible_date, visible, without_instructions
from langgraph_convcoa.errors import InputError, RetrievalError, require
from langgraph_convcoa.text.clean import flat

_RETRIES, _LONGEST_WAIT = 2, 5.0
_TITLE, _SNIPPET, _URL = 300, 2_000, 2_048
_TITLES = ("title", "name", "heading")
_URLS = ("url", "link", "href", "source")
_SNIPPETS = ("snippet", "content", "body", "description", "text", "page_content")
_DATES = ("date", "published_date", "publishedDate", "age")
_LISTS = ("results", "items", "organic", "organic_results", "web", "data")


@dataclass(frozen=True)
class SearchResult:
    """A page that a search found; `url` is empty for an answer of the search itself, `date` is YYYY-MM-DD or empty."""

    title: str
    url: str
    snippet: str
    date: str = ""

    @classmethod
    def of(cls, title: object, url: object, snippet: object, date: object = "") -> SearchResult:
        """Make a result. Each field is one line of limited length, without instructions to a model."""

        def line(text: object, most: int) -> str:
            return without_instructions(flat(visible(text if isinstance(text, str) else ""))[:most])

        return cls(line(title, _TITLE), str(url or "").strip()[:_URL], line(snippet, _SNIPPET), plausible_date(date))


@runtime_checkable
class SearchProvider(Protocol):
    """A web search: `search` returns at most n results, best first. The cache keys contain `name`."""

    @property
    def name(self) -> str: ...

    async def search(self, query: str, n: int) -> list[SearchResult]: ...


def as_search(search: SearchProvider | BaseTool | BaseRetriever | Callable[..., Any] | str) -> SearchProvider:
    """The search that a user names. Raises InputError for an unknown name or a missing key.

    A search is "ddgs" (no key), "tavily", "google", "searxng" (its address in SEARXNG_URL), the base URL of a SearXNG, a
    LangChain tool or retriever, a function `f(query)`, plain or async, or an object with `search`.
    """
    if isinstance(search, str):
        name = search.strip()
        if name.lower().startswith(("http://", "https://")):
            return SearXNG(name)
        if name.lower() == "searxng":
            if not (address := os.environ.get("SEARXNG_URL")):
                raise InputError("set SEARXNG_URL, or name your SearXNG by its address, such as http://127.0.0.1:8888")
            return SearXNG(address)
        known = {"ddgs": DuckDuckGo, "duckduckgo": DuckDuckGo, "tavily": Tavily, "google": GoogleSearch}
        if (kind := known.get(name.lower())) is None:
            raise InputError(f"there is no search {name[:60]!r}: use ddgs, tavily, google, or the address of a SearXNG")
        return cast("SearchProvider", kind())
    if not isinstance(search, BaseTool | BaseRetriever) and isinstance(search, SearchProvider):
        if not inspect.iscoroutinefunction(search.search):
            raise InputError(f"the search {search.name!r} needs an async search: write `async def search(self, query, n)`")
        return search
    if isinstance(search, BaseTool | BaseRetriever) or callable(search):
        return ToolSearch(search)
    raise InputError(
        f"a search must be a name, a SearXNG address, a LangChain tool or a function, not {type(search).__name__}"
    )


def check_packages(*packages: str) -> None:
    """Raise InputError if a package of the extra `web` is missing. By default, the packages that read pages are checked."""
    require("looking things up on the web", "web", *(packages or ("charset_normalizer", "lxml", "trafilatura")))


class ToolSearch:
    """A LangChain tool, a retriever, or a function as a search. `parse_results` describes the results that it may return."""

    def __init__(self, tool: BaseTool | BaseRetriever | Callable[..., Any]) -> None:
        self._tool = tool
        given = getattr(tool, "name", None) or getattr(tool, "__qualname__", type(tool).__name__)
        self.name = f"tool {given}"

    async def search(self, query: str, n: int) -> list[SearchResult]:
        tool = self._tool
        if isinstance(tool, BaseTool):
            found = await tool.ainvoke({"query": query} if "query" in tool.args else query)
        elif isinstance(tool, BaseRetriever):
            found = await tool.ainvoke(query)
        elif inspect.iscoroutinefunction(tool):
            found = await tool(query)
        else:
            found = await asyncio.to_thread(tool, query)
            # A lambda that calls an asynchronous client returns an awaitable.
            found = await found if inspect.isawaitable(found) else found
        return parse_results(found)[:n]


class DuckDuckGo:
    """Searches without a key through ddgs, which asks several public search engines. Raises InputError if ddgs is missing."""

    name = "ddgs"

    def __init__(self) -> None:
        check_packages("ddgs")

    async def search(self, query: str, n: int) -> list[SearchResult]:
        from ddgs import DDGS
        from ddgs.exceptions import DDGSException

        try:
            found = await asyncio.to_thread(DDGS(timeout=5).text, query, max_results=n)
        except DDGSException as error:
            if "no results" in str(error).lower():
                return []
            reason = " ".join(str(error).split())[:100] or type(error).__name__
            raise RetrievalError(
                f"the search engines did not answer ({reason}): try again later, or use another search"
            ) from error
        return parse_results(found)[:n]


class _Service:
    """A search service that answers with JSON. Its answer is checked, but not its address, which the user chose."""

    def __init__(self, service: str, base_url: str, name: str, timeout: float = 10.0) -> None:
        self.service, self.base_url, self.name, self.timeout = service, base_url.rstrip("/"), name, timeout

    async def _ask(
        self, method: str, path: str, results: str, n: int, hints: Mapping[int, str], **request: Any
    ) -> list[SearchResult]:
        """The results under the key `results` of the answer. Error messages contain neither the key nor the question."""
        service, seconds = self.service, self.timeout
        try:
            client = httpx.AsyncClient(timeout=seconds, trust_env=False, headers={"Accept-Encoding": "gzip"})
            async with asyncio.timeout(seconds), client:
                for attempt in range(_RETRIES + 1):
                    async with client.stream(method, f"{self.base_url}/{path}", **request) as response:
                        if response.status_code == 200:
                            # The body is decompressed within bounds, like a page.
                            found = json.loads(await read_body(response, max_bytes=3_000_000))
                            entries = found.get(results) if isinstance(found, dict) else None
                            entries = entries if isinstance(entries, list) else []
                            return parse_results([entry for entry in entries if isinstance(entry, dict)])[:n]
                        status, wait = response.status_code, wait_before(attempt, response)
                    if status not in RETRIED or attempt == _RETRIES or wait > _LONGEST_WAIT:
                        break
                    await asyncio.sleep(wait)
        except TimeoutError as error:
            raise RetrievalError(f"{service} did not answer within {seconds:g} s") from error
        except httpx.TransportError as error:
            raise RetrievalError(f"{service} cannot be reached ({type(error).__name__}): check its address") from error
        except PageError as error:
            raise RetrievalError(f"{service}: {str(error).replace('the page', 'its answer')}") from error
        except (ValueError, httpx.InvalidURL) as error:
            raise RetrievalError(f"{service} did not answer with JSON: check its address") from error
        raise RetrievalError(hints.get(status) or f"{service} answered with status {status}: try again later")


class SearXNG(_Service):
    """Searches with a SearXNG server, also at a private address. Its settings must have `json` under `search: formats`."""

    def __init__(self, base_url: str, *, timeout: float = 10.0) -> None:
        try:
            parsed = httpx.URL(base_url)
        except httpx.InvalidURL as error:
            raise InputError(f"the SearXNG address {base_url[:100]!r} is no URL") from error
        if parsed.scheme not in ("http", "https") or not parsed.host or "%" in parsed.host:
            raise InputError(f"the SearXNG address {base_url[:100]!r} must begin with http:// or https://")
        # User and password are left out, since the name is cited and is part of the cache keys.
        shown = str(parsed.copy_with(userinfo=b"")).rstrip("/")
        super().__init__("SearXNG", base_url, f"searxng {shown}", timeout)

    async def search(self, query: str, n: int) -> list[SearchResult]:
        hint = {403: "SearXNG does not give JSON: add json to search.formats in its settings.yml"}
        return await self._ask("GET", "search", "results", n, hint, params={"q": query, "format": "json"})


class Tavily(_Service):
    """Searches with Tavily. The key is read from TAVILY_API_KEY unless it is given."""

    def __init__(self, api_key: str | None = None, *, base_url: str = "https://api.tavily.com") -> None:
        self._key = api_key or os.environ.get("TAVILY_API_KEY") or ""
        if not self._key:
            raise InputError("Tavily needs a key: set TAVILY_API_KEY, or use ddgs, which needs none")
        super().__init__("Tavily", base_url, "tavily")

    async def search(self, query: str, n: int) -> list[SearchResult]:
        body, headers = {"query": query[:400], "max_results": min(n, 20)}, {"Authorization": f"Bearer {self._key}"}
        hint = {401: "Tavily refuses the key: check TAVILY_API_KEY"}
        return await self._ask("POST", "search", "results", n, hint, json=body, headers=headers)


class GoogleSearch(_Service):
    """Searches with a Google Programmable Search Engine. Reads GOOGLE_API_KEY and GOOGLE_CSE_ID unless they are given."""

    def __init__(
        self, api_key: str | None = None, cse_id: str | None = None, *, base_url: str = "https://www.googleapis.com"
    ) -> None:
        self._key = api_key or os.environ.get("GOOGLE_API_KEY") or ""
        self._engine = cse_id or os.environ.get("GOOGLE_CSE_ID") or ""
        if not (self._key and self._engine):
            raise InputError("Google needs GOOGLE_API_KEY and GOOGLE_CSE_ID: set both, or use ddgs, which needs no key")
        super().__init__("Google", base_url, f"google {self._engine}")

    async def search(self, query: str, n: int) -> list[SearchResult]:
        parameters = {"cx": self._engine, "q": query[:2_000], "num": str(min(n, 10))}
        hint = {400: "Google refuses the request: check GOOGLE_API_KEY and GOOGLE_CSE_ID"}
        # The key is sent in a header, so that no logged address contains it.
        headers = {"X-Goog-Api-Key": self._key}
        return await self._ask("GET", "customsearch/v1", "items", n, hint, params=parameters, headers=headers)


def parse_results(found: Any) -> list[SearchResult]:
    """Parse the return value of a search tool: mappings, documents or texts, in a list or alone, also as JSON."""
    if isinstance(found, str):
        try:
            parsed = json.loads(found)
        except ValueError:
            parsed = found.strip()
        if isinstance(parsed, str):
            return [SearchResult("", "", parsed)] if parsed else []
        found = parsed
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
    if isinstance(entry, str):
        entry = {"snippet": entry}
    if not isinstance(entry, Mapping):
        return None
    title, url, snippet, date = (
        next((value for key in keys if isinstance(value := entry.get(key), str) and value.strip()), "")
        for keys in (_TITLES, _URLS, _SNIPPETS, _DATES)
    )
    if not date:
        # Google gives the date in the page's metatags.
        with suppress(AttributeError, IndexError, KeyError, TypeError):
            date = str(entry["pagemap"]["metatags"][0].get("article:published_time") or "")
    result = SearchResult.of(title, url, snippet, date)
    return result if result.title or result.snippet else None
