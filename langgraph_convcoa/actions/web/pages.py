"""Extraction of a page's main text, without hidden characters and without sentences that instruct a model."""

from __future__ import annotations

import io
import re
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

from langgraph_convcoa.actions.web.fetch import PAGE_TYPES, FetchLimits, PageError, RawPage
from langgraph_convcoa.errors import DocumentError
from langgraph_convcoa.retrieval.documents.formats import read_pdf
from langgraph_convcoa.retrieval.documents.markup import decode_page, main_text
from langgraph_convcoa.text.clean import flat
from langgraph_convcoa.text.words import sentences

_MAX_HTML = 1_500_000
_MIN_YEAR = 1990
_TITLE_CHARACTERS = 300
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
