"""Web pages as documents: the page of an address, or the pages that a site's sitemap lists."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from langchain_core.documents import Document

from langgraph_convcoa.actions.web.fetch import PAGE_TYPES, BodyDecoder, Fetcher, FetchLimits, RawPage
from langgraph_convcoa.actions.web.pages import Page, PageReader
from langgraph_convcoa.actions.web.search import check_packages
from langgraph_convcoa.actions.web.url_guard import Guard
from langgraph_convcoa.errors import DocumentError, InputError, RetrievalError, redact
from langgraph_convcoa.retrieval.documents.load import MAX_BYTES, Skipped, Told
from langgraph_convcoa.retrieval.documents.markup import decode_page
from langgraph_convcoa.retrieval.progress import Progress, track

MOST_PAGES = 500  # The default limit of the pages of a site.
LIMITS = FetchLimits(seconds=30.0, max_bytes=20_000_000, pdf_pages=1_000, characters=2_000_000)
"""Limits for a page, higher than in a conversation. Two requests to a host may run at a time, as in a conversation."""

_MOST_SITEMAPS, _AT_ONCE = 50, 16
_EXTRACTION_SECONDS, _CACHE_SECONDS = 20.0, 86_400.0
_TYPES = PAGE_TYPES | {"application/xml", "text/xml", "application/gzip", "application/x-gzip", "application/octet-stream"}
# No XML parser is used, because it would follow the declarations in the file.
_LOCATION = re.compile(r"<loc>([^<]{1,2200})</loc>|<loc>\s{0,20}<!\[CDATA\[([^\]]{1,2200})\]")
_SITEMAP = re.compile(r"<(urlset|sitemapindex)[\s>]")


def iter_pages(
    address: str,
    *,
    most: int = MOST_PAGES,
    max_bytes: int = MAX_BYTES,
    cache: str | Path | None = None,
    guard: Guard | None = None,
    progress: Progress = False,
    told: Told | None = None,
) -> Iterator[Document]:
    """The documents of a page, or of all pages that a sitemap lists; `id` and `source` are the page's address.

    Pages are read as in the web action. For a sitemap (`https://site/sitemap.xml`, also gzipped, or a list of sitemaps) only
    pages of its own host are read, two at a time. A page that cannot be read, or that robots.txt asks not to read, is skipped.
    Do not call this in an event loop.

    Args:
        address: The address of a page or a sitemap.
        most: Maximum number of pages that are read from a sitemap.
        max_bytes: Limit of the text of all pages.
        cache: A file that keeps pages for a day, so that a stopped run can be resumed; None for no file.
        guard: Decides which addresses may be read; by default, public addresses.
        progress: A bar, a callback or nothing; it counts pages.
        told: Called with the address and the reason of each page that is skipped; by default these are logged.

    Raises:
        DocumentError: The address cannot be read, no page can be read, or there is more text than `max_bytes`.
        InputError: A package is missing (extra `web`).
        RetrievalError: The cache cannot be made.
    """
    if most < 1:
        raise InputError(f"there must be at least 1 page, not {most}")
    check_packages()
    fetcher = Fetcher(guard or Guard(), LIMITS, types=_TYPES)
    skipped, size, read = Skipped(told), 0, set[str]()
    reader = PageReader(fetcher, cache, kept=_CACHE_SECONDS, extraction=_EXTRACTION_SECONDS)
    with asyncio.Runner() as runner, reader.workers:
        site = _Site(reader, skipped)
        addresses = runner.run(site.addresses(address, most))
        with track(progress, len(addresses), "Reading") as advance:
            for first in range(0, len(addresses), _AT_ONCE):
                batch = addresses[first : first + _AT_ONCE]
                for asked, page in zip(batch, runner.run(site.pages(batch)), strict=True):
                    advance(1)
                    elsewhere = bool(site.hosts) and "url" in page and _host(page["url"]) not in site.hosts
                    if elsewhere or "error" in page:
                        site.skip(asked, page.get("error", "leads to another site"))
                        continue
                    if page["url"] in read:
                        continue
                    read.add(page["url"])
                    size += len(page["text"].encode("utf-8", "replace"))
                    if size > max_bytes:
                        raise DocumentError(
                            f"{redact(address)} holds more than {max_bytes / 1e6:g} MB of text: read fewer pages, or raise "
                            "the limit (--max-mb on the command line, max_bytes in Python)"
                        )
                    yield Page(**page).document
    skipped.end(len(addresses))
    if not read:
        raise DocumentError(f"no page of {redact(address)} could be read (first reason: {skipped.first or 'it lists none'})")


@dataclass
class _Site:
    """The pages of a site; `hosts` are the hosts of its sitemap, empty until a sitemap was read."""

    reader: PageReader
    skipped: Skipped
    hosts: set[tuple[str, int | None]] = field(default_factory=set)

    def skip(self, address: str, reason: str) -> None:
        """Skip an address that a sitemap lists. Raises DocumentError for the address that the user gave."""
        if not self.hosts:
            raise DocumentError(f"{redact(address)} cannot be read: {redact(reason)}")
        self.skipped(redact(address), redact(reason))

    async def addresses(self, address: str, most: int) -> list[str]:
        """The addresses to read: the given address, or those that it lists if it is a sitemap."""
        if not re.search(r"\.xml(\.gz)?$", address.partition("?")[0].partition("#")[0].lower()):
            return [address]
        found: dict[str, None] = {}
        left, known, read, foreign = [address], {address}, 0, 0
        fetcher = self.reader.fetcher
        async with fetcher.client() as client:
            while left and read < _MOST_SITEMAPS and len(found) <= most:
                place = left.pop(0)
                read += 1
                try:
                    raw = await fetcher.fetch(client, place)
                    text = _unpacked(raw, fetcher.limits.max_bytes)
                except RetrievalError as error:
                    self.skip(place, str(error))
                    continue
                if (kind := _SITEMAP.search(text)) is None:
                    self.skip(place, "it is no sitemap; give the address of a page, or of a sitemap")
                    continue
                self.hosts = self.hosts or {_host(place), _host(raw.url)}
                own = [(html.unescape(one) or plain).strip() for one, plain in _LOCATION.findall(text)]
                inside = [one for one in own if _host(one) in self.hosts]
                foreign += len(own) - len(inside)
                if kind[1] == "sitemapindex":
                    fresh = [one for one in dict.fromkeys(inside) if one not in known]
                    known.update(fresh)
                    left += fresh
                else:
                    found |= dict.fromkeys(inside)
        if foreign:
            self.skipped.part(redact(address), f"lists {foreign} addresses of other hosts, which are not read")
        if len(found) > most or left:
            self.skipped.part(
                redact(address), f"lists more than {most} pages: the first {most} are read (--max-pages reads more)"
            )
        return list(found)[:most]

    async def pages(self, addresses: Sequence[str]) -> list[dict[str, str]]:
        """The text of each page, or its `error`."""
        async with self.reader.fetcher.client() as client:
            return await asyncio.gather(*(self.reader.read(client, address) for address in addresses))


def _host(address: str) -> tuple[str, int | None]:
    """The host and port of a web address; "" and None for anything else."""
    with suppress(httpx.InvalidURL, TypeError, ValueError):
        url = httpx.URL(address)
        if url.scheme in ("http", "https"):
            return url.host.lower().removesuffix("."), url.port
    return "", None


def _unpacked(raw: RawPage, max_bytes: int) -> str:
    body = raw.body
    if body.startswith(b"\x1f\x8b"):
        decoder = BodyDecoder("gzip", max_bytes)
        decoder.feed(body)
        body = bytes(decoder.body)
    return decode_page(body, raw.charset)
