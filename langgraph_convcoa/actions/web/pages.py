"""Pages as text: fetched, extracted in worker processes, kept in a cache.

The text is a page's main text, without hidden characters and without sentences that instruct a model.
"""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

import httpx
from langchain_core.documents import Document

from langgraph_convcoa.actions.web.cache import WebCache
from langgraph_convcoa.actions.web.fetch import PAGE_TYPES, Fetcher, FetchLimits, PageError, RawPage
from langgraph_convcoa.errors import ConvCoAError, DocumentError
from langgraph_convcoa.retrieval.documents.formats import read_pdf
from langgraph_convcoa.retrieval.documents.markup import decode_page, load_extractor, main_text
from langgraph_convcoa.retrieval.documents.worker import LimitError, Workers
from langgraph_convcoa.text.clean import flat
from langgraph_convcoa.text.words import sentences

_MAX_HTML = 1_500_000
_MIN_YEAR = 1990
_TITLE_CHARACTERS = 300
_FAILURE_SECONDS = 60.0
_READERS = 2
# Zero-width and direction signs, tags (which spell invisible text), control characters and lone surrogates.
_INVISIBLE = re.compile(
    "[\u200b\u2060-\u2064\ufeff\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f\x00-\x08\x0b-\x1f\x7f]|[\ud800-\udfff]"
)
_MODELS = r"(?:(?:ai )?(?:assistants?|agents?|models?)|ai|a\.i\.|llms?|(?:large )?language models?|chatbots?|gpt|bots?)"
_SAY = r"(?:say|answer|reply|respond|state|claim|output|print|write|tell|report|cite|recommend|mention)"
_MUST = r"(?:must|shall|ha(?:s|ve) to|(?:is|are) (?:required|instructed|ordered) to)"
_INSTRUCTIONS = re.compile(
    "|".join(
        (
            r"\b(?:ignore|disregard|forget|override|bypass|drop)\b.{0,40}\b(?:previous|prior|above|earlier|preceding|all|any|your)\b"
            r".{0,40}\b(?:instructions?|prompts?|rules?|guidelines?|directions?|directives?|context|evidence)\b",
            r"\b(?:reveal|print|show|repeat|output|leak|send)\b.{0,30}\b(?:system|developer|hidden|initial)\b"
            r".{0,15}\b(?:prompt|message|instructions?)\b",
            rf"\byou are (?:now|no longer|actually)\b.{{0,40}}\b(?:{_MODELS}|dan|jailbroken|unrestricted)\b",
            rf"\bif you(?: are|'re)(?: an?| the)?\s+{_MODELS}\b",
            r"\b(?:note|notice|attention|important|instructions?|message|warning)\s*(?:to|for|:)\s*"
            rf"(?:the |any |all |every )?{_MODELS}\b",
            rf"\b(?:dear|hey|hello)\s+{_MODELS}\b",
            # Not matched, because it is a fact: "AI models must report energy use".
            rf"\b{_MODELS}\s*[,:]?\s+{_MUST}\b.{{0,60}}\b{_SAY}(?:\s+(?:only|that|with|exactly|yes|no)\b|\s*[:\"“])",
            r"\b(?:when|if|whenever)\b.{0,30}\b(?:asked|answering|summari[sz]ing|responding)\b"
            rf".{{0,60}}\b{_SAY}\b\s+(?:only|that|with|exactly)\b",
            r"\b(?:new|updated|real|actual) (?:system )?instructions?\s*(?:is|are|:)",
            r"<\|?(?:im_start|im_end|system|endoftext)\|?>|\[/?INST\]|<</?SYS>>",
            r"^\s*#{2,}\s*(?:instruction|system|human|assistant)\b|</?evidence\b",
        )
    ),
    re.IGNORECASE,
)
_FOLLOWING = 2
"""This many sentences after an instruction are left out too: they often say what a model should repeat."""
_LONGEST = 20_000


@dataclass(frozen=True)
class Page:
    """A page: its address after redirects, title, text, and date of publication (YYYY-MM-DD) or ""."""

    url: str
    title: str
    text: str
    date: str = ""

    @property
    def document(self) -> Document:
        metadata = {"source": self.url, "title": self.title, "date": self.date}
        return Document(self.text, id=self.url, metadata={name: value for name, value in metadata.items() if value})


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


def page_data(url: str, content_type: str, charset: str, body: bytes, characters: int, pdf_pages: int) -> dict[str, str]:
    """`read_page` with JSON values, for a worker."""
    return asdict(read_page(RawPage(url, content_type, charset, body), characters, pdf_pages))


def read_page(raw: RawPage, characters: int = FetchLimits.characters, pdf_pages: int = FetchLimits.pdf_pages) -> Page:
    """The text of a page (HTML, PDF or plain text). Raises PageError if there is none, or its type is wrong.

    Sentences that give instructions to a model, and hidden text, are left out.
    """
    title = published = ""
    if raw.body[:1_024].lstrip().startswith(b"%PDF-"):
        try:
            pages = list(read_pdf(io.BytesIO(raw.body), characters, pdf_pages))
        except DocumentError as error:
            raise PageError(f"the page {str(error).partition(':')[0]}") from error
        text, title, published = "\n\n".join(page.text for page in pages), pages[0].title, pages[0].date
    elif "pdf" in raw.content_type or raw.content_type == "application/octet-stream":
        raise PageError("the page is no readable PDF")
    elif raw.content_type not in PAGE_TYPES:
        raise PageError(f"pages of the type {raw.content_type[:60]} are not read")
    else:
        plain = raw.content_type in ("text/plain", "text/markdown")
        text = decode_page(raw.body if plain else raw.body[:_MAX_HTML], raw.charset)
        if "\x00" in text[:4_096]:
            raise PageError("the page is not text")
        if not plain:
            text, title, published = main_text(text, raw.url)
    text, _ = without_instructions(visible(text[:characters]).strip())
    if not text.strip():
        raise PageError("the page holds no text")
    title, _ = without_instructions(flat(visible(title))[:_TITLE_CHARACTERS])
    return Page(raw.url, title, text, plausible_date(published))


def plausible_date(value: Any) -> str:
    """A date as YYYY-MM-DD, or "" if it is invalid, from before the web, or in the future."""
    try:
        parsed = date.fromisoformat(str(value or "")[:10])
    except ValueError:
        return ""
    return parsed.isoformat() if parsed.year >= _MIN_YEAR and parsed <= date.today() else ""


def visible(text: str) -> str:
    """Text without invisible characters: zero-width, direction, tag and control characters."""
    return _INVISIBLE.sub("", text.replace("\r\n", "\n").replace("\r", "\n")).replace("\xa0", " ")


def without_instructions(text: str) -> tuple[str, int]:
    """The text without sentences that give instructions to a model, and the number of these sentences.

    A second defence beside the marks of foreign text in prompts, for code that quotes sentences without
    a model. It knows the usual forms only.
    """
    found = 0
    lines = []
    for line in text.split("\n"):
        if not _INSTRUCTIONS.search(line[:_LONGEST]) and len(line) <= _LONGEST:
            lines.append(line)
            continue
        kept, drop = [], 0
        for sentence in sentences(line):
            if _INSTRUCTIONS.search(sentence.text):
                found += 1
                drop = 1 + _FOLLOWING
            if drop:
                drop -= 1
            else:
                kept.append(sentence.text)
        if kept:
            lines.append(" ".join(kept))
    return "\n".join(lines), found
