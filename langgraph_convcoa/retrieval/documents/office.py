"""Readers of zip packages: Word, PowerPoint, Excel and EPUB. Harmful packages are refused before they are read."""

from __future__ import annotations

import posixpath
import re
import warnings
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import unquote
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

from langgraph_convcoa.errors import DocumentError
from langgraph_convcoa.retrieval.documents.formats import COMMENT, Piece, grouped_rows
from langgraph_convcoa.retrieval.documents.markup import decode_page, line_of, parsed_html, titled_text

if TYPE_CHECKING:
    from bs4 import BeautifulSoup

_MOST_PARTS = 10_000
_MOST_BYTES = 300_000_000
_UNSUSPECTED, _MOST_RATIO = 20_000_000, 200
"""A package that unpacks to more than 20 MB and to more than 200 times its size is refused."""
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # First bytes of Office files from before 2007, and of encrypted Office documents.
_XML = (".xml", ".rels", ".opf", ".ncx", ".xhtml", ".html", ".htm", ".vml")
_ENTITIES = (b"<!ENTITY", "<!ENTITY".encode("utf-16-le")[:-1])
_READ_AT_ONCE = 1_000_000
_STYLES = """
p[style-name='Title'] => h1:fresh
p[style-name='Subtitle'] => p:fresh
comment-reference => sup
"""
_REFERENCE = re.compile(r"(comment|footnote|endnote)-")
_COMMENTS = ("/comments", "/2018/10/relationships/comments")
_DEFAULT_SHEET = re.compile(
    r"(?:(?:Work)?Sheet|Tabelle|Feuil(?:le)?|Hoja|Foglio|Blad|Planilha|Arkusz|Munka|Ark|Taul|Лист) ?\d{0,2}", re.IGNORECASE
)
"""Default names of sheets, which say nothing: Sheet1, Tabelle 2, and openpyxl's Sheet."""
_WITH_COMMENTS = 20_000_000
"""A workbook of up to this many unpacked bytes is read into memory: only then can its comments be read."""
_HEADER_WITHIN = 10
_MOST_EMPTY = 2_000_000
_ENCRYPTION = "META-INF/encryption.xml"


@contextmanager
def package(stream: BinaryIO, kind: str) -> Iterator[ZipFile]:
    """Open a package for a block. Raises DocumentError if it is not of that kind, or if a parser fails in the block.

    Refuses packages with a password, XML entities or over 10,000 parts, or that unpack to over 300 MB or 200 times their size.
    """
    try:
        head = stream.read(len(_OLE))
        size = stream.seek(0, 2)
        stream.seek(0)
        if head == _OLE:
            raise DocumentError(f"is encrypted with a password, or of an older kind: save it as {kind} without a password")
        with ZipFile(stream) as archive:
            _check(archive, size)
            yield archive
    except (DocumentError, MemoryError):
        raise
    except (BadZipFile, zlib.error, EOFError) as error:
        raise DocumentError(f"is no readable {kind} file (cut short, or of another kind): save it again") from error
    except Exception as error:  # a broken part can make a parser raise almost anything
        # Only the error's type is named: its message may contain any text of the file.
        raise DocumentError(f"is no readable {kind} file ({type(error).__name__}): open it and save it again") from error


def _check(archive: ZipFile, size: int) -> None:
    parts = archive.infolist()
    # The declared sizes are enough, since no part is read beyond its declared size.
    total = sum(part.file_size for part in parts)
    if len(parts) > _MOST_PARTS:
        raise DocumentError(f"is a package of {len(parts)} parts, over {_MOST_PARTS}: split it")
    if total > _MOST_BYTES or (total > _UNSUSPECTED and total > _MOST_RATIO * size):
        raise DocumentError(f"unpacks to {total / 1e6:.0f} MB, {total / max(size, 1):.0f} times its size: it is not opened")
    if any(part.flag_bits & 1 for part in parts):
        raise DocumentError("is encrypted with a password: save a copy without it")
    if any(part.compress_type not in (ZIP_STORED, ZIP_DEFLATED) for part in parts):
        raise DocumentError("is packed in a way that no document is: save it again")
    for part in parts:
        if part.filename.lower().endswith(_XML):
            _check_entities(archive, part.filename)


