"""Readers of plain text, CSV, JSON, PDF and (with the program `tesseract`) pictures: a file becomes pieces of text."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import time
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, islice, pairwise
from typing import Any, BinaryIO

from langgraph_convcoa.errors import DocumentError, first_line

CSV_GROUP_CHARACTERS = 600  # Characters of a group of table rows, so that it fits one passage of the encoder.
OCR_ADVICE = "install tesseract (apt install tesseract-ocr, brew install tesseract) to read text in pictures"
COMMENT = " (comment: "  # Separates a cell's value from its comment.
_PROGRAM = "tesseract"
_MOST_LANGUAGES = 4
_MOST_IMAGES = 20  # At most this many pictures of a page are read; a scanner makes one picture, or a few strips.
_CSV_TRIED = 10  # The delimiter is guessed from this many rows.
_MOST_ENTITIES, _LONGEST_ENTITY, _MOST_WORDS = 50, 60, 6
_TEXT_KEYS = ("text", "page_content", "content")
_ID_KEYS = ("id", "_id")
_WIDEST, _MOST_COLUMNS = 200, 20_000
_ITEM = re.compile(r"\s|[-*+•·–] |\(?\w{1,3}[.)] ")
_SECTION = re.compile(r"\d+(\.\d+)*\.? [A-Z](.*\w)?\Z")  # A numbered heading.
_LIGATURES = {number: unicodedata.normalize("NFKC", chr(number)) for number in range(0xFB00, 0xFB07)}
BYTE_ORDER_MARKS = (
    (b"\xff\xfe\x00\x00", "utf-32"), (b"\x00\x00\xfe\xff", "utf-32"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"),
)  # fmt: skip


@dataclass(frozen=True)
class Piece:
    """A text of a file."""

    text: str
    title: str = ""
    key: str = ""  # Distinguishes this text from the file's other texts.
    own_id: bool = False  # True if the key is an id that the user gave.
    metadata: dict[str, Any] = field(default_factory=dict)  # Its page or row.
    date: str = ""  # When a PDF was made, as YYYY-MM-DD.
    skipped: str = ""  # Why a part of the file has no text.


def decode(data: bytes) -> str:
    """Decode UTF-16 or UTF-32 (with their mark), UTF-8, or else Windows-1252; raises DocumentError for a binary file."""
    text, marked = "", [name for mark, name in BYTE_ORDER_MARKS if data.startswith(mark)]
    for charset in (*marked, "utf-8-sig", "cp1252", "latin-1"):
        with suppress(UnicodeDecodeError):
            text = data.decode(charset)
            break
    sample = text[:65_536]
    if "\x00" in text or sum(ch < " " and ch not in "\t\n\r\f\v\x1b" for ch in sample) > 0.01 * len(sample):
        raise DocumentError("is a binary file, not text: leave it out, or export its text")
    return text


def unwrap(text: str, narrowest: int = 60, printed: bool = False) -> str:
    r"""Join lines that were wrapped, except in paragraphs whose lines are all shorter than `narrowest` characters.

    In `printed` text, a hyphen at the end of a line divides a word, and a heading has no blank line around it.
    """
    return "\n\n".join(_unwrap_block(block, narrowest, printed) for block in re.split(r"\n[^\S\n]*\n\s*?(?=\S|\Z)", text))


def _unwrap_block(block: str, narrowest: int, printed: bool) -> str:
    lines = [line.rstrip() for line in block.split("\n")]
    width = max(len(line) for line in lines)
    if len(lines) < 2 or not narrowest <= width <= _WIDEST:
        return block
    joined = lines[0]
    for previous, line in pairwise(lines):
        short, headed = len(previous) < 0.6 * width, _SECTION.match(line) and len(line) < 0.6 * width
        if printed and (headed or (short and previous[-1:].isalnum() and line[:1].isupper())):
            joined += "\n\n" + line
        elif short or not line or _ITEM.match(line):
            joined += "\n" + line
        elif printed and re.search(r"[^\W\d]-$", previous) and line[0].islower():
            joined = joined[:-1] + line
        else:
            joined += " " + line
    return joined


def read_plain(data: bytes) -> list[Piece]:
    """A plain text with wrapped lines joined."""
    return [Piece(unwrap(decode(data)))]


def read_csv(data: bytes, delimiter: str = "") -> list[Piece]:
    """Rows as lines "column: value", a blank line between rows, in groups that each fit one passage."""
    text = decode(data).lstrip("\r\n")
    # csv.Sniffer is not used: it takes apostrophes for quotes, and guesses from the values.
    reader = _csv_rows(text, delimiter or max("\t|;,", key=lambda mark: _csv_fit(text, mark)))
    try:
        header = [name.strip() for name in next(reader, [])]
        if len(header) > _MOST_COLUMNS:
            raise DocumentError(f"has more than {_MOST_COLUMNS:,} columns: remove those that are not needed")
        return list(grouped_rows(header, enumerate(reader, start=1)))
    except csv.Error as error:
        raise DocumentError(f"line {reader.line_num} is no valid CSV ({error}): mend or remove that line") from error


def _csv_rows(text: str, delimiter: str) -> Any:
    return csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)


def _csv_fit(text: str, delimiter: str) -> tuple[bool, int]:
    """True if this delimiter gives the first rows equally many cells, at least two; and the header's number of cells."""
    with suppress(csv.Error):
        sizes = [len(row) for row in islice(_csv_rows(text, delimiter), _CSV_TRIED) if row]
        return len(set(sizes)) == 1 < sizes[0], sizes[0] if sizes else 0
    return False, 0


