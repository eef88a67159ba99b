"""The readable text of Markdown and HTML."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

from langgraph_convcoa.retrieval.documents.pieces import Piece, decode

if TYPE_CHECKING:
    from bs4.element import PageElement, Tag
    from markdown_it.token import Token

_HIDDEN_TAGS = ["script", "style", "nav", "noscript", "template", "svg", "button", "select", "footer", "head", "title"]
_BLOCK_TAGS = [
    "address",
    "article",
    "blockquote",
    "dd",
    "div",
    "dl",
    "dt",
    "figcaption",
    "figure",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "header",
    "hr",
    "li",
    "main",
    "ol",
    "p",
    "pre",
    "section",
    "table",
    "tr",
    "ul",
]
_LARGEST_MARKDOWN = 2_000_000
_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_TITLE_FIELD = re.compile(r"^title:[ \t]*[\"']?(.+?)[\"']?[ \t]*$", re.MULTILINE | re.IGNORECASE)


def read_markdown(data: bytes) -> list[Piece]:
    r"""The text of a Markdown document without its marks, one paragraph, heading, list item or table row a paragraph.

    The title is that of the front matter or the first heading; a heading that opens the document is not repeated in the text.

    Example:
        >>> read_markdown(b"# Bees\n\nThey *hum*\nin [spring](https://example.org).\n\n- one\n- two")
        [Piece(text='They hum in spring.\n\none\n\ntwo', title='Bees', key='', own_id=False, metadata={})]
    """
    from markdown_it import MarkdownIt

    text = decode(data).replace("\r\n", "\n")
    front = _FRONT_MATTER.match(text)
    named = _TITLE_FIELD.search(front.group(1)) if front else None
    title = named.group(1) if named else ""
    if front:
        text = text[front.end() :]
    # The parser's tokens take many times the room of the text; what is so large was hardly written by hand.
    if len(text) > _LARGEST_MARKDOWN:
        return [Piece(text, title=title)]
    paragraphs: list[str] = []
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    for position, token in enumerate(tokens):
        content = _block_text(token)
        if token.type == "inline" and tokens[position - 1].type == "heading_open":
            title, opens = title or content, not paragraphs
            if opens and content == title:
                continue
        if (
            token.type == "inline"
            and tokens[position - 1].type in ("th_open", "td_open")
            and paragraphs
            and not _opens_row(tokens, position)
        ):
            paragraphs[-1] += f" | {content}"
        elif content:
            paragraphs.append(content)
    return [Piece("\n\n".join(paragraphs) or title, title=title)]


def _opens_row(tokens: list[Token], position: int) -> bool:
    return tokens[position - 2].type == "tr_open"


def _block_text(token: Token) -> str:
    if token.type in ("fence", "code_block"):
        return token.content.strip("\n")
    if token.type == "html_block":
        return _html_text(token.content)[0]
    if token.type != "inline":
        return ""
    breaks = {"softbreak": " ", "hardbreak": " ", "html_inline": ""}
    return "".join(breaks.get(child.type, child.content) for child in token.children or ()).strip()


def read_html(data: bytes) -> list[Piece]:
    r"""The readable paragraphs of a page, without scripts, styles, navigation and the like.

    Example:
        >>> read_html(b"<title>T</title><script>x()</script><p>One.<p>Two <b>words</b>.")[0].text
        'One.\n\nTwo words.'
    """
    decode(data)
    text, title = _html_text(data)
    return [Piece(text, title=title)]


def _html_text(data: bytes | str) -> tuple[str, str]:
    """Paragraphs and title of a page or a part of one."""
    from bs4 import BeautifulSoup, MarkupResemblesLocatorWarning, XMLParsedAsHTMLWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MarkupResemblesLocatorWarning)
        warnings.simplefilter("ignore", XMLParsedAsHTMLWarning)
        soup = BeautifulSoup(data, "html.parser")
    title = soup.title.get_text(" ", strip=True) if soup.title else ""
    if not title and soup.h1:
        title = soup.h1.get_text(" ", strip=True)
    # The mark cannot occur in the page: `decode` refuses it.
    paragraphs = (" ".join(part.split()) for part in "".join(_visible(soup)).split("\x00"))
    return "\n\n".join(part for part in paragraphs if part), " ".join(title.split())


def _visible(page: Tag) -> Iterator[str]:
    """The text of a page in order, with a mark where a block begins and ends.

    Without changing the tree or recursion: tags that are never closed nest it as deep as there are tags.
    """
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
        # Comments and the like are strings of other types, as is the mark.
        elif type(node) in (str, NavigableString, CData):
            yield str(node)
