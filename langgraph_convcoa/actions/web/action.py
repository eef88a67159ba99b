"""The web-querying action (Pan et al. 2024b, section 3.4.1; Pan et al. 2024a, section 2.2.1)."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import BaseTool

from langgraph_convcoa.actions.base import ActionRequest, BaseAction
from langgraph_convcoa.actions.web import WebQueryingSettings
from langgraph_convcoa.actions.web.fetch import Fetcher, FetchLimits
from langgraph_convcoa.actions.web.pages import Page, PageReader
from langgraph_convcoa.actions.web.search import SearchProvider, SearchResult, as_search, check_packages
from langgraph_convcoa.actions.web.url_guard import Guard
from langgraph_convcoa.errors import InputError, RetrievalError, redact
from langgraph_convcoa.retrieval.documents.split import split_documents
from langgraph_convcoa.retrieval.encoders.base import Encoder, RecentEncoder
from langgraph_convcoa.retrieval.encoders.embeddings import as_encoder
from langgraph_convcoa.retrieval.hybrid.bm25 import BM25Index
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

_log = logging.getLogger(__name__)
_SEARCH_SECONDS = 600.0
_EXTRACTION_SECONDS = 5.0
_SNIPPET_SCORE = 0.1  # Score of the first snippet, lower than any passage's score. The n-th snippet gets 1/n of this score.
_MOST_PARTS = 100  # More parts than one search result can have: a title with its snippet is short.
_MOST_PASSAGES = 60  # A look-up encodes at most this many passages. If there are more, BM25 chooses them.


class WebQuerying(BaseAction):
    """Searches the web, and reads pages only if titles and snippets do not support a guess.

    Depth 1 is one search request; its titles and snippets are the evidence. Depth 2 searches them for the sub-question and
    its guess by sparse Hopfield retrieval. It reads the best pages in parallel and returns their best passages, with `source`,
    `title` and the `date` of publication if it is known. A page that cannot be read is left out and logged.

    Args:
        search: "ddgs" (no key), "tavily", "google", the address of a SearXNG, a LangChain search tool, a function `f(query)`,
            or an object with `async search(query, n)`.
        encoder: Ranks pages and passages, as for `HopfieldRetriever`; all-MiniLM-L6-v2 when None. Loaded for depth 2 only.
        results: Number of results that are requested from the search.
        pages: Maximum number of pages that are read at each depth.
        read_pages_first: Read the pages of the first results at depth 1 (Pan et al. 2024b).
        allow_private: Hosts and networks that may be read although they are not public, such as ["wiki.intern",
            "10.1.0.0/16"], or True for all of them. The search's own address needs no entry.
        respect_robots: Leave out pages that a site's robots.txt asks not to read.
        cache: A file that keeps pages; None keeps them in memory.
        cache_seconds: Seconds for which a page is kept.
        limits: Limits on time, size and requests for a page.
        guard: Used instead of `allow_private`; a guard can resolve host names in another way.
        name: The action's name for the planner and the chain.
        description: What the planner reads.

    Raises:
        InputError: A setting cannot be used, or the search's key or a package of the extra `web` is missing.
        RetrievalError: The cache cannot be made. Later, from `retrieve`: the search or the encoder fails.

    Example:
        >>> found = [{"title": "Sparsemax", "url": "https://example.org/", "snippet": "Sparsemax is from 2016."}]
        >>> action = WebQuerying(lambda query: found)
        >>> request = ActionRequest(question="When?", sub_question="When was sparsemax introduced?")
        >>> asyncio.run(action.retrieve(request))[0].metadata["source"]
        'https://example.org/'
    """

    settings = WebQueryingSettings
    deepens = True
    always_fresh = True

    def __init__(
        self,
        search: SearchProvider | BaseTool | BaseRetriever | Callable[..., Any] | str = "ddgs",
        *,
        encoder: Encoder | Embeddings | str | None = None,
        results: int = 10,
        pages: int = 5,
        read_pages_first: bool = False,
        allow_private: bool | Sequence[str] = False,
        respect_robots: bool = True,
        cache: str | Path | None = None,
        cache_seconds: float = 86_400.0,
        limits: FetchLimits | None = None,
        guard: Guard | None = None,
        name: str = "web_querying",
        description: str = "searches the web for what is recent or not in the user's documents; action_input: search keywords",
    ) -> None:
        check_packages()
        for setting, value in (("results", results), ("pages", pages)):
            if not 1 <= value <= 100:
                raise InputError(f"{setting} must be from 1 to 100, not {value}")
        if cache_seconds < 0:
            raise InputError(f"cache_seconds must be at least 0, not {cache_seconds}")
        self.name, self.description = name, description
        self.search = as_search(search)
        self._defaults = {"results": results, "pages": pages, "read_pages_first": read_pages_first}
        self.cache_seconds = cache_seconds
        self._fetcher = Fetcher(guard or Guard(allow_private), limits, respect_robots=respect_robots)
        self._ranker = WebRanker(encoder)
        self._reader = PageReader(self._fetcher, cache, kept=cache_seconds, extraction=_EXTRACTION_SECONDS)

    async def retrieve(self, request: ActionRequest) -> list[Document]:
        """Titles and snippets at depth 1, passages of pages at depth 2. Raises RetrievalError."""
        own = self._defaults | {name: value for name, value in request.settings.items() if value is not None}
        most = own["pages"]
        results = await self._results(_keywords(request), own["results"])
        snippets = [_snippet(rank, result, self.search.name) for rank, result in enumerate(results[: request.k], 1)]
        if request.depth == 1 and not own["read_pages_first"]:
            return snippets
        chosen = [result for result in results if result.url]
        if request.depth > 1:
            chosen = await asyncio.to_thread(self._ranker.choose, chosen, request.query, most)
        pages = await self._read(chosen[:most]) if chosen else []
        if not pages:
            return snippets if request.depth == 1 else []
        return await asyncio.to_thread(self._ranker.passages, pages, request.query, request.k)

    async def _results(self, query: str, n: int) -> list[SearchResult]:
        async def ask() -> list[dict[str, str]]:
            try:
                found = await self.search.search(query, n)
            except (RetrievalError, httpx.TransportError, httpx.HTTPStatusError, ConnectionError, TimeoutError):
                raise
            except Exception as error:  # a user's tool or function may raise any error
                raise RetrievalError(f"the search {self.search.name!r} failed ({type(error).__name__})") from error
            return [asdict(SearchResult.of(r.title, r.url, r.snippet, r.date)) for r in found]

        key = f"search {n} {self.search.name}\n{query}"
        kept = await self._reader.once(key, ask, min(_SEARCH_SECONDS, self.cache_seconds))
        results = [SearchResult(**entry) for entry in kept]
        return list({result.url or result.snippet: result for result in results[::-1]}.values())[::-1]

    async def _read(self, results: Sequence[SearchResult]) -> list[Page]:
        """The pages that can be read, in the order of the results."""
        await self._reader.start()
        async with self._fetcher.client() as client:
            tasks = [asyncio.create_task(self._page(client, result)) for result in results]
            try:
                await asyncio.wait(tasks, timeout=self._fetcher.limits.total_seconds)
            finally:
                late = [task.cancel() for task in tasks]
                await asyncio.gather(*tasks, return_exceptions=True)
        if any(late):
            _log.info("left out %d pages that were not read within %g s", sum(late), self._fetcher.limits.total_seconds)
        read = [task.result() for task in tasks if not task.cancelled()]
        return list({page.url: page for page in read if page is not None}.values())

    async def _page(self, client: httpx.AsyncClient, result: SearchResult) -> Page | None:
        try:
            kept = await self._reader.read(client, result.url)
        except Exception as error:  # noqa: BLE001 - a fault of a parser in one page must not lose the others
            kept = {"error": type(error).__name__}
        if "error" in kept:
            _log.info("left out %s: %s", redact(result.url), redact(kept["error"]))
            return None
        page = Page(**kept)
        return page._replace(title=page.title or result.title, date=page.date or result.date)


def _keywords(request: ActionRequest) -> str:
    """The query of the search: the planner's keywords, or the previous question and the sub-question."""
    asked = request.action_input.strip() or request.sub_question.strip()
    if request.history and not request.action_input.strip():
        asked = f"{request.history[-1][0]} {asked}"
    return " ".join(asked.split())[:400]


