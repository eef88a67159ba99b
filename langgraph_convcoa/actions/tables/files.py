"""DuckDB and SQLite engines over files: a process with limits runs them (see `process`).

DuckDB reads files into memory, or opens a database, and is locked before the first query. SQLite opens a file read-only, with
an authorizer that permits only the given tables.
"""

from __future__ import annotations

import csv
import re
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb

from langgraph_convcoa.actions.base import ActionInputError
from langgraph_convcoa.actions.tables.engine import (
    EXCEL,
    READERS,
    Result,
    Table,
    TableError,
    columns_of,
    kind_of,
    quoted,
    table_name,
)
from langgraph_convcoa.errors import first_line
from langgraph_convcoa.files import sqlite_connection

_SAMPLED_ROWS = 1_000
_MOST_EMPTY_CELLS = 2_000_000
_LONGEST_VALUE = 1_000_000
_ABOUT_COLUMNS = """SELECT schema_name, table_name, column_name, data_type, comment FROM duckdb_columns()
    WHERE database_name = {} AND NOT internal ORDER BY table_oid, column_index"""
_ABOUT_TABLES = "SELECT schema_name, table_name, comment FROM duckdb_tables() WHERE database_name = {} AND NOT internal"
_ABOUT_SQLITE = """SELECT name, type FROM sqlite_master
    WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite~_%' ESCAPE '~'"""


class DuckDBTables:
    """Tables of files, or of a DuckDB database, read-only. `EngineProcess` runs this in a process with limits.

    After opening, DuckDB reaches no files, extensions or settings. Every query runs in a read-only transaction, and nothing is
    written to disk. `files` maps names of tables to files; sheets of a workbook become `name_sheet`. A `database` is opened
    read-only; if `names` are given ("table", "schema.table"), these tables are copied into memory and the file is closed.
    Views are described without values.
    """

    def __init__(
        self, files: Mapping[str, Path], database: Path | None, names: Sequence[str] | None, memory_limit: str
    ) -> None:
        self.source = str(database) if database else ", ".join(map(str, files.values()))
        self._memory_limit = memory_limit
        self._sources: dict[str, str] = {}
        settings: dict[str, Any] = {"memory_limit": memory_limit, "threads": "2", "temp_directory": ""}
        settings |= {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
        settings["allow_community_extensions"] = "false"
        whole = database if names is None else None
        try:
            self._connection = duckdb.connect(str(whole or ":memory:"), read_only=whole is not None, config=settings)
            if database is not None and whole is None:
                path = str(database).replace("'", "''")
                self._connection.execute(f"ATTACH '{path}' AS given (READ_ONLY)")
        except duckdb.Error as error:
            raise TableError(f"the database {self.source} cannot be opened: {first_line(error)}") from None
        for name, file in files.items():
            self._read(name, file)
        # From here on DuckDB reaches no file, not even through a view.
        for setting in ("python_enable_replacements = false", "enable_external_access = false"):
            self._connection.execute(f"SET {setting}")
        self._connection.execute("SET disabled_filesystems = 'LocalFileSystem'")
        copied = database is not None and names is not None
        self.tables = self._copied(names or ()) if copied else self._described()
        self._connection.execute("SET lock_configuration = true")

    def run(self, sql: str, max_rows: int, seconds: float) -> Result:
        """See `Engine.run`."""
        with closing(self._connection.cursor()) as cursor, _within(seconds, cursor.interrupt, duckdb.Error):
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            statements = cursor.extract_statements(sql)
            # `execute` runs every statement of a text, so a text with several statements is refused first.
            if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
                raise ActionInputError("only a SELECT is run, and one at a time")
            cursor.execute(statements[0])
            columns = [column[0] for column in cursor.description or ()]
            return Result.of(columns, cursor.fetchmany(max_rows + 1), max_rows)

    def _read(self, name: str, path: Path) -> None:
        kind = kind_of(path)
        if not path.stat().st_size:
            raise TableError(f"{path} cannot be read as a table: it is empty")
        if kind not in EXCEL:
            self._create(name, path, path)
            return
        for table, rows in _sheets(name, path):
            with tempfile.TemporaryDirectory() as folder:
                sheet = Path(folder) / "sheet.csv"
                with sheet.open("w", encoding="utf-8", newline="") as file:
                    csv.writer(file).writerows(_filled(rows, path))
                self._create(table, sheet, path)

    def _create(self, name: str, path: Path, shown: Path) -> None:
        try:
            # The readers take a path as a pattern, so its special signs are put in brackets.
            pattern = re.sub(r"([\[?*])", r"[\1]", str(path))
            relation: duckdb.DuckDBPyRelation = getattr(self._connection, READERS[kind_of(path)])(pattern)
            relation.create(name)
        except duckdb.OutOfMemoryException:
            raise self._too_large(str(shown)) from None
        except (duckdb.Error, RuntimeError, ValueError) as error:
            raise TableError(f"{shown} cannot be read as a table: {first_line(error)}") from None
        self._sources[name] = str(shown)

    def _copied(self, names: Sequence[str]) -> list[Table]:
        """Copy the named tables of the attached database and detach it."""
        wanted = {(name if "." in name else f"main.{name}").casefold() for name in names}
        try:
            tables = self._described(wanted)
            for table in tables:
                place = f"{quoted(table.schema or 'main')}.{quoted(table.name)}"
                self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(table.schema or 'main')}")
                self._connection.execute(f"CREATE TABLE {place} AS SELECT * FROM given.{place}")  # noqa: S608
            self._connection.execute("DETACH given")
        except duckdb.OutOfMemoryException:
            raise self._too_large(f"the tables of {self.source}") from None
        except duckdb.Error as error:
            raise TableError(f"the tables of {self.source} cannot be read: {first_line(error)}") from None
        return tables

    def _described(self, wanted: Set[str] | None = None) -> list[Table]:
        """The `wanted` tables and views of the attached database; without `wanted`, all of the main database."""
        database = "current_database()" if wanted is None else "'given'"
        about = self._connection.execute(_ABOUT_TABLES.format(database)).fetchall()
        comments = {(schema, name): comment for schema, name, comment in about}
        grouped: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
        for schema, name, column, type_, comment in self._connection.execute(_ABOUT_COLUMNS.format(database)).fetchall():
            grouped.setdefault((schema, name), []).append((column, type_, comment or ""))
        tables = []
        for (schema, name), columns in grouped.items():
            if wanted is not None and f"{schema}.{name}".casefold() not in wanted:
                continue
            rows: Sequence[Sequence[Any]] = []
            if (schema, name) in comments:
                place = ".".join(map(quoted, (schema, name) if wanted is None else ("given", schema, name)))
                with suppress(duckdb.Error):
                    # The names come from the catalogue, not from a query.
                    rows = self._connection.execute(f"SELECT * FROM {place} LIMIT {_SAMPLED_ROWS}").fetchall()  # noqa: S608
            source, shown_schema = self._sources.get(name, self.source), "" if schema == "main" else schema
            tables.append(Table(name, columns_of(columns, rows), source, shown_schema, comments.get((schema, name)) or ""))
        return tables

    def _too_large(self, what: str) -> TableError:
        return TableError(f"{what} does not fit into {self._memory_limit}: raise memory_limit, or put it into a database")


