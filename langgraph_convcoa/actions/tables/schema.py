"""What tables there are: their columns, a few of their values, and the text of it that a planner reads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_LONGEST_VALUE = 40
_LONGEST_COMMENT = 160
_SAMPLES = 6


@dataclass(frozen=True)
class Column:
    """A column: its type as the database calls it, a few of its values, and its comment."""

    name: str
    type: str
    samples: tuple[str, ...] = ()
    comment: str = ""


@dataclass(frozen=True)
class Table:
    """A table that queries may read. `schema` is empty for the default one; `source` is the file or the database."""

    name: str
    columns: tuple[Column, ...]
    source: str
    schema: str = ""
    comment: str = ""

    @property
    def full_name(self) -> str:
        """The name that a query calls it by."""
        return f"{self.schema}.{self.name}" if self.schema else self.name


def samples_of(values: Iterable[object]) -> tuple[str, ...]:
    """The first few distinct values of a column, short and on one line each, as JSON shows them.

    Example:
        >>> samples_of(["North", "North", None, 3])
        ('"North"', '3')
    """
    found: dict[str, None] = {}
    for value in values:
        if value is None or isinstance(value, bytes | list | dict):
            continue
        text = str(value) if isinstance(value, int | float) else json.dumps(_one_line(str(value)), ensure_ascii=False)
        if len(text) <= _LONGEST_VALUE:
            found[text] = None
        if len(found) == _SAMPLES:
            break
    return tuple(found)


def describe(tables: Sequence[Table], budget: int) -> str:
    """The tables as text of at most `budget` characters: first without values, then without columns, where they are too many.

    Example:
        >>> describe([Table("sales", (Column("year", "BIGINT", ("2019",)),), "sales.csv")], 1000)
        '- sales, from sales.csv: year BIGINT (2019)'
    """
    for samples, comments, columns in ((True, True, True), (True, False, True), (False, False, True), (False, False, False)):
        text = "\n".join(_line(table, samples, comments, columns) for table in tables)
        if len(text) <= budget:
            return text
    note = "\n- and further tables"
    cut = text[: max(0, budget - len(note))]
    return (cut[: cut.rfind("\n")] if "\n" in cut else cut) + note


def _line(table: Table, samples: bool, comments: bool, columns: bool) -> str:
    head = f"- {quoted(table.full_name)}, from {_one_line(table.source)}"
    if comments and table.comment:
        head += f" ({_one_line(table.comment)[:_LONGEST_COMMENT]})"
    if not columns:
        return f"{head}: {len(table.columns)} columns"
    return f"{head}: {', '.join(_column(column, samples, comments) for column in table.columns)}"


def _column(column: Column, samples: bool, comments: bool) -> str:
    notes = [_one_line(column.comment)[:_LONGEST_COMMENT]] if comments and column.comment else []
    notes += [f"{', '.join(column.samples)}"] if samples and column.samples else []
    return f"{quoted(column.name)} {_one_line(column.type)[:200]}" + (f" ({'; '.join(notes)})" if notes else "")


def quoted(name: str) -> str:
    """A name as SQL wants it: in double quotes where it is not a plain word.

    Example:
        >>> quoted("revenue"), quoted("unit price")
        ('revenue', '"unit price"')
    """
    if re.fullmatch(r"[A-Za-z_][\w.]*", name):
        return name
    escaped = _one_line(name).replace('"', '""')
    return f'"{escaped}"'


def _one_line(text: str) -> str:
    return " ".join(text.split())
