"""The built-in web searches: DuckDuckGo and others through ddgs, SearXNG, Tavily, Google."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any

import httpx
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import BaseTool

from langgraph_convcoa.actions.web.body import RETRIED, PageError, read_body, wait_before
from langgraph_convcoa.actions.web.search import SearchProvider, SearchResult, ToolSearch, parse_results
from langgraph_convcoa.errors import InputError, RetrievalError

_MAX_BYTES = 3_000_000
_RETRIES = 2
_LONGEST_WAIT = 5.0


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


class DuckDuckGo:
    """Searches without a key, through the ddgs package, which asks several public search engines.

    Args:
        backend: Which of them, as ddgs names them, such as "duckduckgo" or "brave,wikipedia".
        region: Language and country, such as "us-en" or "de-de".
        timeout: Seconds for an engine.

    Raises:
        RetrievalError: On use, when ddgs is not installed or no engine answers.
    """

    def __init__(self, *, backend: str = "auto", region: str = "us-en", timeout: float = 5.0) -> None:
        self.backend = backend
        self.region = region
        self.timeout = timeout
        self.name = f"ddgs {backend} {region}"

    async def search(self, query: str, n: int) -> list[SearchResult]:
        # The package has no async form.
        return await asyncio.to_thread(self._search, query, n)

    def _search(self, query: str, n: int) -> list[SearchResult]:
        try:
            from ddgs import DDGS
            from ddgs.exceptions import DDGSException
        except ImportError as error:
            raise RetrievalError('searching the web needs ddgs: pip install "langgraph-convcoa[web]"') from error
        try:
            seconds = max(1, round(self.timeout))
            found = DDGS(timeout=seconds).text(query, max_results=n, backend=self.backend, region=self.region)
        except DDGSException as error:
            if "no results" in str(error).lower():
                return []
            reason = " ".join(str(error).split())[:100] or type(error).__name__
            raise RetrievalError(
                f"the search engines did not answer ({reason}): try again later, or use another search"
            ) from error
        return parse_results(found)[:n]


class SearXNG:
    """Searches with a SearXNG server, whose settings must name `json` under `search: formats`.

    Args:
        base_url: Its address; a private one is fine.
        parameters: Further parameters of its API, such as {"categories": "news", "language": "de"}.
        timeout: Seconds for a request.

    Raises:
        InputError: The address is no http(s) URL.

    Example:
        >>> SearXNG("http://127.0.0.1:8888/").name
        'searxng http://127.0.0.1:8888'
    """

    def __init__(self, base_url: str, *, parameters: Mapping[str, str] | None = None, timeout: float = 10.0) -> None:
        try:
            parsed = httpx.URL(base_url)
        except httpx.InvalidURL as error:
            raise InputError(f"the SearXNG address {base_url[:100]!r} is no URL") from error
        if parsed.scheme not in ("http", "https") or not parsed.host or "%" in parsed.host:
            raise InputError(f"the SearXNG address {base_url[:100]!r} must begin with http:// or https://")
        self.base_url = base_url.rstrip("/")
        self.parameters = dict(parameters or {})
        self.timeout = timeout
        # Without user and password: the name is cited, and stands in the cache.
        shown = str(parsed.copy_with(userinfo=b"")).rstrip("/")
        self.name = " ".join(["searxng", shown, *(f"{k}={v}" for k, v in sorted(self.parameters.items()))])

    async def search(self, query: str, n: int) -> list[SearchResult]:
        parameters = {**self.parameters, "q": query, "format": "json"}
        hint = {403: "SearXNG does not give JSON: add json to search.formats in its settings.yml"}
        found = await _ask("SearXNG", "GET", f"{self.base_url}/search", self.timeout, hint, params=parameters)
        return _results(found, "results", n)


class Tavily:
    """Searches with Tavily.

    Args:
        api_key: That of TAVILY_API_KEY when None.
        parameters: Further parameters of its API, such as {"topic": "news"}.
        base_url: Of the API.
        timeout: Seconds for a request.

    Raises:
        InputError: There is no key.
    """

    def __init__(
        self,
        api_key: str | None = None,
        *,
        parameters: Mapping[str, Any] | None = None,
        base_url: str = "https://api.tavily.com",
        timeout: float = 10.0,
    ) -> None:
        self._key = api_key or os.environ.get("TAVILY_API_KEY") or ""
        if not self._key:
            raise InputError("Tavily needs a key: set TAVILY_API_KEY, or use ddgs, which needs none")
        self.parameters = dict(parameters or {})
        self.base_url = base_url.rstrip("/")
        self.timeout = timeout
        self.name = " ".join(["tavily", *(f"{k}={v}" for k, v in sorted(self.parameters.items()))])

    async def search(self, query: str, n: int) -> list[SearchResult]:
        body = {**self.parameters, "query": query[:400], "max_results": min(n, 20)}
        headers = {"Authorization": f"Bearer {self._key}"}
        hint = {401: "Tavily refuses the key: check TAVILY_API_KEY"}
        found = await _ask("Tavily", "POST", f"{self.base_url}/search", self.timeout, hint, json=body, headers=headers)
        return _results(found, "results", n)


class GoogleSearch:
    """Searches with a Google Programmable Search Engine.

    Args:
        api_key: That of GOOGLE_API_KEY when None.
        cse_id: The engine's id; that of GOOGLE_CSE_ID when None.
        base_url: Of the API.
        timeout: Seconds for a request.

    Raises:
        InputError: There is no key or no id.
    """

    def __init__(
        self,
        api_key: str | None = None,
        cse_id: str | None = None,
        *,
        base_url: str = "https://www.googleapis.com",
        timeout: float = 10.0,
    ) -> None:
        self._key = api_key or os.environ.get("GOOGLE_API_KEY") or ""
        self._engine = cse_id or os.environ.get("GOOGLE_CSE_ID") or ""
        if not (self._key and self._engine):
            raise InputError("Google needs GOOGLE_API_KEY and GOOGLE_CSE_ID: set both, or use ddgs, which needs no key")
        self.base_url = base_url.rstrip("/")
        self.timeout = timeout
        self.name = f"google {self._engine}"

    async def search(self, query: str, n: int) -> list[SearchResult]:
        parameters = {"cx": self._engine, "q": query[:2_000], "num": str(min(n, 10))}
        address = f"{self.base_url}/customsearch/v1"
        hint = {400: "Google refuses the request: check GOOGLE_API_KEY and GOOGLE_CSE_ID"}
        # In a header, so that the key stands in no address that is logged.
        headers = {"X-Goog-Api-Key": self._key}
        found = await _ask("Google", "GET", address, self.timeout, hint, params=parameters, headers=headers)
        return _results(found, "items", n)


def _results(found: Any, key: str, n: int) -> list[SearchResult]:
    entries = found.get(key) if isinstance(found, dict) else None
    return parse_results([entry for entry in entries if isinstance(entry, dict)])[:n] if isinstance(entries, list) else []


async def _ask(service: str, method: str, url: str, seconds: float, hints: Mapping[int, str], **request: Any) -> Any:
    """JSON of a search service, which is the user's choice and no page: its address is not checked, its answer is.

    Raises:
        RetrievalError: It does not answer with JSON; the message holds neither the key nor the question.
    """
    try:
        client = httpx.AsyncClient(timeout=seconds, trust_env=False, headers={"Accept-Encoding": "gzip, deflate"})
        async with asyncio.timeout(seconds), client:
            for attempt in range(_RETRIES + 1):
                async with client.stream(method, url, **request) as response:
                    if response.status_code == 200:
                        # Undone here, within bounds, as for a page.
                        body = await read_body(response, _MAX_BYTES)
                        return httpx.Response(200, content=body).json()
                    status, wait = response.status_code, wait_before(attempt, response)
                if status not in RETRIED or attempt == _RETRIES or wait > _LONGEST_WAIT:
                    raise RetrievalError(hints.get(status) or f"{service} answered with status {status}: try again later")
                await asyncio.sleep(wait)
    except TimeoutError as error:
        raise RetrievalError(f"{service} did not answer within {seconds:g} s") from error
    except httpx.TransportError as error:
        raise RetrievalError(f"{service} cannot be reached ({type(error).__name__}): check its address") from error
    except PageError as error:
        raise RetrievalError(f"{service}: {str(error).replace('the page', 'its answer')}") from error
    except (ValueError, httpx.InvalidURL) as error:
        raise RetrievalError(f"{service} did not answer with JSON: check its address") from error
    raise AssertionError
