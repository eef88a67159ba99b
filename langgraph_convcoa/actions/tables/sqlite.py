"""SQLite engine: a file that is opened read-only, with an authorizer that permits only the given tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from langgraph_convcoa.actions.base import ActionInputError
from langgraph_convcoa.actions.tables.engine import (
    Result,
    Table,
    TableError,
    columns_of,
    interrupted_after,
    quoted,
)
from langgraph_convcoa.errors import first_line
from langgraph_convcoa.files import open_sqlite

_SAMPLED_ROWS = 200
_LONGEST_VALUE = 1_000_000
_ABOUT_TABLES = """SELECT name, type FROM sqlite_master
    WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite~_%' ESCAPE '~'"""


class SQLiteTables:
    """Tables of an SQLite file, read-only. `EngineProcess` runs this in a process with limits.

    `names` are the tables that may be read (None: all). A value has at most a megabyte. Views may call harmless functions
    only. The tables are described as they were at opening, views without values.
    """

    dialect = "sqlite"
    default_schema = "main"

    def __init__(self, path: Path, names: Sequence[str] | None = None) -> None:
        self.source = str(path)
        self._path = path.resolve()
        wanted = {name.casefold().removeprefix("main.") for name in names} if names is not None else None
        try:
            with self._opened() as connection:
                found = connection.execute(_ABOUT_TABLES).fetchall()
                self._tables = [
                    self._table(connection, name, sampled=kind == "table")
                    for name, kind in found
                    if wanted is None or name.casefold() in wanted
                ]
        except (sqlite3.Error, UnicodeError) as error:
            raise self._unreadable(error) from None

    def tables(self) -> list[Table]:
        """See `Engine.tables`."""
        return self._tables

    def run(self, sql: str, max_rows: int, seconds: float) -> Result:
        """See `Engine.run`."""
        with self._opened() as connection, interrupted_after(seconds, connection.interrupt) as late:
            connection.set_authorizer(self._allow)
            try:
                cursor = connection.execute(sql)
                columns = [column[0] for column in cursor.description or ()]
                return Result.of(columns, cursor.fetchmany(max_rows + 1), max_rows)
            except (sqlite3.Error, sqlite3.Warning, UnicodeError) as error:
                if late.is_set():
                    raise TimeoutError(f"the query took more than {seconds:g} s") from None
                raise ActionInputError(f"the query failed: {first_line(error)}") from None

    def close(self) -> None:
        """Nothing to close: a connection lasts for one query."""

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            connection = open_sqlite(self._path, "ro", timeout=5.0, any_thread=True)
        except (sqlite3.Error, OSError) as error:
            raise self._unreadable(error) from None
        try:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
            connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            for setting in ("query_only = ON", "trusted_schema = OFF"):
                connection.execute(f"PRAGMA {setting}")
            yield connection
        finally:
            connection.close()

    def _allow(self, action: int, first: str | None, second: str | None, database: str | None, view: str | None) -> int:
        if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_FUNCTION):
            return sqlite3.SQLITE_OK
        names = {table.name.casefold() for table in self._tables}
        inside = not first or first.casefold() in names or (view or "").casefold() in names
        return sqlite3.SQLITE_OK if action == sqlite3.SQLITE_READ and inside else sqlite3.SQLITE_DENY

    def _table(self, connection: sqlite3.Connection, name: str, *, sampled: bool) -> Table:
        try:
            about = connection.execute(f"PRAGMA table_info({quoted(name)})").fetchall()
        except sqlite3.Error:
            # A view whose table is gone has no columns.
            about = []
        rows: Sequence[Sequence[object]] = []
        if about and sampled:
            columns = ", ".join(quoted(row[1]) for row in about)
            query = f"SELECT {columns} FROM {quoted(name)} LIMIT {_SAMPLED_ROWS}"  # noqa: S608 - names of the catalogue
            rows = connection.execute(query).fetchall()
        return Table(name, columns_of([(row[1], str(row[2]).upper(), "") for row in about], rows), self.source)

    def _unreadable(self, error: Exception) -> TableError:
        return TableError(f"{self.source} cannot be read: {first_line(error)}; check the file")
