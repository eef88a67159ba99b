"""Readers of Markdown and HTML: the visible text of a document, and the main text of a web page."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import suppress
from datetime import date
from html.parser import HTMLParser
from itertools import islice
from typing import TYPE_CHECKING, Any

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.documents.formats import BYTE_ORDER_MARKS, Piece, decode

if TYPE_CHECKING:
    from bs4 import BeautifulSoup
    from bs4.element import PageElement, Tag
    from markdown_it.token import Token

_HIDDEN_TAGS = frozenset(
    ["script", "style", "nav", "noscript", "template", "svg", "button", "select", "footer", "head", "title", "iframe"]
)
_BLOCK_TAGS = frozenset({
    "address", "article", "blockquote", "dd", "div", "dl", "dt", "figcaption", "figure", "h1", "h2", "h3", "h4", "h5", "h6",
    "header", "hr", "li", "main", "ol", "p", "pre", "section", "table", "tr", "ul",
})  # fmt: skip
_LARGEST_MARKDOWN = 2_000_000
_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_FEWEST_FACTS, _MOST_FACTS = 3, 500  # Lowest number of rows in an infobox; limit of table rows that are examined.
_MOST_UNCLOSED = 10  # This many unclosed tags and comments are read as text; after them all tags are removed.
_TAG = re.compile(r"<[^<>]*>?")
_MAX_NODES = 12_000
"""Limit of elements and attributes that are read of a web page; the time for the main text grows with their square."""
_UNSEEN_TAGS = frozenset({"noscript", "template", "nav"})
_UNSEEN_STYLE = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0(?![.\d])|opacity\s*:\s*0(?![.\d])|text-indent\s*:\s*-\d{3}",
    re.IGNORECASE,
)
_CHARSETS = re.compile(
    r"utf-?8|us-ascii|utf-?(16|32)(-?[lb]e)?|iso-?8859-\d{1,2}|latin-?1|windows-125\d|cp125\d|koi8-[ru]|gb(k|2312|18030)"
    r"|big5(-hkscs)?|shift_jis|sjis|euc-(jp|kr)|iso-2022-jp|macintosh|tis-620"
)
_WIDE = re.compile(r"utf-?(16|32)")
_ESCAPED = re.compile(r"iso-2022")
_META = re.compile(
    rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_:-]{2,30})|encoding=[\"']([A-Za-z0-9_:-]{2,30})", re.I
)
_ENOUGH = 32  # A character set is guessed from at least this many bytes outside ASCII.
_TITLE_FIELD = re.compile(r"^title:[ \t]*[\"']?(.+?)[\"']?[ \t]*$", re.MULTILINE | re.IGNORECASE)


def read_markdown(data: bytes) -> list[Piece]:
    r"""The text of a Markdown document without its marks; the title comes from the front matter or the first heading."""
    from markdown_it import MarkdownIt

    text = decode(data).replace("\r\n", "\n")
    front = _FRONT_MATTER.match(text)
    named = _TITLE_FIELD.search(front.group(1)) if front else None
    title = named.group(1) if named else ""
    if front:
        text = text[front.end() :]
    # The parser needs many times as much memory as the text.
    if len(text) > _LARGEST_MARKDOWN:
        return [Piece(text, title=title)]
    paragraphs, columns, cells = list[str](), list[str](), list[str]()
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    for position, token in enumerate(tokens):
        content = _block_text(token)
        if token.type == "inline" and tokens[position - 1].type == "heading_open":
            title, opens = title or content, not paragraphs
            if opens and content == title:
                continue
        opened = tokens[position - 1].type if token.type == "inline" else ""
        if token.type == "table_open":
            columns = []
        elif token.type == "tr_open":
            cells = []
        elif opened in ("th_open", "td_open"):
            (columns if opened == "th_open" else cells).append(content)
        elif token.type == "tr_close" and cells:
            # The row gets the form of a row of a CSV file.
            content = "\n".join(": ".join(filter(None, pair)) for pair in zip(columns, cells, strict=False) if pair[1])
        elif token.type == "thead_close" and tokens[position + 1].type == "table_close":
            content = " | ".join(columns)
        if content and opened not in ("th_open", "td_open"):
            paragraphs.append(content)
    return [Piece("\n\n".join(paragraphs) or title, title=title)]


def _block_text(token: Token) -> str:
    if token.type in ("fence", "code_block"):
        return token.content.strip("\n")
    if token.type == "html_block":
        return "\n\n".join(_paragraphs(parsed_html(token.content)))
    if token.type != "inline":
        return ""
    breaks = {"softbreak": " ", "hardbreak": " ", "html_inline": ""}
    return "".join(breaks.get(child.type, child.content) for child in token.children or ()).strip()


def read_html(data: bytes) -> list[Piece]:
    """The readable paragraphs of a page, without scripts, styles and navigation. A title at the start is left out."""
    decode(data)  # refuses binary files
    soup = parsed_html(decode_page(data))
    facts = list(_facts(soup)) if soup.find("th") else []
    infobox = len(facts) >= _FEWEST_FACTS
    if infobox:
        for row, *_ in facts:
            row.extract()
    text, title = _tree_text(soup)
    pieces = [Piece(text, title=title)]
    if infobox:
        lines = "\n".join(f"{key}: {', '.join(values)}" for _, key, values in facts)
        triples = [[title, key, value] for _, key, values in facts for value in values]
        pieces.append(Piece(lines, title, "infobox", metadata={"triples": triples}))
    return pieces


def _facts(soup: BeautifulSoup) -> Iterator[tuple[Tag, str, list[str]]]:
    """Rows with one heading and one value, as in infoboxes: the row, its key, and its value or the texts of its links."""
    from bs4.element import Tag

    for row in islice(soup.find_all("tr"), _MOST_FACTS):
        cells = [cell for cell in row.contents if isinstance(cell, Tag)]
        if [cell.name for cell in cells] != ["th", "td"] or any(len(list(islice(c.descendants, 61))) > 60 for c in cells):
            continue
        key, value = map(line_of, cells)
        links = [line_of(link) for link in cells[1].find_all("a")]
        whole = not links or sum(map(len, links)) < len(value) / 2
        if key and value:
            yield row, key.rstrip(": "), [value] if whole else [link for link in links if link]


def titled_text(soup: BeautifulSoup) -> tuple[str, str]:
    """The text of an article without a heading at its start, and its first heading; table rows are "cell | cell"."""
    for row in soup.find_all("tr"):
        row.string = " | ".join(line_of(cell) for cell in row.find_all(["td", "th"], recursive=False))
    return _without_title(soup, line_of(soup.find(["h1", "h2", "h3", "h4", "h5", "h6"])))


def line_of(element: Any) -> str:
    """The text of an element on one line; empty for None."""
    return " ".join(element.get_text(" ").split()) if element is not None else ""


def _without_title(soup: BeautifulSoup, title: str) -> tuple[str, str]:
    """The text of a page without a title at its start, and the title. The title stays if there is no other text."""
    paragraphs = _paragraphs(soup)
    below = paragraphs[1:] if paragraphs[:1] == [title] else paragraphs
    return "\n\n".join(below or paragraphs), title


def parsed_html(page: str) -> BeautifulSoup:
    """Parse a page, or a part of a page, as a tree."""
    from bs4 import BeautifulSoup, MarkupResemblesLocatorWarning, XMLParsedAsHTMLWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MarkupResemblesLocatorWarning)
        warnings.simplefilter("ignore", XMLParsedAsHTMLWarning)
        return BeautifulSoup(_closed(page), "html.parser")


def _closed(page: str) -> str:
    """Escape unclosed tags and comments, since html.parser reads the rest of the page again for each of them."""
    parser, rest, read = HTMLParser(convert_charrefs=False), page, list[str]()
    for _ in range(_MOST_UNCLOSED):
        try:
            parser.feed(rest)
        except AssertionError:
            return page  # Beautiful Soup refuses it
        if parser.cdata_elem or not parser.rawdata.startswith("<"):
            return "".join([*read, rest])
        read += [rest[: len(rest) - len(parser.rawdata)], "&lt;"]
        rest, parser.rawdata = parser.rawdata[1:], ""
    return "".join([*read, _TAG.sub(" ", rest)])


def _tree_text(soup: BeautifulSoup) -> tuple[str, str]:
    return _without_title(soup, line_of(soup.title) or line_of(soup.h1))


def _paragraphs(soup: BeautifulSoup) -> list[str]:
    # `decode` refuses NUL in a page; in a book it only ends a paragraph.
    paragraphs = (" ".join(part.split()) for part in "".join(_visible(soup)).split("\x00"))
    return [part for part in paragraphs if part]


def _visible(page: Tag) -> Iterator[str]:
    """The text of a page in order, with NUL around a block. It does not recurse: unclosed tags nest the tree very deeply."""
    from bs4.element import CData, NavigableString, Tag

    left: list[PageElement | str] = [page]
    while left:
        node = left.pop()
        if isinstance(node, Tag):
            if node.name in _HIDDEN_TAGS:
                continue
            if node.name in _BLOCK_TAGS:
                yield "\x00"
                left.append("\x00")
            elif node.name in ("br", "td", "th"):
                yield " "
            left.extend(reversed(node.contents))
        # Comments and the like have other types.
        elif type(node) in (str, NavigableString, CData):
            yield str(node)


def load_extractor() -> None:
    """Import pypdf and trafilatura, which takes seconds."""
    try:
        import pypdf  # noqa: F401
        import trafilatura  # noqa: F401
    except ImportError as error:
        raise RetrievalError(f'reading pages needs trafilatura ({error}): pip install "langgraph-convcoa[web]"') from error


def main_text(page: str, url: str) -> tuple[str, str, str]:
    """Main text, title and date of a web page; all visible text if there is no main text."""
    load_extractor()
    from lxml import etree, html
    from trafilatura import bare_extraction

    parser = html.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True)
    try:
        tree = html.document_fromstring(page.encode("utf-8", "replace"), parser=parser)
    except (etree.ParserError, etree.XMLSyntaxError):
        return "", "", ""
    _prune(tree)
    dates = {"original_date": True, "extensive_search": False, "max_date": date.today().isoformat()}
    found = bare_extraction(tree, url=url, with_metadata=True, include_comments=False, date_extraction_params=dates)
    text, title, published = (found.text, found.title, found.date) if found is not None else ("", "", "")
    if not (text and title):
        visible, named = _tree_text(parsed_html(html.tostring(tree, encoding="unicode")))
        text, title = text or visible, title or named
    return str(text), str(title), str(published or "")


def _prune(tree: Any) -> None:
    """Remove hidden elements, and everything after the first `_MAX_NODES` nodes."""
    hidden = []
    left = _MAX_NODES
    for element in tree.iter():
        left -= 1 + len(element.attrib)
        if left < 0:
            # Remove this element and all that follows it in the tree.
            later = [one for node in (element, *element.iterancestors()) for one in node.itersiblings()]
            for one in (element, *later):
                if (parent := one.getparent()) is not None:
                    parent.remove(one)
            break
        style = element.get("style")
        if (
            element.tag in _UNSEEN_TAGS
            or element.get("hidden") is not None
            or element.get("aria-hidden") == "true"
            or (style and _UNSEEN_STYLE.search(style))
        ):
            hidden.append(element)
    for element in hidden:
        if element.getparent() is not None:
            element.drop_tree()


def decode_page(body: bytes, declared: str = "") -> str:
    """Decode a page in its actual character set, whatever the server declares."""
    for mark, name in ((b"\xef\xbb\xbf", "utf-8-sig"), *BYTE_ORDER_MARKS):
        if body.startswith(mark):
            return body.decode(name, "replace")
    match = _META.search(body[:4_096])
    named = [declared, (match[1] or match[2]).decode("ascii") if match else ""]
    charsets = [name.strip().lower() for name in named]
    # Valid UTF-8 counts as UTF-8, unless the page has zero bytes (UTF-16) or declares ISO-2022, which is ASCII bytes.
    zeros = b"\x00" in body[:4_096]
    first = [name for name in charsets if (_WIDE if zeros else _ESCAPED).match(name)]
    others = [name for name in charsets if not _WIDE.match(name)]
    for name in [*first, *([] if zeros else ["utf-8"]), *others]:
        if _CHARSETS.fullmatch(name):
            try:
                return body.decode(name)
            except (UnicodeError, LookupError):
                continue
    best = None
    if sum(byte > 127 for byte in body[:100_000]) >= _ENOUGH:
        with suppress(ImportError):  # the extra `web`
            from charset_normalizer import from_bytes

            best = from_bytes(body[:100_000]).best()
    return body.decode(best.encoding if best is not None else "cp1252", "replace")