def grouped_rows(header: Sequence[str], rows: Iterable[tuple[int, Sequence[str]]]) -> Iterator[Piece]:
    """Numbered rows of a table as lines "column: value", in groups that fit one passage."""
    names = [name or f"column {i}" for i, name in enumerate(header, start=1)]
    first, group, cells, size = 0, list[str](), dict[str, None](), 0
    for number, row in rows:
        # A row may have more cells than there are names.
        named = zip(chain(names, (f"column {i + 1}" for i in range(len(names), len(row)))), row, strict=False)
        text = "\n".join(f"{name}: {value}" for name, cell in named if (value := " ".join(cell.split())))
        if not text:
            continue
        if group and size + len(text) > CSV_GROUP_CHARACTERS:
            yield _rows_piece(first, group, cells)
            group, cells, size = [], {}, 0
        if not group:
            first = number
        group.append(text)
        cells.update(dict.fromkeys(value for cell in row if _is_name(value := " ".join(cell.partition(COMMENT)[0].split()))))
        size += len(text) + 2
    if group:
        yield _rows_piece(first, group, cells)


def _rows_piece(first: int, rows: Sequence[str], cells: Iterable[str]) -> Piece:
    """Make a piece of table rows. Cells that look like names become entities of an evidence graph."""
    entities = list(islice(cells, _MOST_ENTITIES))
    return Piece("\n\n".join(rows), key=f"row-{first}", metadata={"row": first} | ({"entities": entities} if entities else {}))


def _is_name(cell: str) -> bool:
    """True for a cell like "Ida Lund" or "AX-200": a few words with a capital or a digit among letters."""
    return (
        2 < len(cell) <= _LONGEST_ENTITY
        and len(cell.split()) <= _MOST_WORDS
        and any(letter.isalpha() for letter in cell)
        and any(letter.isupper() or letter.isdigit() for letter in cell)
    )


def read_json(data: bytes) -> list[Piece]:
    """Read a JSON list of rows {"id", "title", "text"} or of strings, or a single row or string."""
    content = _parse(decode(data))
    rows = content if isinstance(content, list) else [content]
    return [_row(row, f"row {number}", str(number)) for number, row in enumerate(rows, start=1)]


def read_json_lines(data: bytes) -> list[Piece]:
    """Read lines of JSON, each a row {"id", "title", "text"} or a string; blank lines are skipped."""
    # splitlines() would break at U+2028, which JSON allows in a string.
    lines = enumerate(decode(data).split("\n"), start=1)
    return [_row(_parse(line, number), f"line {number}", str(number)) for number, line in lines if line.strip()]


def _parse(text: str, line: int = 1) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {line + error.lineno - 1} is no valid JSON ({error.msg}, column {error.colno})"
        raise DocumentError(f"{place}: mend or remove it") from error
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"is JSON that cannot be read ({error}): mend it") from error


def _row(row: Any, place: str, key: str) -> Piece:
    if isinstance(row, str):
        return Piece(row, key=key)
    text = next((row[name] for name in _TEXT_KEYS if name in row), None) if isinstance(row, dict) else None
    if not isinstance(text, str):
        raise DocumentError(f'{place} has no text: rows are {{"id", "title", "text"}} or plain strings')
    own_id = next((row[name] for name in _ID_KEYS if row.get(name) not in (None, "")), None)
    title = row["title"] if isinstance(row.get("title"), str) else ""
    return Piece(text, title, key if own_id is None else str(own_id), own_id=own_id is not None)


