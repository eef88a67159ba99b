"""Fetching of pages over the network: checked addresses, redirects, limits, robots.txt (RFC 9309), retries."""

from __future__ import annotations

import asyncio
import functools
import ssl
import threading
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.robotparser import RobotFileParser

import httpx
from cachetools import TTLCache

from langgraph_convcoa.actions.web.body import RETRIED, PageError, read_body, wait_before
from langgraph_convcoa.actions.web.url_guard import Guard, GuardedTransport
from langgraph_convcoa.errors import InputError

USER_AGENT = "langgraph-convcoa/0.1 (question answering for a user)"
_TYPES = frozenset(
    {"", "text/html", "application/xhtml+xml", "text/plain", "text/markdown", "application/pdf", "application/x-pdf"}
)
_HEADERS = {
    "Accept": "text/html,application/xhtml+xml,application/pdf;q=0.9,text/plain;q=0.8",
    "Accept-Encoding": "gzip, deflate",
    "Accept-Language": "en,*;q=0.5",
}
_ROBOTS_BYTES = 500_000
_ROBOTS_SECONDS = 3_600.0
_ROBOTS_SITES = 1_000


@dataclass(frozen=True)
class FetchLimits:
    """Limits of time, size and requests for reading pages.

    Attributes:
        seconds: For one page: its redirects, retries and body; as many again to extract its text.
        total_seconds: For all pages of a look-up; those that are not read by then are left out.
        max_bytes: Of a body, compressed or not.
        redirects: That are followed.
        retries: After a lost connection or the statuses 429, 500, 502, 503 and 504.
        per_host: Requests to one host at a time.
        pdf_pages: Pages of a PDF that are read.
        characters: Of a page's text that are kept.

    Raises:
        InputError: One of them is out of range.
    """

    seconds: float = 6.0
    total_seconds: float = 12.0
    max_bytes: int = 5_000_000
    redirects: int = 5
    retries: int = 2
    per_host: int = 2
    pdf_pages: int = 50
    characters: int = 200_000

    def __post_init__(self) -> None:
        for name in ("seconds", "total_seconds", "max_bytes", "per_host", "pdf_pages", "characters"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} of FetchLimits must be above 0, not {getattr(self, name)}")
        if self.redirects < 0 or self.retries < 0:
            raise InputError("redirects and retries of FetchLimits must be at least 0")


@dataclass(frozen=True)
class RawPage:
    """A page as it was sent: its address after redirects, its type and character set as the server says, its bytes."""

    url: str
    content_type: str
    charset: str
    body: bytes