def _snippet(rank: int, result: SearchResult, search: str) -> Document:
    # Title and snippet as one statement: both may hold words of the question.
    text = ": ".join(part for part in (result.title, result.snippet) if part)
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
    metadata = {"source": result.url or search, "quote": result.snippet or result.title, "title": result.title}
    known: dict[str, Any] = {name: value for name, value in {**metadata, "date": result.date}.items() if value}
    id_ = f"{result.url}#snippet" if result.url else f"search:{digest}"
    return Document(text, id=id_, metadata={**known, "score": _SNIPPET_SCORE / rank})


class WebRanker:
    """Ranks search results and passages against a query. The encoder is loaded on first use, and may fail then."""

    def __init__(self, encoder: Encoder | Embeddings | str | None = None) -> None:
        self._given = encoder

    @cached_property
    def _encoder(self) -> Encoder:
        # The sub-questions of a turn often lead to the same pages, so recently encoded texts are kept.
        return RecentEncoder(as_encoder(self._given), 4_000)

    def choose(self, results: Sequence[SearchResult], query: str, n: int) -> list[SearchResult]:
        """The n results whose title and snippet are most similar to the query, best first."""
        if len(results) <= n:
            return list(results)
        shown = [
            Document(result.snippet or result.title, id=str(i), metadata={"title": result.title})
            for i, result in enumerate(results)
        ]
        # As in the paper, a result is one document. A long result is searched in parts, whose ids are "{id}#{n}".
        found = HopfieldRetriever.from_documents(shown, encoder=self._encoder, k=_MOST_PARTS * len(results)).invoke(query)
        order = dict.fromkeys(int(str(document.id).split("#")[0]) for document in found)
        return [results[i] for i in order][:n]

    def passages(self, pages: Sequence[Page], query: str, k: int) -> list[Document]:
        """The best passages of pages, with `source`, `title` and `date`. Each page is a multi-vector document."""
        documents = {page.url: page.document for page in pages if page.text.strip()}
        if not documents:
            return []
        parts = split_documents(documents.values(), self._encoder)
        if len(parts) > _MOST_PASSAGES:
            scores = BM25Index(parts).scores([query])[0]
            parts = [parts[int(i)] for i in np.sort(np.argsort(-scores, kind="stable")[:_MOST_PASSAGES])]
        return HopfieldRetriever.from_documents(parts, encoder=self._encoder, k=k).invoke(query)