def read_pdf(
    stream: BinaryIO, max_characters: int, max_pages: int | None = None, pictures_until: float | None = None
) -> Iterator[Piece]:
    """The text of each page of a PDF, with its page number from 1. Reading stops once there are over `max_characters`.

    Pages that are pictures are read until `pictures_until` (`time.monotonic`). A final piece names pages without text.
    DocumentError if the file is encrypted or broken, or has no text.
    """
    from pypdf import PdfReader
    from pypdf.errors import DependencyError, FileNotDecryptedError

    found, unread, late = 0, list[int](), False
    try:
        reader = PdfReader(stream)
        if reader.is_encrypted and not reader.decrypt(""):
            raise FileNotDecryptedError
        about, title, made = reader.metadata, "", ""
        if about:
            title = str(about.title or "").strip()
            with suppress(ValueError):
                made = about.creation_date.date().isoformat() if about.creation_date else ""
        for number, page in enumerate(islice(reader.pages, max_pages), start=1):
            text = unwrap(page.extract_text().replace("\x00", "").translate(_LIGATURES), narrowest=30, printed=True)
            if not text.strip() and _holds_pictures(page):
                read = _page_text(page, pictures_until) if pictures_until is not None else ""
                late, text = late or read is None, read or ""
                if not text.strip():
                    unread.append(number)
            if text.strip():
                found += len(text)
                yield Piece(text, title, f"page-{number}", metadata={"page": number}, date=made)
            if found > max_characters:
                return
    except (FileNotDecryptedError, DependencyError) as error:
        raise DocumentError("is an encrypted PDF: save a copy without its password") from error
    except MemoryError:
        raise
    except Exception as error:  # a broken PDF can make pypdf raise almost anything
        raise DocumentError(f"is no readable PDF ({first_line(error)}): open it and export it again") from error
    if unread:
        late_or_blank = "there was no time to read all" if late else "no text was recognised on them"
        why = OCR_ADVICE if pictures_until is None else late_or_blank
        told = f"{_ranges(unread)} hold{'s' if len(unread) == 1 else ''} images only: {why}"
        if not found:
            raise DocumentError(f"is a scanned PDF, {told}")
        yield Piece("", skipped=told)
    elif not found:
        raise DocumentError("is a PDF without text, drawn perhaps: run a text recognition (OCR) on it first")


def _holds_pictures(page: Any) -> bool:
    with suppress(Exception):  # a broken picture does not matter here
        return bool(page.images.keys())
    return False


def _ranges(numbers: Sequence[int]) -> str:
    """Rising page numbers as text, with at most five ranges: "pages 3 to 5, 9"."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    told = [str(first) if first == last else f"{first} to {last}" for first, last in ranges[:5]]
    return f"page{'s' if len(numbers) > 1 else ''} {', '.join(told)}{' and others' if len(ranges) > 5 else ''}"


def reads_pictures() -> bool:
    """True if tesseract is installed."""
    return shutil.which(_PROGRAM) is not None


def read_image(stream: BinaryIO, seconds: float) -> Iterator[Piece]:
    """The text of a picture (PNG, JPEG, or TIFF of one or more pages); DocumentError if it has no text."""
    pages = _recognised(stream.read(), seconds).split("\f")
    texts = [(number, text) for number, text in enumerate(pages, start=1) if text.strip()]
    if not texts:
        raise DocumentError("is a picture in which no text was recognised")
    several = len(texts) > 1
    for number, text in texts:
        yield Piece(unwrap(text.strip(), 30, printed=True), key=f"page-{number}" if several else "", metadata={"page": number})


def _page_text(page: Any, end: float) -> str | None:
    """The text of the pictures of a pypdf page; None if it is not ready by `end` (`time.monotonic`)."""
    texts = []
    for name in list(page.images.keys())[:_MOST_IMAGES]:
        try:
            texts.append(_recognised(page.images[name].data, max(end - time.monotonic(), 0)))
        except subprocess.TimeoutExpired:
            return None
    return unwrap("\n".join(texts).replace("\f", "\n").strip(), 30, printed=True)


def _recognised(image: bytes, seconds: float) -> str:
    """The text of a picture, with form feeds between pages; empty if the program cannot read it."""
    return _run(["stdin", "stdout", "-l", "+".join(_languages()) or "eng"], image, seconds)


@lru_cache(maxsize=1)
def _languages() -> tuple[str, ...]:
    """The installed languages, English last: the user has installed the others on purpose."""
    lines = _run(["--list-langs"], b"", 10.0).splitlines()[1:]
    found = [line.strip() for line in lines if line.strip() and line.strip() not in ("osd", "equ", "eng")]
    return (*found[: _MOST_LANGUAGES - 1], *(["eng"] if "eng" in map(str.strip, lines) else []))


def _run(arguments: list[str], given: bytes, seconds: float) -> str:
    # The threads of tesseract slow each other down and need memory.
    environment = {**os.environ, "OMP_THREAD_LIMIT": "1"}
    command = [shutil.which(_PROGRAM) or _PROGRAM, *arguments]
    done = subprocess.run(command, input=given, capture_output=True, timeout=seconds, env=environment, check=False)  # noqa: S603
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""
