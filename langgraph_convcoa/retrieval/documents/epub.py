"""Reader of EPUB books: chapters in reading order. They are parsed as HTML, which cannot declare entities."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import unquote
from zipfile import ZipFile

from langgraph_convcoa.errors import DocumentError
from langgraph_convcoa.retrieval.documents.archive import package
from langgraph_convcoa.retrieval.documents.formats import Piece
from langgraph_convcoa.retrieval.documents.markup import decode_page, parsed_html, titled_text

if TYPE_CHECKING:
    from bs4 import BeautifulSoup

_ENCRYPTION = "META-INF/encryption.xml"


def read_epub(stream: BinaryIO, limit: int) -> Iterator[Piece]:
    """The parts of a book in the order of its spine. A title is the book's title and the part's first heading."""
    with package(stream, ".epub") as archive:
        place = str(_soup(archive, "META-INF/container.xml").find("rootfile")["full-path"])  # type: ignore[index]
        book = _soup(archive, place)
        named = book.find("dc:title")
        title = " ".join(named.get_text(" ").split()) if named else ""
        items = {item.get("id"): item for item in book.find_all("item")}
        closed = _encrypted(archive)
        found = 0
        for number, reference in enumerate(book.find_all("itemref"), start=1):
            item = items.get(reference.get("idref"))
            if item is None or "nav" in str(item.get("properties", "")).split():
                continue
            name = posixpath.normpath(posixpath.join(posixpath.dirname(place), unquote(str(item.get("href", "")))))
            if name in closed:
                raise DocumentError("is protected (DRM): only the program that it was bought for can open it")
            if name not in archive.namelist():
                continue
            text, heading = titled_text(parsed_html(decode_page(archive.read(name))))
            both = f"{title}: {heading}" if title and heading and heading != title else heading or title
            found += len(text)
            yield Piece(text, both, f"chapter-{number}", metadata={"chapter": number})
            if found > limit:
                return


def _soup(archive: ZipFile, name: str) -> BeautifulSoup:
    return parsed_html(decode_page(archive.read(name)))


def _encrypted(archive: ZipFile) -> set[str]:
    """The encrypted parts. Fonts are often encrypted in books that can be read."""
    if _ENCRYPTION not in archive.namelist():
        return set()
    references = _soup(archive, _ENCRYPTION).find_all(["enc:cipherreference", "cipherreference"])
    return {unquote(str(one.get("uri"))) for one in references}
