"""What text a file holds: one reader for each kind of file, from its bytes to pieces of text with an id and a title."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, BinaryIO

from langgraph_convcoa.errors import DocumentError
from langgraph_convcoa.retrieval.documents.pieces import Piece, decode, unwrap

CSV_GROUP_CHARACTERS = 600
"""Rows of a table go together up to this length, so that a group fits one passage of the encoder."""

_TEXT_KEYS = ("text", "page_content", "content")
_ID_KEYS = ("id", "_id")


def read_plain(data: bytes) -> list[Piece]:
    """A plain text is one piece without a title; lines that were only wrapped are joined."""
    return [Piece(unwrap(decode(data)))]


def read_csv(data: bytes) -> list[Piece]:
    r"""Rows as lines "column: value", a blank line between rows, in groups that each carry their column names.

    Example:
        >>> print(read_csv(b"name,born\nAda,1815\nBob,1900")[0].text)
        name: Ada
        born: 1815
        <BLANKLINE>
        name: Bob
        born: 1900
    """
    text = decode(data).lstrip("\r\n")
    # Not csv.Sniffer: it takes apostrophes for quotes and guesses from the values.
    delimiter = max(",;\t|", key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        rows = list(_csv_rows(reader, header))
    except csv.Error as error:
        raise DocumentError(f"line {reader.line_num} is no valid CSV ({error}): mend or remove that line") from error
    return list(_csv_groups(rows))


def _csv_rows(reader: Iterable[list[str]], header: list[str]) -> Iterator[str]:
    for row in reader:
        cells = (
            (header[i] if i < len(header) and header[i] else f"column {i + 1}", " ".join(v.split())) for i, v in enumerate(row)
        )
        yield "\n".join(f"{name}: {value}" for name, value in cells if value)


def _csv_groups(rows: list[str]) -> Iterator[Piece]:
    group: list[str] = []
    first = size = 0
    for number, row in enumerate(rows, start=1):
        if not row:
            continue
        if group and size + len(row) > CSV_GROUP_CHARACTERS:
            yield Piece("\n\n".join(group), key=f"row-{first}", metadata={"row": first})
            group, size = [], 0
        if not group:
            first = number
        group.append(row)
        size += len(row) + 2
    if group:
        yield Piece("\n\n".join(group), key=f"row-{first}", metadata={"row": first})


def read_json(data: bytes) -> list[Piece]:
    """A list of rows {"id", "title", "text"} or of strings, or one such row.

    Raises:
        DocumentError: Broken JSON (its line is named), or rows without text.
    """
    text = decode(data)
    content = _parse(text, lambda error: f"line {error.lineno} is no valid JSON ({error.msg}, column {error.colno})")
    rows = content if isinstance(content, list) else [content]
    return [_row(row, f"row {number}", str(number)) for number, row in enumerate(rows, start=1)]


def read_json_lines(data: bytes) -> list[Piece]:
    """One row {"id", "title", "text"} or one string a line; blank lines are passed over.

    Raises:
        DocumentError: A line is broken JSON or has no text; the line is named.
    """
    # Not splitlines(): it also breaks at U+2028 and the like, which JSON allows inside a string.
    pieces = []
    for number, line in enumerate(decode(data).split("\n"), start=1):
        if line.strip():
            row = _parse(line, partial(_broken_line, number))
            pieces.append(_row(row, f"line {number}", str(number)))
    return pieces


def _broken_line(number: int, error: json.JSONDecodeError) -> str:
    return f"line {number} is no valid JSON ({error.msg}, column {error.colno})"


def _parse(text: str, explain: Callable[[json.JSONDecodeError], str]) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DocumentError(f"{explain(error)}: mend or remove it") from error
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"is JSON that cannot be read ({error}): mend it") from error


def _row(row: Any, place: str, key: str) -> Piece:
    if isinstance(row, str):
        return Piece(row, key=key)
    text = next((row[name] for name in _TEXT_KEYS if name in row), None) if isinstance(row, dict) else None
    if not isinstance(text, str):
        raise DocumentError(f'{place} has no text: rows are {{"id", "title", "text"}} or plain strings')
    own_id = next((row[name] for name in _ID_KEYS if row.get(name) not in (None, "")), None)
    title = row.get("title")
    return Piece(
        text,
        title=title if isinstance(title, str) else "",
        key=key if own_id is None else str(own_id),
        own_id=own_id is not None,
    )


def read_pdf(stream: BinaryIO, max_characters: int) -> Iterator[Piece]:
    """The text of each page of a PDF, with its page number from 1; stops after the page that passes `max_characters`.

    Raises:
        DocumentError: The file is encrypted or broken, or holds no text.
    """
    from pypdf import PdfReader
    from pypdf.errors import DependencyError, FileNotDecryptedError

    found = 0
    try:
        reader = PdfReader(stream)
        if reader.is_encrypted and not reader.decrypt(""):
            raise FileNotDecryptedError
        title = reader.metadata.title if reader.metadata else None
        for number, page in enumerate(reader.pages, start=1):
            text = unwrap(page.extract_text().replace("\x00", ""), narrowest=30, hyphens=True)
            if text.strip():
                found += len(text)
                yield Piece(text, title=str(title or "").strip(), key=f"page-{number}", metadata={"page": number})
            if found > max_characters:
                return
    except (FileNotDecryptedError, DependencyError) as error:
        raise DocumentError("is an encrypted PDF: save a copy without its password") from error
    except DocumentError:
        raise
    except Exception as error:  # a broken PDF can make pypdf raise almost anything
        raise DocumentError(f"is no readable PDF ({_one_line(error)}): open it and export it again") from error
    if not found:
        raise DocumentError("is a PDF without text, scanned perhaps: run a text recognition (OCR) on it first")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__
