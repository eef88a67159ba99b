"""Fetching of pages: checked addresses, redirects, limits, decompression within bounds, robots.txt (RFC 9309), retries."""

from __future__ import annotations

import asyncio
import functools
import threading
import weakref
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple
from urllib.robotparser import RobotFileParser

import httpx
from cachetools import TTLCache

from langgraph_convcoa.actions.web.url_guard import Guard, GuardedTransport
from langgraph_convcoa.errors import RetrievalError, check_least

USER_AGENT = "langgraph-convcoa/0.1 (question answering for a user)"
PAGE_TYPES = frozenset(
    {"", "text/html", "application/xhtml+xml", "text/plain", "text/markdown", "application/pdf", "application/x-pdf"}
)  # Media types that are read as pages.
_HEADERS = {
    "User-Agent": USER_AGENT,
    "Accept": "text/html,application/xhtml+xml,application/pdf;q=0.9,text/plain;q=0.8",
    "Accept-Encoding": "gzip",
    "Accept-Language": "en,*;q=0.5",
}
RETRIED = frozenset({429, 500, 502, 503, 504})  # Statuses after which asking again may help.
_FIRST_WAIT = 0.5
_UNSUSPECTED = 500_000
_MAX_RATIO = 100  # A body above 500 kB that is more than 100 times its compressed size is refused.


class PageError(RetrievalError):
    """A page cannot be read; the message says why."""


async def read_body(response: httpx.Response, max_bytes: int) -> bytes:
    """The decoded body, at most `max_bytes`. Raises PageError if it is larger or a decompression bomb."""
    declared = (response.headers.get("content-length") or "").strip()
    if declared.isdecimal() and int(declared) > max_bytes:
        raise _too_large(max_bytes)
    decoder = BodyDecoder(response.headers.get("content-encoding", ""), max_bytes)
    async for chunk in response.aiter_raw(65_536):
        decoder.feed(chunk)
    return bytes(decoder.body)


class BodyDecoder:
    """Decodes a body, plain or gzip, and stops at a limit. httpx would decode a whole chunk, however large it becomes.

    Raises PageError beyond `max_bytes`, before or after decoding, and for another `Content-Encoding`.
    """

    def __init__(self, encoding: str, max_bytes: int) -> None:
        encoding = encoding.strip().lower()
        if encoding not in ("", "identity", "gzip", "x-gzip"):
            raise PageError("the page is compressed in a way that was not asked for")
        self.body = bytearray()
        self._max_bytes, self._received = max_bytes, 0
        self._inflater = zlib.decompressobj(wbits=31) if "gzip" in encoding else None

    def feed(self, data: bytes) -> None:
        self._received += len(data)
        try:
            while data:
                if self._inflater is None:
                    self.body += data
                    data = b""
                else:
                    self.body += self._inflater.decompress(data, self._max_bytes - len(self.body) + 1)
                    if data := self._inflater.unused_data:
                        self._inflater = zlib.decompressobj(wbits=31)
                if max(len(self.body), self._received) > self._max_bytes:
                    raise _too_large(self._max_bytes)
        except zlib.error as error:
            raise PageError("the page's compression is damaged") from error
        if len(self.body) > max(_UNSUSPECTED, _MAX_RATIO * self._received):
            raise PageError(f"the page grows more than {_MAX_RATIO} times when it is decompressed")


def wait_before(attempt: int, response: httpx.Response | None = None) -> float:
    """Seconds before the next attempt: 0.5 after attempt 0, doubled after each, or more if the server asks for more."""
    own = _FIRST_WAIT * float(2**attempt)
    said = (response.headers.get("retry-after") or "").strip() if response is not None else ""
    return max(own, float(said[:9])) if said.isdecimal() else own


def _too_large(max_bytes: int) -> PageError:
    return PageError(f"the page is larger than {max_bytes / 1e6:g} MB")


@dataclass(frozen=True)
class FetchLimits:
    """Limits of time, size and requests for reading pages."""

    # Limit for one page with its redirects and retries. Extracting its text may take as long again (web action: at most 5 s).
    seconds: float = 6.0
    total_seconds: float = 12.0  # Limit for all pages of a look-up. Pages that are not read in time are left out.
    max_bytes: int = 5_000_000  # Maximum size of a body, compressed and decompressed.
    redirects: int = 5  # Maximum number of redirects of a page.
    retries: int = 2  # Maximum number of retries after a lost connection or the statuses 429, 500, 502, 503 and 504.
    per_host: int = 2  # Maximum number of requests to one host at a time.
    pdf_pages: int = 50  # Maximum number of pages of a PDF that are read.
    characters: int = 200_000  # Maximum number of characters of a page's text that are kept.

    def __post_init__(self) -> None:
        check_least(self, seconds=0.001, total_seconds=0.001, max_bytes=1, redirects=0)
        check_least(self, retries=0, per_host=1, pdf_pages=1, characters=1)


class RawPage(NamedTuple):
    """A page as it was sent: its address after redirects, the type and character set that the server names, and its bytes."""

    url: str
    content_type: str
    charset: str
    body: bytes