def _check_entities(archive: ZipFile, name: str) -> None:
    """Refuse XML entities, which can grow without end or include a file; documents need no entities."""
    with archive.open(name) as part:
        before = b""
        while data := part.read(_READ_AT_ONCE):
            if any(mark in before + data for mark in _ENTITIES):
                raise DocumentError("declares XML entities, which no document needs: it is not opened")
            before = data[-len(_ENTITIES[1]) :]


def read_docx(stream: BinaryIO, limit: int) -> Iterator[Piece]:
    """A Word document, with its tables, text boxes, notes and comments; the title is its title line or first heading."""
    with package(stream, ".docx"):
        import mammoth

        stream.seek(0)
        page = mammoth.convert_to_html(
            stream,
            style_map=_STYLES,
            include_embedded_style_map=False,
            external_file_access=False,
            # Pictures are left out.
            convert_image=lambda _image: [],
            id_prefix="",
        ).value
        soup = parsed_html(page)
        # The mark "[1]" of a note and the arrow back to the mark are left out; "Comment [AB1]" stays.
        for link in soup.find_all("a", href=re.compile("^#")):
            if _REFERENCE.match(str(link["href"])[1:]):
                link.extract()
        text, title = titled_text(soup)
        yield Piece(text, title)


def read_pptx(stream: BinaryIO, limit: int) -> Iterator[Piece]:
    """The slides of a presentation, with tables, charts' numbers, speaker notes and comments; `page` is the slide's number."""
    with package(stream, ".pptx"):
        from pptx import Presentation

        found = 0
        for number, slide in enumerate(Presentation(stream).slides, start=1):
            heading = slide.shapes.title
            title = _line(heading.text_frame.text) if heading is not None else ""
            shown = [shape for shape in slide.shapes if heading is None or shape.shape_id != heading.shape_id]
            blocks = list(_shape_texts(shown))
            if slide.has_notes_slide and (notes := slide.notes_slide.notes_text_frame) is not None and notes.text.strip():
                blocks.append(f"Notes: {notes.text.strip()}")
            blocks += [f"Comment: {text}" for text in _slide_comments(slide)]
            text = "\n\n".join(blocks) or title
            found += len(text)
            yield Piece(text, title, f"slide-{number}", metadata={"page": number})
            if found > limit:
                return


def _shape_texts(shapes: Iterable[Any]) -> Iterator[str]:
    left = list(shapes)[::-1]
    while left:
        shape = left.pop()
        if hasattr(shape, "shapes"):
            left += list(shape.shapes)[::-1]
        elif shape.has_text_frame:
            lines = [_line(paragraph.text) for paragraph in shape.text_frame.paragraphs]
            if text := "\n".join(line for line in lines if line):
                yield text
        elif getattr(shape, "has_table", False):
            yield "\n\n".join(" | ".join(_line(cell.text) for cell in row.cells) for row in shape.table.rows)
        elif getattr(shape, "has_chart", False):
            yield from _chart_rows(shape.chart)


def _chart_rows(chart: Any) -> Iterator[str]:
    for plot in chart.plots:
        series = list(plot.series)
        rows = zip(plot.categories, *(one.values for one in series), strict=False)
        header = " | ".join(["", *(str(one.name) for one in series)]).strip()
        lines = [" | ".join(map(_cell, row)) for row in rows]
        yield "\n".join([header, *lines]).strip()


def _slide_comments(slide: Any) -> Iterator[str]:
    """The comments of a slide, in the formats of PowerPoint before and since 2018."""
    from pptx.oxml import parse_xml

    for relation in slide.part.rels.values():
        if not relation.is_external and relation.reltype.endswith(_COMMENTS):
            for comment in parse_xml(relation.target_part.blob).iter("{*}cm", "{*}reply"):
                # A reply is nested in its comment.
                parts = comment.xpath("./*[local-name()='text' or local-name()='txBody']")
                if text := _line(" ".join("".join(part.itertext()) for part in parts)):
                    yield text