class Fetcher:
    """Fetches pages; may be used from several event loops.

    Args:
        guard: Which addresses are allowed.
        limits: Of time, size and requests.
        user_agent: Sent to sites with each request.
        respect_robots: Leave out what a site's robots.txt forbids.
    """

    def __init__(
        self,
        guard: Guard,
        limits: FetchLimits | None = None,
        *,
        user_agent: str = USER_AGENT,
        respect_robots: bool = True,
    ) -> None:
        self.guard = guard
        self.limits = limits or FetchLimits()
        self._user_agent = user_agent
        self._respect_robots = respect_robots
        self._robots: TTLCache[str, RobotFileParser] = TTLCache(_ROBOTS_SITES, _ROBOTS_SECONDS)
        self._robots_lock = threading.Lock()
        self._slots: weakref.WeakValueDictionary[tuple[int, str], asyncio.Semaphore] = weakref.WeakValueDictionary()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[httpx.AsyncClient]:
        """A client for the pages of one look-up, which belongs to the event loop of that look-up."""
        transport = GuardedTransport(self.guard, await asyncio.to_thread(_ssl_context))
        headers = {**_HEADERS, "User-Agent": self._user_agent}
        # With trust_env a proxy of the environment would take the place of the guarded transport.
        async with httpx.AsyncClient(
            transport=transport, headers=headers, timeout=self.limits.seconds, trust_env=False, follow_redirects=False
        ) as client:
            yield client

    async def fetch(self, client: httpx.AsyncClient, url: str) -> RawPage:
        """A page.

        Raises:
            PageError: It cannot be read within the limits.
            BlockedURLError: It, or an address that it redirects to, is not allowed.
        """
        try:
            async with asyncio.timeout(self.limits.seconds) as clock:
                return await self._follow(client, self.guard.check_url(url), clock)
        except TimeoutError as error:
            raise PageError(f"the page took longer than {self.limits.seconds:g} s") from error
        except httpx.TransportError as error:
            raise PageError(f"the connection failed ({type(error).__name__})") from error

    async def _follow(self, client: httpx.AsyncClient, url: httpx.URL, clock: asyncio.Timeout) -> RawPage:
        for _ in range(self.limits.redirects + 1):
            if not await self._allowed(client, url, clock):
                raise PageError("the site's robots.txt asks not to read the page")
            answer = await self._ask(client, url, clock)
            if isinstance(answer, RawPage):
                return answer
            url = answer
        raise PageError(f"the page redirects more than {self.limits.redirects} times")

    async def _allowed(self, client: httpx.AsyncClient, url: httpx.URL, clock: asyncio.Timeout) -> bool:
        if not self._respect_robots:
            return True
        place = url.copy_with(raw_path=b"/robots.txt", fragment=None)
        # One page of a site asks for the rules, the others wait for it.
        async with _paused(clock, self.places(f"robots {place}", 1)):
            with self._robots_lock:
                rules = self._robots.get(str(place))
            if rules is None:
                rules = await self._rules(client, place)
                with self._robots_lock:
                    self._robots[str(place)] = rules
        return rules.can_fetch(self._user_agent, str(url))

    async def _ask(self, client: httpx.AsyncClient, url: httpx.URL, clock: asyncio.Timeout) -> RawPage | httpx.URL:
        """The page, or the address that it has moved to; a request that may succeed later is repeated."""
        for attempt in range(self.limits.retries + 1):
            last = attempt == self.limits.retries
            try:
                async with _paused(clock, self.places(url.host, self.limits.per_host)), client.stream("GET", url) as response:
                    if last or response.status_code not in RETRIED:
                        return await self._page(response)
                    wait = wait_before(attempt, response)
                    failure = PageError(f"the site answered with status {response.status_code}")
            except httpx.TransportError as error:
                if last:
                    raise
                wait, failure = wait_before(attempt), PageError(f"the connection failed ({type(error).__name__})")
            if wait > self.limits.seconds:
                raise failure
            await asyncio.sleep(wait)
        raise AssertionError

    async def _page(self, response: httpx.Response) -> RawPage | httpx.URL:
        if response.status_code in (301, 302, 303, 307, 308) and "location" in response.headers:
            return self._target(response)
        if response.status_code != 200:
            raise PageError(f"the site answered with status {response.status_code}")
        kind = response.headers.get("content-type", "").split(";")[0].strip().lower()
        named_pdf = kind == "application/octet-stream" and response.url.path.lower().endswith(".pdf")
        if kind not in _TYPES and not named_pdf:
            raise PageError(f"pages of the type {kind[:60]} are not read")
        body = await read_body(response, self.limits.max_bytes)
        return RawPage(str(response.url), kind, response.charset_encoding or "", body)

    def _target(self, response: httpx.Response) -> httpx.URL:
        try:
            return self.guard.check_url(response.url.join(response.headers["location"]))
        except (httpx.InvalidURL, ValueError) as error:
            raise PageError("the page redirects to what is no URL") from error

    async def _rules(self, client: httpx.AsyncClient, place: httpx.URL) -> RobotFileParser:
        rules = RobotFileParser(str(place))
        try:
            status, body = await self._robots_txt(client, place)
        except (httpx.TransportError, PageError, TimeoutError):
            status, body = 503, b""
        if status >= 500 or status == 429:
            # A site whose rules cannot be asked for allows nothing: RFC 9309, section 2.3.1.4.
            rules.parse(["User-agent: *", "Disallow: /"])
        else:
            rules.parse(body.decode("utf-8-sig", "replace").splitlines())
        return rules

    async def _robots_txt(self, client: httpx.AsyncClient, url: httpx.URL) -> tuple[int, bytes]:
        """Status and body of robots.txt, which may be redirected; the body is empty unless the status is 200."""
        async with asyncio.timeout(self.limits.seconds / 2):
            for _ in range(self.limits.redirects + 1):
                async with client.stream("GET", url) as response:
                    if not response.has_redirect_location:
                        found = response.status_code == 200
                        return response.status_code, await read_body(response, _ROBOTS_BYTES) if found else b""
                    url = self._target(response)
        return 404, b""

    def places(self, key: str, count: int) -> asyncio.Semaphore:
        """A semaphore with so many places, of this event loop."""
        here = (id(asyncio.get_running_loop()), key)
        places = self._slots.get(here)
        if places is None:
            places = self._slots[here] = asyncio.Semaphore(count)
        return places


@asynccontextmanager
async def _paused(clock: asyncio.Timeout, places: asyncio.Semaphore) -> AsyncIterator[None]:
    """Hold a place; the wait for it does not count as the page's time, so slow pages of a site cost its others nothing."""
    loop = asyncio.get_running_loop()
    left = (clock.when() or loop.time()) - loop.time()
    clock.reschedule(None)
    async with places:
        clock.reschedule(loop.time() + left)
        yield


@functools.cache
def _ssl_context() -> ssl.SSLContext:
    # Reads the certificates of the system or of certifi, which takes a while.
    return httpx.create_ssl_context()