class Fetcher:
    """Fetches pages; may be used from several event loops."""

    def __init__(
        self,
        guard: Guard,
        limits: FetchLimits | None = None,
        *,
        respect_robots: bool = True,
        types: frozenset[str] = PAGE_TYPES,
    ) -> None:
        self.guard, self.limits, self._types = guard, limits or FetchLimits(), types
        # A page that was read under one setting must not come from the cache under another setting.
        self.settings = f"{guard.allow_private} {respect_robots} {self.limits}"
        self._respect_robots = respect_robots
        self._robots: TTLCache[str, RobotFileParser] = TTLCache(maxsize=1_000, ttl=3_600.0)
        self._robots_lock = threading.Lock()
        self._ssl_context = _ssl_context()
        self._slots: weakref.WeakValueDictionary[tuple[int, str], asyncio.Semaphore] = weakref.WeakValueDictionary()

    def client(self) -> httpx.AsyncClient:
        """A client for the pages of one look-up, on the current event loop."""
        transport, timeout = GuardedTransport(self.guard, self._ssl_context), self.limits.seconds
        # With trust_env, a proxy of the environment would take the place of the guarded transport.
        return httpx.AsyncClient(transport=transport, headers=_HEADERS, timeout=timeout, trust_env=False)

    async def fetch(self, client: httpx.AsyncClient, url: str) -> RawPage:
        """A page. Raises PageError if it cannot be read within the limits, BlockedURLError if it is not allowed."""
        try:
            async with asyncio.timeout(self.limits.seconds) as clock:
                place = self.guard.check_url(url)
                for _ in range(self.limits.redirects + 1):
                    if not await self._allowed(client, place, clock):
                        raise PageError("the site's robots.txt asks not to read the page")
                    answer = await self._ask(client, place, clock)
                    if isinstance(answer, RawPage):
                        return answer
                    place = answer
                raise PageError(f"the page redirects more than {self.limits.redirects} times")
        except TimeoutError as error:
            raise PageError(f"the page took longer than {self.limits.seconds:g} s") from error
        except (httpx.InvalidURL, ValueError) as error:
            # httpx raises these errors for a Location such as data: or a broken name.
            raise PageError("the page redirects to what is no web address") from error
        except httpx.TransportError as error:
            raise PageError(f"the connection failed ({type(error).__name__})") from error

    async def _allowed(self, client: httpx.AsyncClient, url: httpx.URL, clock: asyncio.Timeout) -> bool:
        if not self._respect_robots:
            return True
        place = url.copy_with(raw_path=b"/robots.txt", fragment=None)
        # The first page of a site reads its robots.txt, and the other pages wait.
        async with _paused(clock, self.places(f"robots {place}", 1)):
            with self._robots_lock:
                rules = self._robots.get(str(place))
            if rules is None:
                rules = await self._rules(client, place)
                with self._robots_lock:
                    self._robots[str(place)] = rules
        return rules.can_fetch(USER_AGENT, str(url))

    async def _ask(self, client: httpx.AsyncClient, url: httpx.URL, clock: asyncio.Timeout) -> RawPage | httpx.URL:
        """The page, or the address that it has moved to. A request that may succeed later is repeated."""
        for attempt in range(self.limits.retries + 1):
            wait, last = wait_before(attempt), attempt == self.limits.retries
            try:
                async with _paused(clock, self.places(url.host, self.limits.per_host)), client.stream("GET", url) as response:
                    wait = wait_before(attempt, response)
                    if last or wait > self.limits.seconds or response.status_code not in RETRIED:
                        return await self._page(response)
            except httpx.TransportError:
                if last or wait > self.limits.seconds:
                    raise
            await asyncio.sleep(wait)
        raise AssertionError

    async def _page(self, response: httpx.Response) -> RawPage | httpx.URL:
        if response.has_redirect_location:
            return self._target(response)
        if response.status_code != 200:
            raise PageError(f"the site answered with status {response.status_code}")
        kind = response.headers.get("content-type", "").split(";")[0].strip().lower()
        named_pdf = kind == "application/octet-stream" and response.url.path.lower().endswith(".pdf")
        if kind not in self._types and not named_pdf:
            raise PageError(f"pages of the type {kind[:60]} are not read")
        body = await read_body(response, self.limits.max_bytes)
        return RawPage(str(response.url), kind, response.charset_encoding or "", body)

    def _target(self, response: httpx.Response) -> httpx.URL:
        return self.guard.check_url(response.url.join(response.headers["location"]))

    async def _rules(self, client: httpx.AsyncClient, url: httpx.URL) -> RobotFileParser:
        """The rules of a robots.txt, which may be redirected. Without a file, everything is allowed."""
        rules, lines = RobotFileParser(str(url)), list[str]()
        # If robots.txt cannot be reached, nothing is allowed: RFC 9309, section 2.3.1.4.
        closed = ["User-agent: *", "Disallow: /"]
        try:
            async with asyncio.timeout(self.limits.seconds / 2):
                for _ in range(self.limits.redirects + 1):
                    async with client.stream("GET", url) as response:
                        if response.status_code == 200:
                            lines = (await read_body(response, max_bytes=500_000)).decode("utf-8-sig", "replace").splitlines()
                        elif response.status_code >= 500 or response.status_code == 429:
                            lines = closed
                        if not response.has_redirect_location:
                            break
                        url = self._target(response)
        except (httpx.TransportError, httpx.InvalidURL, ValueError, PageError, TimeoutError):
            lines = closed
        rules.parse(lines)
        return rules

    def places(self, key: str, count: int) -> asyncio.Semaphore:
        """The semaphore of a key on this event loop."""
        here = (id(asyncio.get_running_loop()), key)
        return self._slots.get(here) or self._slots.setdefault(here, asyncio.Semaphore(count))


@asynccontextmanager
async def _paused(clock: asyncio.Timeout, places: asyncio.Semaphore) -> AsyncIterator[None]:
    """Hold a place of the semaphore. Waiting for the place does not count as the page's time."""
    loop = asyncio.get_running_loop()
    left = (clock.when() or loop.time()) - loop.time()
    clock.reschedule(None)
    async with places:
        clock.reschedule(loop.time() + left)
        yield


# Reading the certificates of the system or of certifi takes a while, so it is done once.
_ssl_context = functools.cache(httpx.create_ssl_context)