class SQLiteTables:
    """Tables of an SQLite file, read-only. `EngineProcess` runs this in a process with limits.

    `names` are the tables that may be read (None: all). A value has at most a megabyte. Views may call harmless functions
    only. The tables are described as they were at opening, views without values.
    """

    def __init__(self, path: Path, names: Sequence[str] | None = None) -> None:
        self.source = str(path)
        self._path = path.resolve()
        wanted = {name.casefold().removeprefix("main.") for name in names} if names is not None else None
        with self._opened() as connection:
            found = connection.execute(_ABOUT_SQLITE).fetchall()
            self.tables = [
                self._table(connection, name, sampled=kind == "table")
                for name, kind in found
                if wanted is None or name.casefold() in wanted
            ]

    def run(self, sql: str, max_rows: int, seconds: float) -> Result:
        """See `Engine.run`."""
        failures = (sqlite3.Error, sqlite3.Warning, UnicodeError)
        with self._opened() as connection, _within(seconds, connection.interrupt, *failures):
            connection.set_authorizer(self._allow)
            cursor = connection.execute(sql)
            columns = [column[0] for column in cursor.description or ()]
            return Result.of(columns, cursor.fetchmany(max_rows + 1), max_rows)

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        def unreadable(error: Exception) -> TableError:
            return TableError(f"{self.source} cannot be read: {first_line(error)}; check the file")

        with sqlite_connection(self._path, "ro", timeout=5.0, error=unreadable) as connection:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
            connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            for setting in ("query_only = ON", "trusted_schema = OFF"):
                connection.execute(f"PRAGMA {setting}")
            yield connection

    def _allow(self, action: int, first: str | None, second: str | None, database: str | None, view: str | None) -> int:
        if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_FUNCTION):
            return sqlite3.SQLITE_OK
        names = {table.name.casefold() for table in self.tables}
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


@contextmanager
def _within(seconds: float, interrupt: Callable[[], None], *failures: type[Exception]) -> Iterator[None]:
    """Limit a query in the block. Raises TimeoutError after `seconds`, and ActionInputError for any of the `failures`."""
    late, done = threading.Event(), threading.Event()

    def watch() -> None:
        wait = min(seconds, threading.TIMEOUT_MAX)
        # After the time-out, the query is interrupted every second, as an interrupt between two of its steps has no effect.
        while not done.wait(wait):
            late.set()
            interrupt()
            wait = 1.0

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    except failures as error:
        if late.is_set():
            raise TimeoutError(f"the query took more than {seconds:g} s") from None
        raise ActionInputError(f"the query failed: {first_line(error)}") from None
    finally:
        done.set()
        watcher.join()


def _sheets(name: str, path: Path) -> Iterator[tuple[str, Iterator[Sequence[Any]]]]:
    from openpyxl import load_workbook

    try:
        book = load_workbook(path, read_only=True, data_only=True)
    except Exception as error:  # noqa: BLE001 - openpyxl raises the errors of its zip and XML readers
        raise TableError(f"{path} cannot be read as an Excel file: {first_line(error)}") from None
    with closing(book):
        sheets = [sheet for sheet in book.worksheets if sheet.max_row and sheet.max_column]
        if not sheets:
            raise TableError(f"there is no sheet with cells in {path}")
        for sheet in sheets:
            yield (name if len(sheets) == 1 else f"{name}_{table_name(sheet.title)}"), sheet.iter_rows(values_only=True)


def _filled(rows: Iterable[Sequence[Any]], path: Path) -> Iterator[Sequence[Any]]:
    """The rows of a sheet. A sheet with millions of empty cells is refused: it has a cell far away from its table."""
    cells = filled = 0
    for row in rows:
        cells += len(row)
        filled += len(row) - row.count(None)
        if cells > _MOST_EMPTY_CELLS and cells > 100 * filled:
            raise TableError(
                f"a sheet of {path} has {cells} cells, nearly all of them empty: delete those outside of the table"
            )
        yield row
