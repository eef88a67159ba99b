"""Tables and the base of all reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from rich import table as rich_table
from rich.console import Group
from rich.text import Text

from langgraph_convcoa.text.terminal import one_line

_CELL = 200


@dataclass(frozen=True)
class Table:
    """A table that is shown as Markdown, or at a terminal by rich."""

    title: str  # may be empty
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""  # explains the figures
    left: int = 1  # the number of columns at the left that hold text

    def markdown(self) -> str:
        """The table in Markdown. The text of a cell cannot end the table."""
        rules = ["---" if place < self.left else "---:" for place in range(len(self.columns))]
        lines = ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in (self.columns, rules, *self.rows)]
        return "\n".join([*([f"## {self.title}", ""] if self.title else []), *([self.note, ""] if self.note else []), *lines])

    def __rich__(self) -> rich_table.Table:
        # As `Text`, since rich reads a string as markup.
        shown = rich_table.Table(
            title=Text(self.title) if self.title else None, caption=Text(self.note) if self.note else None
        )
        for place, name in enumerate(self.columns):
            is_text = place < self.left
            shown.add_column(Text(name), justify="left" if is_text else "right", no_wrap=is_text)
        for row in self.rows:
            shown.add_row(*(Text(one_line(cell)) for cell in row))
        return shown


class Report:
    """Base of the result of a measurement, a dataclass: tables for a person, `to_dict` for a program."""

    def tables(self) -> Sequence[Table]:
        """All tables, in the order in which they are read."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """The figures as JSON data."""
        return asdict(cast(Any, self))

    def __rich__(self) -> Group:
        return Group(*self.tables())


def shown(value: float | None, digits: int = 3) -> str:
    """A figure; empty for None."""
    return "" if value is None else f"{value:,.{digits}f}"


def percent(share: float | None) -> str:
    """A share in percent; empty for None."""
    return "" if share is None else f"{share:.1%}"


def _cell(text: str) -> str:
    return one_line(text, _CELL).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
