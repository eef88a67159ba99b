"""What runs a checked query: read-only, with limits on rows, time and memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from langgraph_convcoa.actions.tables.schema import Table
from langgraph_convcoa.errors import ConvCoAError


class TableError(ConvCoAError):
    """A table or a database cannot be opened or read."""


@dataclass(frozen=True)
class Result:
    """Rows of a query; `more` says that there are others than these."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    more: bool


class Engine(Protocol):
    """One place with tables.

    Attributes:
        source: What a citation calls it; without user, password and options.
        dialect: sqlglot's name of its SQL.
        default_schema: A schema that its tables may be called with, or nothing.
    """

    source: str
    dialect: str
    default_schema: str

    def tables(self) -> list[Table]:
        """The tables that queries may read, as they are now."""
        ...

    def run(self, sql: str, max_rows: int, seconds: float) -> Result:
        """Run a query that the guard wrote.

        Raises:
            ActionInputError: The database refuses it.
            TimeoutError: It took longer than `seconds`.
            TableError: The database cannot be reached.
        """
        ...

    def close(self) -> None: ...


@contextmanager
def interrupted_after(seconds: float, interrupt: Callable[[], None]) -> Iterator[threading.Event]:
    """Call `interrupt` when the block takes longer; the event then says so.

    Once more every second, because what is called between two steps of a query is not heard.
    """
    late, done = threading.Event(), threading.Event()

    def watch() -> None:
        if done.wait(seconds):
            return
        late.set()
        while not done.is_set():
            interrupt()
            done.wait(1.0)

    watcher = threading.Thread(target=watch, name="convcoa-query-limit", daemon=True)
    watcher.start()
    try:
        yield late
    finally:
        done.set()
        watcher.join()


def result_of(columns: Sequence[str], rows: Sequence[Sequence[Any]], max_rows: int) -> Result:
    """A result of at most `max_rows` of the rows that were fetched, one more than these where there are more."""
    return Result(tuple(columns), tuple(tuple(row) for row in rows[:max_rows]), len(rows) > max_rows)
