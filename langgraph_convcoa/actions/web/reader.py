"""Reads pages: fetches them, extracts their text in worker processes, and keeps the text in a cache."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx

from langgraph_convcoa.actions.web.cache import WebCache
from langgraph_convcoa.actions.web.fetch import Fetcher
from langgraph_convcoa.actions.web.pages import page_data
from langgraph_convcoa.errors import ConvCoAError
from langgraph_convcoa.retrieval.documents.markup import load_extractor
from langgraph_convcoa.retrieval.documents.worker import LimitError, Workers

_FAILURE_SECONDS = 60.0
_READERS = 2


class PageReader:
    """Reads pages and keeps them for `kept` seconds; a worker that extracts for more than `extraction` seconds is killed."""

    def __init__(self, fetcher: Fetcher, cache: WebCache, *, kept: float, extraction: float) -> None:
        self.fetcher = fetcher
        self.workers = Workers(_READERS, prepare=load_extractor)
        self._cache, self._kept, self._extraction = cache, kept, extraction

    async def start(self) -> None:
        """Start the worker processes."""
        await asyncio.gather(*(asyncio.to_thread(self.workers.start) for _ in range(_READERS)))

    async def read(self, client: httpx.AsyncClient, url: str) -> dict[str, str]:
        """The fields of a `Page`, or an `error`."""
        return dict(await self.once(f"page {self.fetcher.settings}\n{url}", lambda: self._load(client, url), self._kept))

    async def once(self, key: str, work: Callable[[], Awaitable[Any]], seconds: float) -> Any:
        """The value of a key. It is computed once, even for concurrent callers; an `error` is kept for a minute."""
        async with self.fetcher.places(f"once {key}", 1):
            if (kept := await asyncio.to_thread(self._cache.get, key)) is not None:
                return kept
            value = await work()
            failed = isinstance(value, dict) and "error" in value
            await asyncio.to_thread(self._cache.put, key, value, min(seconds, _FAILURE_SECONDS) if failed else seconds)
            return value

    async def _load(self, client: httpx.AsyncClient, url: str) -> dict[str, str]:
        limits = self.fetcher.limits
        try:
            raw = await self.fetcher.fetch(client, url)
            asked = (raw.url, raw.content_type, raw.charset, raw.body, limits.characters, limits.pdf_pages)
            async with self.fetcher.places("text", _READERS), asyncio.timeout(limits.seconds):
                seconds = min(limits.seconds, self._extraction)
                page: dict[str, str] = await asyncio.to_thread(self.workers.call, page_data, *asked, seconds=seconds)
                return page
        except LimitError as error:
            return {"error": f"the page {error}"}
        except TimeoutError:
            return {"error": f"reading the text took longer than {limits.seconds:g} s"}
        except ConvCoAError as error:
            return {"error": str(error)}