def read_xlsx(stream: BinaryIO, limit: int) -> Iterator[Piece]:
    """Rows of each sheet of a workbook as lines "column: value", with comments, by `sheet` and `row`.

    The first row with several cells holds the columns' names. Formulas have the values that Excel calculated. Comments are
    read if the workbook unpacks to at most 20 MB.
    """
    with package(stream, ".xlsx") as archive, warnings.catch_warnings():
        from openpyxl import load_workbook

        warnings.simplefilter("ignore")
        small = sum(part.file_size for part in archive.infolist()) <= _WITH_COMMENTS
        stream.seek(0)
        book = load_workbook(stream, read_only=not small, data_only=True, keep_links=False)
        found = 0
        for number, sheet in enumerate(book.worksheets, start=1):
            title = "" if _DEFAULT_SHEET.fullmatch(sheet.title) else sheet.title
            for piece in grouped_rows(*_table(_cells(sheet) if small else _filled(sheet.iter_rows(values_only=True)))):
                found += len(piece.text)
                place = {"sheet": sheet.title, **piece.metadata}
                yield Piece(piece.text, title, f"sheet-{number}-{piece.key}", metadata=place)
                if found > limit:
                    return


_Row = tuple[int, Sequence[str]]


def _table(rows: Iterator[_Row]) -> tuple[list[str], Iterator[_Row]]:
    """The names of the columns, and all other rows. Each row above the names has at most one cell."""
    above: list[_Row] = []
    for number, row in rows:
        above.append((number, row))
        if sum(map(bool, row)) > 1:
            above.pop()
            return list(row), chain(above, rows)
        if len(above) == _HEADER_WITHIN:
            break
    return [], chain(above, rows)


def _cells(sheet: Any) -> Iterator[_Row]:
    """Numbered rows that hold a value, from a sheet in memory."""
    rows: dict[int, dict[int, str]] = {}
    # Not iter_rows: it creates all cells up to the last one, which may be far away.
    for (number, column), cell in sheet._cells.items():
        comment = f"{COMMENT}{_line(cell.comment.text)})" if cell.comment is not None else ""
        if value := _cell(cell.value) + comment:
            rows.setdefault(number, {})[column] = value
    for number in sorted(rows):
        row = rows[number]
        yield number, [row.get(column, "") for column in range(1, max(row) + 1)]


def _filled(rows: Iterable[Sequence[Any]]) -> Iterator[_Row]:
    """Numbered rows that hold a value. A sheet with millions of empty cells before a far-off cell is refused."""
    cells = filled = 0
    for number, row in enumerate(rows, start=1):
        cells += len(row)
        filled += len(row) - row.count(None)
        if cells > _MOST_EMPTY and cells > 100 * filled:
            raise DocumentError(f"has a sheet of {cells} cells, nearly all of them empty: delete those outside of the table")
        if row.count(None) < len(row):
            yield number, [_cell(value) for value in row]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, datetime) and value.time() == time():
        return value.date().isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    return _line(str(value))


def _line(text: str) -> str:
    return " ".join(text.split())


def read_epub(stream: BinaryIO, limit: int) -> Iterator[Piece]:
    """The parts of an EPUB book in the order of its spine. A title is the book's title and the part's first heading."""
    with package(stream, ".epub") as archive:
        place = str(_soup(archive, "META-INF/container.xml").find("rootfile")["full-path"])  # type: ignore[index]
        book = _soup(archive, place)
        title = line_of(book.find("dc:title"))
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
            text, heading = titled_text(_soup(archive, name))
            both = f"{title}: {heading}" if title and heading and heading != title else heading or title
            found += len(text)
            yield Piece(text, both, f"chapter-{number}", metadata={"chapter": number})
            if found > limit:
                return


def _soup(archive: ZipFile, name: str) -> BeautifulSoup:
    # Parsed as HTML, which cannot declare entities.
    return parsed_html(decode_page(archive.read(name)))


def _encrypted(archive: ZipFile) -> set[str]:
    """The encrypted parts. Fonts are often encrypted in books that can be read."""
    if _ENCRYPTION not in archive.namelist():
        return set()
    references = _soup(archive, _ENCRYPTION).find_all(["enc:cipherreference", "cipherreference"])
    return {unquote(str(one.get("uri"))) for one in references}
