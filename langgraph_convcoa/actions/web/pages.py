"""From the bytes of a page to its text, title and publication date."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any

from langgraph_convcoa.actions.web.body import PageError
from langgraph_convcoa.actions.web.fetch import FetchLimits, RawPage
from langgraph_convcoa.actions.web.text import clean, decode_page, without_instructions
from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.documents.pieces import unwrap

_MAX_HTML = 1_500_000
_MAX_NODES = 12_000
"""Elements and attributes of a page that are looked at; the time to find the main text grows with their square."""
_HIDDEN = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0(?![.\d])|opacity\s*:\s*0(?![.\d])|text-indent\s*:\s*-\d{3}",
    re.IGNORECASE,
)
_BLOCKS = frozenset({"p", "li", "h1", "h2", "h3", "h4", "td", "th", "dd", "dt", "pre", "blockquote", "div", "section", "br"})
_NO_TEXT = frozenset({"script", "style", "noscript", "template", "head", "nav", "footer", "form", "svg", "iframe", "button"})
_UNSEEN = frozenset({"noscript", "template", "nav"})
_MIN_YEAR = 1990
_TITLE_CHARACTERS = 300


@dataclass(frozen=True)
class Page:
    """A page as it was read.

    Attributes:
        url: Where it was found, after redirects.
        title: Empty where it has none.
        text: Paragraphs, one a line or more.
        date: Of publication, as YYYY-MM-DD; empty where it is not known.
    """

    url: str
    title: str
    text: str
    date: str = ""


def read_page(raw: RawPage, limits: FetchLimits) -> Page:
    """The text of a page: HTML, PDF or plain text.

    Sentences that give instructions to a model are left out, as is what a visitor does not see.

    Raises:
        PageError: It holds no text, or is not what it says.

    Example:
        >>> raw = RawPage("https://example.org/a", "text/plain", "", b"Sparsemax was introduced in 2016.")
        >>> read_page(raw, FetchLimits()).text
        'Sparsemax was introduced in 2016.'
    """
    if raw.body[:1_024].lstrip().startswith(b"%PDF-"):
        title, text, published = _pdf(raw.body, limits)
    elif raw.content_type in ("text/plain", "text/markdown"):
        title, text, published = "", _decoded(raw, raw.body), ""
    elif "pdf" in raw.content_type or raw.content_type == "application/octet-stream":
        raise PageError("the page is no readable PDF")
    else:
        title, text, published = _html(_decoded(raw, raw.body[:_MAX_HTML]), raw.url)
    text, _ = without_instructions(clean(text[: limits.characters]).strip())
    if not text.strip():
        raise PageError("the page holds no text")
    title, _ = without_instructions(" ".join(clean(title).split())[:_TITLE_CHARACTERS])
    return Page(raw.url, title, text, published)


def load_extractor() -> Any:
    """Trafilatura's extraction; what reads pages takes seconds to import, which is no page's own time.

    Raises:
        RetrievalError: It is not installed.
    """
    try:
        import pypdf  # noqa: F401
        from trafilatura import bare_extraction
    except ImportError as error:
        raise RetrievalError(f'reading pages needs trafilatura ({error}): pip install "langgraph-convcoa[web]"') from error
    return bare_extraction


def plausible_date(value: Any) -> str:
    """A date as YYYY-MM-DD, or nothing where it is none, of before the web, or of the future.

    Example:
        >>> plausible_date("2021-05-12T08:00:00Z"), plausible_date("soon")
        ('2021-05-12', '')
    """
    try:
        parsed = date.fromisoformat(str(value or "")[:10])
    except ValueError:
        return ""
    return parsed.isoformat() if parsed.year >= _MIN_YEAR and parsed <= date.today() else ""


def _decoded(raw: RawPage, body: bytes) -> str:
    text = decode_page(body, raw.charset)
    if "\x00" in text[:4_096]:
        raise PageError("the page is not text")
    return text


def _html(text: str, url: str) -> tuple[str, str, str]:
    from lxml import etree, html

    bare_extraction = load_extractor()
    parser = html.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True)
    try:
        tree = html.document_fromstring(text.encode("utf-8", "replace"), parser=parser)
    except (etree.ParserError, etree.XMLSyntaxError) as error:
        raise PageError("the page holds no text") from error
    _prune(tree)
    found = bare_extraction(
        tree,
        url=url,
        with_metadata=True,
        include_comments=False,
        date_extraction_params={"original_date": True, "extensive_search": False, "max_date": date.today().isoformat()},
    )
    main = str(found.text or "") if found is not None else ""
    title = str(found.title or "") if found is not None else ""
    published = plausible_date(found.date) if found is not None else ""
    return title or str(tree.findtext(".//title") or ""), main or "\n".join(_paragraphs(tree)), published


def _prune(tree: Any) -> None:
    """Take out what is not seen, and what is beyond the number of nodes that are looked at."""
    hidden = []
    left = _MAX_NODES
    for element in tree.iter():
        left -= 1 + len(element.attrib)
        if left < 0:
            _cut_from(element)
            break
        style = element.get("style")
        if (
            element.tag in _UNSEEN
            or element.get("hidden") is not None
            or element.get("aria-hidden") == "true"
            or (style and _HIDDEN.search(style))
        ):
            hidden.append(element)
    for element in hidden:
        if element.getparent() is not None:
            element.drop_tree()


def _cut_from(element: Any) -> None:
    """Take an element and all that follows it out of its tree."""
    node = element
    while (parent := node.getparent()) is not None:
        for later in list(node.itersiblings()):
            parent.remove(later)
        node = parent
    if (parent := element.getparent()) is not None:
        parent.remove(element)


def _paragraphs(tree: Any) -> Iterator[str]:
    """All visible text, for pages in which no main text is found."""
    parts: list[str] = []
    skipped = None
    from lxml import etree

    for event, element in etree.iterwalk(tree, events=("start", "end")):
        tag = element.tag if isinstance(element.tag, str) else ""
        if skipped is None and event == "start":
            if tag in _BLOCKS:
                yield from _joined(parts)
            if tag in _NO_TEXT:
                skipped = element
            else:
                parts.append(element.text or "")
        elif event == "end":
            skipped = None if element is skipped else skipped
            if skipped is None:
                if tag in _BLOCKS:
                    yield from _joined(parts)
                parts.append(element.tail or "")
    yield from _joined(parts)


def _joined(parts: list[str]) -> list[str]:
    text = " ".join("".join(parts).split())
    parts.clear()
    return [text] if text else []


def _pdf(body: bytes, limits: FetchLimits) -> tuple[str, str, str]:
    from pypdf import PdfReader

    try:
        reader = PdfReader(io.BytesIO(body))
        if reader.is_encrypted and not reader.decrypt(""):
            raise PageError("the page is an encrypted PDF")
        about = reader.metadata
        pages: list[str] = []
        for page in itertools.islice(reader.pages, limits.pdf_pages):
            pages.append(unwrap(page.extract_text(), narrowest=30, hyphens=True))
            if sum(map(len, pages)) > limits.characters:
                break
        title = str(about.title or "") if about else ""
        published = plausible_date(about.creation_date.date()) if about and about.creation_date else ""
    except PageError:
        raise
    except Exception as error:  # a broken PDF can make pypdf raise almost anything
        raise PageError("the page is no readable PDF") from error
    return title, "\n\n".join(pages), published
