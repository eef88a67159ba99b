"""Rows of JSON, JSON Lines, CSV and TSV files. A row knows its file and line for error messages."""

from __future__ import annotations

import csv
import gzip
import json
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from langgraph_convcoa.errors import InputError


class Row(dict[str, Any]):
    """A JSON object or a table's row; its methods check a field and return it. `where` is like "FILE, line N".

    Rows of published files also have the `split` of the file.

    Raises InputError if the value is not an object, or a field does not have the type that a method returns.
    """

    def __init__(self, value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise InputError(f"{where}: must be a JSON object.")
        super().__init__(value)
        self.where, self.split = where, ""

    def error(self, message: str) -> InputError:
        """An error that names the row."""
        return InputError(f"{self.where}: {message}")

    def text(self, key: str) -> str:
        """A string that is not blank."""
        value = self.get(key)
        if not isinstance(value, str) or not value.strip():
            raise self.error(f"`{key}` must be a string that is not empty.")
        return value

    def optional(self, key: str) -> str:
        """A string; empty if it is null or absent."""
        value = self.get(key)
        if not isinstance(value, str | None):
            raise self.error(f"`{key}` must be a string or null.")
        return value or ""

    def identity(self, key: str) -> str:
        """A number or a string, as a string."""
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
            raise self.error(f"`{key}` must be a number or a string.")
        return str(value)

    def strings(self, key: str) -> list[str]:
        """A list of strings; empty if it is null or absent."""
        value = self.get(key) or []
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise self.error(f"`{key}` must be a list of strings.")
        return value

    def answers(self, key: str) -> tuple[str, ...]:
        """A string or a list of strings, without blanks and duplicates; empty if it is null or absent."""
        value = self.get(key)
        values = [] if value is None else [value] if isinstance(value, str) else value
        if not isinstance(values, list) or not all(isinstance(text, str) for text in values):
            raise self.error(f"`{key}` must be a string or a list of strings.")
        return tuple(dict.fromkeys(text.strip() for text in values if text.strip()))

    def objects(self, key: str, *, optional: bool = False) -> list[Row]:
        """A list of objects; with `optional`, empty if it is null or absent."""
        value = [] if optional and self.get(key) is None else self.get(key)
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            raise self.error(f"`{key}` must be a list of objects.")
        return [Row(entry, self.where) for entry in value]

    def object(self, key: str) -> Row:
        """An object; empty if it is null or absent."""
        value = self.get(key) or {}
        if not isinstance(value, dict):
            raise self.error(f"`{key}` must be an object.")
        return Row(value, self.where)


def paired(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Pairs of question and answer from alternating texts."""
    return tuple(zip(texts[::2], [*texts[1::2], ""], strict=False))


def json_lines(path: Path) -> Iterator[Row]:
    """The objects of a JSON Lines file, read as they are needed."""
    for number, text in text_lines(path):
        if text.strip():
            where = f"{path}, line {number}"
            try:
                value = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise InputError(f"{where}: not JSON that can be read ({error}).") from None
            yield Row(value, where)


def json_document(path: Path) -> Any:
    """The value of a JSON file."""
    try:
        return json.loads("".join(text for _, text in text_lines(path)))
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {error.lineno}: not JSON ({error.msg}).") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON that can be read ({error}).") from None


def table_rows(path: Path) -> Iterator[Row]:
    """The rows of a TSV file under the names of its first line, read as they are needed."""
    reader = csv.reader((text for _, text in text_lines(path)), delimiter="\t")
    try:
        names = _long_row(reader) or []
        while (row := _long_row(reader)) is not None:
            where = f"{path}, line {reader.line_num}"
            if not row:
                continue
            if len(row) != len(names):
                raise InputError(f"{where}: {len(row)} fields where the first line names {len(names)}.")
            yield Row(dict(zip(names, row, strict=True)), where)
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: not TSV ({error}).") from None


def _long_row(reader: Iterator[list[str]]) -> list[str] | None:
    """Read the next row without csv's limit of 128 KiB for a field. The limit is global, so it is restored."""
    usual = csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    try:
        return next(reader, None)
    finally:
        csv.field_size_limit(usual)


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The numbered lines of a text file, read as they are needed. Raises InputError if it cannot be read or is not UTF-8."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                try:
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError:
                    raise InputError(f"{path}, line {number}: not UTF-8; save the whole file as UTF-8.") from None
                yield number, text
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read: {error}.") from error
