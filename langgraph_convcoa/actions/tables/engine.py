"""Tables that queries may read, their description for the planner, and the interface of engines that run queries."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

from langgraph_convcoa.errors import ConvCoAError
from langgraph_convcoa.text.clean import flat

Sources = str | Path | Sequence[str | Path] | Mapping[str, str | Path]
"""Files, folders and database URLs; a mapping also gives names for their tables."""
READERS = dict.fromkeys(("csv", "tsv"), "read_csv") | dict.fromkeys(("json", "jsonl", "ndjson"), "read_json")
READERS["parquet"] = "read_parquet"  # DuckDB's function for each kind of file.
EXCEL = ("xlsx", "xlsm")
_LONGEST_VALUE = 40
_LONGEST_COMMENT = 160
_LONGEST_CELL = 200


class TableError(ConvCoAError):
    """A table or a database cannot be opened or read."""


@dataclass(frozen=True)
class Column:
    """A column: its type as the database calls it, a few of its values, and its comment."""

    name: str
    type: str
    samples: tuple[str, ...] = ()
    comment: str = ""


@dataclass(frozen=True)
class Table:
    """A table that queries may read. `schema` is empty for the default schema; `source` is the file or the database."""

    name: str
    columns: tuple[Column, ...]
    source: str
    schema: str = ""
    comment: str = ""

    @property
    def full_name(self) -> str:
        """The table's name in a query, with its schema if there is one."""
        return f"{self.schema}.{self.name}" if self.schema else self.name


def shown(value: Any) -> str:
    """A cell as text on one line: floats are rounded, None is "none"."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        text = f"{value:.4f}".rstrip("0").rstrip(".") if abs(value) >= 0.01 else f"{value:.4g}"
        return "0" if text == "-0" else text
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return value.date().isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        return f"({len(value)} bytes)"
    text = flat(str(value)[: 4 * _LONGEST_CELL])
    return text if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL]}…"


@dataclass(frozen=True)
class Result:
    """The first rows of a query, as text; `more` is True if there are further rows."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more: bool

    @classmethod
    def of(cls, columns: Iterable[str], rows: Sequence[Sequence[Any]], max_rows: int) -> Result:
        """Keep at most `max_rows` of the fetched rows, and no more rows than fit into 8,000 characters."""
        kept: list[tuple[str, ...]] = []
        size = 0
        for row in rows[:max_rows]:
            cells = tuple(map(shown, row))
            size += sum(len(cell) + 3 for cell in cells)
            if kept and size > 8_000:
                break
            kept.append(cells)
        return cls(tuple(columns), tuple(kept), len(rows) > len(kept))


class Engine(Protocol):
    """A database or a set of files. `source` is its name in citations, without user, password and options; `dialect` is
    sqlglot's name of its SQL; `default_schema` is the schema of its tables ("" for none).
    """

    source: str
    dialect: str
    default_schema: str

    def tables(self) -> list[Table]:
        """The current tables that queries may read."""
        ...

    def run(self, sql: str, max_rows: int, seconds: float) -> Result:
        """Run a query that the guard has checked. Raises ActionInputError if it fails, TimeoutError if it takes too long."""
        ...

    def close(self) -> None: ...


def columns_of(described: Iterable[tuple[str, str, str]], rows: Sequence[Sequence[object]]) -> tuple[Column, ...]:
    """Columns from their names, types and comments, with sample values from rows."""
    return tuple(Column(name, kind, _samples(row[n] for row in rows), note) for n, (name, kind, note) in enumerate(described))


def _samples(values: Iterable[object]) -> tuple[str, ...]:
    """The first few distinct values, short and on one line each, as JSON shows them."""
    found: dict[str, None] = {}
    for value in values:
        if value is None or isinstance(value, bytes | list | dict):
            continue
        text = str(value) if isinstance(value, int | float) else json.dumps(flat(str(value)), ensure_ascii=False)
        if len(text) <= _LONGEST_VALUE:
            found[text] = None
        if len(found) == 6:
            break
    return tuple(found)


def describe(tables: Sequence[Table], budget: int, *, values: bool = True) -> str:
    """The tables as text of at most `budget` characters. A longer text loses comments, then values, then columns."""
    for samples, comments, columns in ((True, True, True), (True, False, True), (False, False, True), (False, False, False)):
        text = "\n".join(_line(table, samples and values, comments, columns) for table in tables)
        if len(text) <= budget:
            return text
    note = "\n- and further tables"
    cut = text[: max(0, budget - len(note))]
    return (cut[: cut.rfind("\n")] if "\n" in cut else cut) + note


def _line(table: Table, samples: bool, comments: bool, columns: bool) -> str:
    head = f"- {_plain(table.full_name)}, from {flat(table.source)}"
    if comments and table.comment:
        head += f" ({flat(table.comment)[:_LONGEST_COMMENT]})"
    if not columns:
        return f"{head}: {len(table.columns)} columns"
    described = []
    for column in table.columns:
        notes = [flat(column.comment)[:_LONGEST_COMMENT]] if comments and column.comment else []
        notes += [", ".join(column.samples)] if samples and column.samples else []
        text = f"{_plain(column.name)} {flat(column.type)[:200]}"
        described.append(f"{text} ({'; '.join(notes)})" if notes else text)
    return f"{head}: {', '.join(described)}"


def _plain(name: str) -> str:
    """A name, in double quotes unless it is a plain word."""
    return name if re.fullmatch(r"[A-Za-z_][\w.]*", name) else quoted(flat(name))


def quoted(name: str) -> str:
    """A name as SQL quotes it."""
    return '"' + name.replace('"', '""') + '"'


def kind_of(path: Path) -> str:
    """The suffix of a table file in lower case without the dot and without .gz; "" for other files."""
    endings = [ending.lower() for ending in path.suffixes]
    packed = len(endings) > 1 and endings[-1] == ".gz"
    kind = (endings[-2] if packed else endings[-1])[1:] if endings else ""
    known = kind in READERS or (kind in EXCEL and not packed)
    return kind if known else ""


def table_name(text: str) -> str:
    """A table name that needs no quotes in SQL: "Sales 2019 (final)" becomes Sales_2019_final."""
    name = re.sub(r"\W+", "_", text).strip("_") or "data"
    return name if name[0].isalpha() else f"t_{name}"
