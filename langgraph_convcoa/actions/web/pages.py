"""Text of web pages, without hidden characters and instructions to a model. Workers extract it, and a cache keeps it."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import logging
import re
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from cachetools import LRUCache
from langchain_core.documents import Document

from langgraph_convcoa.actions.web.fetch import PAGE_TYPES, Fetcher, PageError
from langgraph_convcoa.errors import ConvCoAError, DocumentError, RetrievalError
from langgraph_convcoa.files import prepare_sqlite, private_file, private_folder, sqlite_connection
from langgraph_convcoa.retrieval.documents.formats import read_pdf
from langgraph_convcoa.retrieval.documents.markup import decode_page, load_extractor, main_text
from langgraph_convcoa.retrieval.documents.worker import LimitError, Workers
from langgraph_convcoa.text.clean import flat
from langgraph_convcoa.text.words import sentences

_log = logging.getLogger(__name__)
_MAX_HTML = 1_500_000
_TITLE_CHARACTERS = 300
_FAILURE_SECONDS = 60.0
_READERS = 2
_APPLICATION_ID = 0x434F5745
_SCHEMA = ("CREATE TABLE entries (key TEXT PRIMARY KEY, expires REAL, value TEXT)",)
_IN_MEMORY = 20_000_000  # Maximum number of characters of all entries in memory.
_OF_AN_ENTRY = 200
_ON_DISK = 20_000
_PRUNE_EVERY = 200
_TIMEOUT = 5.0
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
            # "AI models must report energy use" is not matched, because it is a fact.
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
_FOLLOWING = 2  # This many sentences after an instruction are left out too: they often say what a model should repeat.
_LONGEST = 20_000


class Page(NamedTuple):
    """A page: its address after redirects, title, text, and date of publication (YYYY-MM-DD) or ""."""

    url: str
    title: str
    text: str
    date: str = ""

    @property
    def document(self) -> Document:
        metadata = {"source": self.url, "title": self.title, "date": self.date}
        return Document(self.text, id=self.url, metadata={name: value for name, value in metadata.items() if value})


class WebCache:
    """JSON values by key, each with its own expiry, in memory or in a file; threads and processes may share it.

    Raises RetrievalError if the file cannot be made or is another kind of file. If it cannot be read or written later, a
    warning is logged and the page is fetched.
    """

    def __init__(self, path: str | Path | None = None, *, now: Callable[[], float] = time.time) -> None:
        self.path = None if path is None else Path(path)
        self._now = now
        self._lock = threading.Lock()
        self._memory: LRUCache[str, tuple[float, str]] = LRUCache(_IN_MEMORY, lambda entry: len(entry[1]) + _OF_AN_ENTRY)
        self._writes = 0
        if path is None:
            return
        try:
            private_folder(Path(path).parent)
            private_file(path)
            with sqlite_connection(path, timeout=_TIMEOUT) as connection:
                application, _ = prepare_sqlite(connection, _APPLICATION_ID, 0, _SCHEMA)
        except OSError as error:
            raise RetrievalError(f"The web cache {path} cannot be made: {error.strerror}.") from error
        except sqlite3.Error as error:
            raise RetrievalError(f"The web cache {path} cannot be used ({error}); delete it or name another file.") from error
        if application != _APPLICATION_ID:
            raise RetrievalError(f"{path} is an SQLite file but no web cache; name another file for the cache.")

    def get(self, key: str) -> Any | None:
        """The value of a key; None if the key is unknown, or its value has expired or is damaged."""
        if self.path is None:
            with self._lock:
                expires, text = self._memory.get(key, (0.0, ""))
            return json.loads(text) if expires > self._now() else None
        try:
            with sqlite_connection(self.path, timeout=_TIMEOUT) as connection:
                row = connection.execute("SELECT expires, value FROM entries WHERE key = ?", (key,)).fetchone()
            if row is None:
                return None
            digest, _, text = row[1].partition("\n")
            sound = digest == _digest(key, float(row[0]), text) and row[0] > self._now()
            return json.loads(text) if sound else None
        except (sqlite3.Error, ValueError, TypeError, AttributeError, RecursionError) as error:
            _log.warning("The web cache %s cannot be read (%s); going on without it.", self.path, error)
            return None

    def put(self, key: str, value: Any, seconds: float) -> None:
        if seconds <= 0:
            return
        expires, text = self._now() + seconds, json.dumps(value)
        if self.path is None:
            # An entry larger than the whole memory is not kept.
            with self._lock, suppress(ValueError):
                self._memory[key] = expires, text
            return
        try:
            with sqlite_connection(self.path, timeout=_TIMEOUT) as connection:
                values = (key, expires, f"{_digest(key, expires, text)}\n{text}")
                connection.execute("INSERT OR REPLACE INTO entries (key, expires, value) VALUES (?, ?, ?)", values)
                if self._writes % _PRUNE_EVERY == 0:
                    connection.execute("DELETE FROM entries WHERE expires <= ?", (self._now(),))
                    newest = "SELECT key FROM entries ORDER BY expires DESC LIMIT -1 OFFSET ?"
                    connection.execute(f"DELETE FROM entries WHERE key IN ({newest})", (_ON_DISK,))  # noqa: S608 - constant
            self._writes += 1
        except sqlite3.Error as error:
            _log.warning("The web cache %s cannot be written (%s); going on without it.", self.path, error)


def _digest(key: str, expires: float, value: str) -> str:
    return hashlib.sha256(f"{key}\n{expires!r}\n{value}".encode("utf-8", "replace")).hexdigest()


class PageReader:
    """Reads pages and keeps them in `cache` for `kept` seconds. A worker is killed after `extraction` seconds."""

    def __init__(self, fetcher: Fetcher, cache: str | Path | None, *, kept: float, extraction: float) -> None:
        self.fetcher = fetcher
        self.workers = Workers(_READERS, prepare=load_extractor)
        self._cache, self._kept, self._extraction = WebCache(cache), kept, extraction

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
            asked = (*raw, limits.characters, limits.pdf_pages)
            async with self.fetcher.places("text", _READERS), asyncio.timeout(limits.seconds):
                seconds = min(limits.seconds, self._extraction)
                page: dict[str, str] = await asyncio.to_thread(self.workers.call, read_page, *asked, seconds=seconds)
                return page
        except LimitError as error:
            return {"error": f"the page {error}"}
        except TimeoutError:
            return {"error": f"reading the text took longer than {limits.seconds:g} s"}
        except ConvCoAError as error:
            return {"error": str(error)}


def read_page(url: str, content_type: str, charset: str, body: bytes, characters: int, pdf_pages: int) -> dict[str, str]:
    """For workers: the fields of a `Page` from HTML, PDF or plain text. Raises PageError for other types or no text.

    Sentences that give instructions to a model, and hidden text, are left out.
    """
    title = published = ""
    if body[:1_024].lstrip().startswith(b"%PDF-"):
        try:
            pages = list(read_pdf(io.BytesIO(body), characters, pdf_pages))
        except DocumentError as error:
            raise PageError(f"the page {str(error).partition(':')[0]}") from error
        text, title, published = "\n\n".join(page.text for page in pages), pages[0].title, pages[0].date
    elif "pdf" in content_type or content_type == "application/octet-stream":
        raise PageError("the page is no readable PDF")
    elif content_type not in PAGE_TYPES:
        raise PageError(f"pages of the type {content_type[:60]} are not read")
    else:
        plain = content_type in ("text/plain", "text/markdown")
        text = decode_page(body if plain else body[:_MAX_HTML], charset)
        if "\x00" in text[:4_096]:
            raise PageError("the page is not text")
        if not plain:
            text, title, published = main_text(text, url)
    text = without_instructions(visible(text[:characters]).strip())
    if not text.strip():
        raise PageError("the page holds no text")
    title = without_instructions(flat(visible(title))[:_TITLE_CHARACTERS])
    return Page(url, title, text, plausible_date(published))._asdict()


def plausible_date(value: Any) -> str:
    """A date as YYYY-MM-DD, or "" if it is invalid, from before the web, or in the future."""
    try:
        parsed = date.fromisoformat(str(value or "")[:10])
    except ValueError:
        return ""
    return parsed.isoformat() if parsed.year >= 1990 and parsed <= date.today() else ""


def visible(text: str) -> str:
    """Text without invisible characters: zero-width, direction, tag and control characters."""
    return _INVISIBLE.sub("", text.replace("\r\n", "\n").replace("\r", "\n")).replace("\xa0", " ")


def without_instructions(text: str) -> str:
    """Remove sentences that give instructions to a model in a usual form.

    Prompts mark foreign text. This is a second defence, for code that quotes sentences without a model.
    """
    lines = []
    for line in text.split("\n"):
        if not _INSTRUCTIONS.search(line[:_LONGEST]) and len(line) <= _LONGEST:
            lines.append(line)
            continue
        kept, drop = [], 0
        for sentence in sentences(line):
            if _INSTRUCTIONS.search(sentence.text):
                drop = 1 + _FOLLOWING
            if drop:
                drop -= 1
            else:
                kept.append(sentence.text)
        if kept:
            lines.append(" ".join(kept))
    return "\n".join(lines)
