"""Rows of JSON, JSON Lines and TSV files, plain or gzipped, each with its place for messages."""

from __future__ import annotations

import csv
import gzip
import json
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from langgraph_convcoa.errors import InputError

Row = dict[str, Any]


def json_lines(path: Path) -> Iterator[tuple[str, Row]]:
    """The objects of a JSON Lines file with "FILE, line N"; read as they are needed.

    Raises:
        InputError: The file cannot be read, or a line is not UTF-8 or not a JSON object.
    """
    for number, text in _lines(path):
        where = f"{path}, line {number}"
        if not text.strip():
            continue
        try:
            row = json.loads(text)
        except ValueError as error:
            raise InputError(f"{where}: not JSON ({error}).") from None
        yield where, _object(row, where)


def json_document(path: Path) -> Any:
    """The value of a JSON file.

    Raises:
        InputError: The file cannot be read, or is not UTF-8 or not JSON.
    """
    text = "".join(text for _, text in _lines(path))
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {error.lineno}: not JSON ({error.msg}).") from None


def json_items(values: Any, path: Path, key: str = "item") -> Iterator[tuple[str, Row]]:
    """The objects of a list in a JSON file with "FILE, item N", from 1.

    Raises:
        InputError: It is no list, or an entry is no object.
    """
    if not isinstance(values, list):
        raise InputError(f"{path}: must hold a list of objects.")
    for number, value in enumerate(values, 1):
        where = f"{path}, {key} {number}"
        yield where, _object(value, where)


def text_lines(path: Path) -> Iterator[tuple[str, str]]:
    """The lines of a text file with "FILE, line N"; read as they are needed.

    Raises:
        InputError: The file cannot be read, or a line is not UTF-8.
    """
    return ((f"{path}, line {number}", text) for number, text in _lines(path))


def tab_rows(path: Path) -> Iterator[tuple[str, Row]]:
    """The rows of a TSV file, see `table_rows`."""
    return table_rows(path, "\t")


def table_rows(path: Path, delimiter: str) -> Iterator[tuple[str, Row]]:
    """The rows of a table under the names of its first line, with "FILE, line N"; read as they are needed.

    Raises:
        InputError: The file cannot be read, is not UTF-8, or a row has not as many fields as the first line.
    """
    reader = csv.reader((text for _, text in _lines(path)), delimiter=delimiter)
    try:
        names = _long_row(reader) or []
        while (row := _long_row(reader)) is not None:
            where = f"{path}, line {reader.line_num}"
            if not row:
                continue
            if len(row) != len(names):
                raise InputError(f"{where}: {len(row)} fields where the first line names {len(names)}.")
            yield where, dict(zip(names, row, strict=True))
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: not {'TSV' if delimiter == chr(9) else 'CSV'} ({error}).") from None


def _long_row(reader: Iterator[list[str]]) -> list[str] | None:
    """The next row; passages may be longer than the 128 KiB that csv allows, and its limit is one for the whole process."""
    usual = csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    try:
        return next(reader, None)
    finally:
        csv.field_size_limit(usual)


def text_field(row: Row, key: str, where: str) -> str:
    """A string that must be there and not be empty.

    Raises:
        InputError: It is not.
    """
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{where}: `{key}` must be a string that is not empty.")
    return value


def optional_field(row: Row, key: str, where: str) -> str:
    """A string, empty where it is null or absent.

    Raises:
        InputError: It is something else.
    """
    value = row.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InputError(f"{where}: `{key}` must be a string or null.")
    return value


def list_field(row: Row, key: str, where: str) -> list[Row]:
    """A list of objects that must be there.

    Raises:
        InputError: It is not.
    """
    value = row.get(key)
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise InputError(f"{where}: `{key}` must be a list of objects.")
    return value


def _object(value: Any, where: str) -> Row:
    if not isinstance(value, dict):
        raise InputError(f"{where}: must be a JSON object.")
    return value


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with _opened(path) as stream:
        for number, line in enumerate(stream, 1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError:
                raise InputError(f"{path}, line {number}: not UTF-8; save the whole file as UTF-8.") from None
            yield number, text


@contextmanager
def _opened(path: Path) -> Iterator[Iterable[bytes]]:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            yield stream
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {error}.") from error
