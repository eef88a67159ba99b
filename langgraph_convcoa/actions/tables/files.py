"""DuckDB engine: files that are read into memory, or a DuckDB database, locked before the first query."""

from __future__ import annotations

import contextlib
import csv
import re
import tempfile
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langgraph_convcoa.actions.base import ActionInputError
from langgraph_convcoa.actions.tables.engine import (
    Result,
    Samples,
    Table,
    TableError,
    columns_of,
    first_line,
    interrupted_after,
)

if TYPE_CHECKING:
    import duckdb

_READERS = dict.fromkeys(("csv", "tsv"), "read_csv") | dict.fromkeys(("json", "jsonl", "ndjson"), "read_json")
_READERS["parquet"] = "read_parquet"
_EXCEL = ("xlsx", "xlsm")
_SAMPLED_ROWS = 1_000
_MOST_EMPTY_CELLS = 2_000_000
_ABOUT_COLUMNS = """SELECT schema_name, table_name, column_name, data_type, comment FROM duckdb_columns()
    WHERE database_name = current_database() AND NOT internal ORDER BY table_oid, column_index"""
_NO_FILES = (
    "python_enable_replacements = false",
    "enable_external_access = false",
    "disabled_filesystems = 'LocalFileSystem'",
)
_ABOUT_VIEWS = "SELECT schema_name, view_name FROM duckdb_views() WHERE database_name = current_database() AND NOT internal"
_ABOUT_TABLES = """SELECT table_name, comment FROM duckdb_tables()
    WHERE database_name = current_database() AND NOT internal AND comment IS NOT NULL"""


def _close(connections: list[duckdb.DuckDBPyConnection]) -> None:
    """Close and forget the connections: one that lives until Python exits makes DuckDB report leaks."""
    while connections:
        connections.pop().close()


class DuckDBTables:
    """Tables of files, or of a DuckDB database, read-only.

    After opening, DuckDB reaches no files, extensions or settings. Every query runs in a read-only transaction, and nothing is
    written to disk. `files` maps names of tables to files; sheets of a workbook become `name_sheet`. A `database` is opened
    read-only; if `names` are given ("table", "schema.table"), these tables are copied into memory and the file is closed. With
    `sample_views=False` no values of views are read. `EngineProcess` runs this in a process with limits.
    """

    dialect = "duckdb"
    default_schema = "main"

    def __init__(
        self,
        files: Mapping[str, Path] | None = None,
        *,
        database: Path | None = None,
        names: Sequence[str] | None = None,
        sample_views: bool = True,
        memory_limit: str = "1GB",
        threads: int = 2,
    ) -> None:
        self.source = str(database) if database else ", ".join(str(path) for path in (files or {}).values())
        self._files = dict(files or {})
        self._database = database
        self._names = names
        self._sample_views = sample_views
        self._read_from = [database] if database is not None and names is not None else list(self._files.values())
        self._limits = {"memory_limit": memory_limit, "threads": str(threads)}
        self._sources: dict[str, str] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._connections: list[duckdb.DuckDBPyConnection] = []
        # Closed at exit too: threads of an open connection may crash the process then.
        weakref.finalize(self, _close, self._connections)
        self._open()

    def tables(self) -> list[Table]:
        """The tables with a few values of each column; changed files are read again."""
        with self._lock:
            if self._stamp != _stamp(self._read_from):
                _close(self._connections)
            self._opened()
            return self._tables

    def run(self, sql: str, max_rows: int, seconds: float) -> Result:
        """See `Engine.run`."""
        import duckdb

        with self._lock:
            cursor = self._opened().cursor()
        try:
            with interrupted_after(seconds, cursor.interrupt) as late:
                try:
                    cursor.execute("BEGIN TRANSACTION READ ONLY")
                    cursor.execute(_only_select(cursor, sql))
                    columns = [column[0] for column in cursor.description or ()]
                    return Result.of(columns, cursor.fetchmany(max_rows + 1), max_rows)
                except duckdb.Error as error:
                    if late.is_set():
                        raise TimeoutError(f"the query took more than {seconds:g} s") from None
                    raise ActionInputError(f"the query failed: {first_line(error)}") from None
        finally:
            cursor.close()

    def close(self) -> None:
        """Free the memory of the tables."""
        with self._lock:
            self._closed = True
            _close(self._connections)

    @property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        return self._connections[0]

    def _opened(self) -> duckdb.DuckDBPyConnection:
        if self._closed:
            raise TableError(f"the tables of {self.source} are closed: open them again")
        if not self._connections:
            self._open()
        return self._connection

    def _open(self) -> None:
        import duckdb

        closed = ("autoinstall_known_extensions", "autoload_known_extensions", "allow_community_extensions")
        settings: dict[str, Any] = {**self._limits, **dict.fromkeys(closed, "false"), "temp_directory": ""}
        self._stamp = _stamp(self._read_from)
        whole = self._database if self._names is None else None
        try:
            self._connections.append(duckdb.connect(str(whole or ":memory:"), read_only=whole is not None, config=settings))
            if self._database is not None and whole is None:
                path = str(self._database).replace("'", "''")
                self._connection.execute(f"ATTACH '{path}' AS given (READ_ONLY)")
        except duckdb.Error as error:
            raise TableError(f"the database {self.source} cannot be opened: {first_line(error)}") from None
        try:
            for name, file in self._files.items():
                self._read(name, file)
            # From here on DuckDB reaches no file, also not by a view.
            for setting in _NO_FILES:
                self._connection.execute(f"SET {setting}")
            if self._database is not None and self._names is not None:
                self._copy_given(self._names)
            self._connection.execute("SET lock_configuration = true")
            self._tables = self._described()
        except BaseException:
            _close(self._connections)
            raise

    def _read(self, name: str, path: Path) -> None:
        kind = kind_of(path)
        if not path.stat().st_size:
            raise TableError(f"{path} cannot be read as a table: it is empty")
        if kind in _EXCEL:
            for table, rows in _sheets(name, path):
                with tempfile.TemporaryDirectory() as folder:
                    sheet = Path(folder) / "sheet.csv"
                    with sheet.open("w", encoding="utf-8", newline="") as file:
                        csv.writer(file).writerows(_filled(rows, path))
                    self._create(table, "read_csv", sheet, path)
        else:
            self._create(name, _READERS[kind], path, path)

    def _create(self, name: str, reader: str, path: Path, shown: Path) -> None:
        import duckdb

        try:
            # The readers take a path as a pattern, so its special signs are put in brackets.
            pattern = re.sub(r"([\[?*])", r"[\1]", str(path))
            relation: duckdb.DuckDBPyRelation = getattr(self._connection, reader)(pattern)
            relation.create(name)
        except duckdb.OutOfMemoryException:
            limit = self._limits["memory_limit"]
            raise TableError(f"{shown} does not fit into {limit}: raise memory_limit, or put it into a database") from None
        except (duckdb.Error, RuntimeError, ValueError) as error:
            raise TableError(f"{shown} cannot be read as a table: {first_line(error)}") from None
        self._sources[name] = str(shown)

    def _copy_given(self, names: Sequence[str]) -> None:
        """Copy the named tables of the attached database, with their comments, and detach it."""
        import duckdb

        wanted = {(name if "." in name else f"main.{name}").casefold() for name in names}
        about = _ABOUT_COLUMNS.replace("current_database()", "'given'")
        rows = self._connection.execute(about).fetchall()
        comments = dict(self._connection.execute(_ABOUT_TABLES.replace("current_database()", "'given'")).fetchall())
        try:
            for schema, name in dict.fromkeys((row[0], row[1]) for row in rows):
                if f"{schema}.{name}".casefold() in wanted:
                    place = f"{_identifier(schema)}.{_identifier(name)}"
                    self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_identifier(schema)}")
                    self._connection.execute(f"CREATE TABLE {place} AS SELECT * FROM given.{place}")  # noqa: S608
                    notes = [(f"TABLE {place}", comments.get(name))]
                    notes += [(f"COLUMN {place}.{_identifier(r[2])}", r[4]) for r in rows if r[:2] == (schema, name)]
                    for what, note in notes:
                        if note:
                            escaped = str(note).replace("'", "''")
                            self._connection.execute(f"COMMENT ON {what} IS '{escaped}'")
            self._connection.execute("DETACH given")
        except duckdb.OutOfMemoryException:
            limit = self._limits["memory_limit"]
            raise TableError(f"the tables of {self.source} do not fit into {limit}: raise memory_limit") from None
        except duckdb.Error as error:
            raise TableError(f"the tables of {self.source} cannot be read: {first_line(error)}") from None

    def _described(self) -> list[Table]:
        import duckdb

        comments = dict(self._connection.execute(_ABOUT_TABLES).fetchall())
        grouped: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
        for schema, table, column, type_, comment in self._connection.execute(_ABOUT_COLUMNS).fetchall():
            grouped.setdefault((schema, table), []).append((column, type_, comment or ""))
        views = set(self._connection.execute(_ABOUT_VIEWS).fetchall())
        samples = Samples()
        tables = []
        for (schema, name), columns in grouped.items():
            where = f"{_identifier(schema)}.{_identifier(name)}"
            rows: Sequence[Sequence[Any]] = []
            if self._sample_views or (schema, name) not in views:
                with samples.limited(self._connection.interrupt) as allowed, contextlib.suppress(duckdb.Error):
                    # The names come from the catalogue, not from a query.
                    query = f"SELECT * FROM {where} LIMIT {_SAMPLED_ROWS}"  # noqa: S608
                    rows = self._connection.execute(query).fetchall() if allowed else []
            source, shown_schema = self._sources.get(name, self.source), "" if schema == "main" else schema
            tables.append(Table(name, columns_of(columns, rows), source, shown_schema, comments.get(name, "")))
        if not tables:
            called = f" {' or '.join(map(repr, self._names))[:200]}" if self._names is not None else ""
            raise TableError(f"there is no table{called} in {self.source}: check the name")
        return tables


def _only_select(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
    """The statement as DuckDB parses it. It must be a single SELECT; `execute` would run several statements."""
    import duckdb

    statements = connection.extract_statements(sql)
    if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
        raise ActionInputError("only a SELECT is run, and one at a time")
    return statements[0]


def _identifier(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def kind_of(path: Path) -> str:
    """The suffix of a table file without the dot and without .gz; empty for other files.

    Example:
        >>> kind_of(Path("sales.CSV.gz")), kind_of(Path("notes.txt"))
        ('csv', '')
    """
    endings = [ending.lower() for ending in path.suffixes]
    packed = len(endings) > 1 and endings[-1] == ".gz"
    kind = (endings[-2] if packed else endings[-1])[1:] if endings else ""
    known = kind in _READERS or (kind in _EXCEL and not packed)
    return kind if known else ""


def table_name(text: str) -> str:
    """A table name that needs no quotes in SQL.

    Example:
        >>> table_name("Sales 2019 (final)"), table_name("2019")
        ('Sales_2019_final', 't_2019')
    """
    name = re.sub(r"\W+", "_", text).strip("_") or "data"
    return name if name[0].isalpha() else f"t_{name}"


def _sheets(name: str, path: Path) -> Iterator[tuple[str, Iterator[Sequence[Any]]]]:
    from openpyxl import load_workbook

    try:
        book = load_workbook(path, read_only=True, data_only=True)
    except Exception as error:  # noqa: BLE001 - openpyxl raises what its zip and XML readers do
        raise TableError(f"{path} cannot be read as an Excel file: {first_line(error)}") from None
    try:
        sheets = [sheet for sheet in book.worksheets if sheet.max_row and sheet.max_column]
        if not sheets:
            raise TableError(f"there is no sheet with cells in {path}")
        for sheet in sheets:
            yield (name if len(sheets) == 1 else f"{name}_{table_name(sheet.title)}"), sheet.iter_rows(values_only=True)
    finally:
        book.close()


def _filled(rows: Iterable[Sequence[Any]], path: Path) -> Iterator[Sequence[Any]]:
    """The rows of a sheet. A sheet with millions of empty cells is refused: one cell lies far from the others."""
    cells = filled = 0
    for row in rows:
        cells += len(row)
        filled += len(row) - row.count(None)
        if cells > _MOST_EMPTY_CELLS and cells > 100 * filled:
            raise TableError(
                f"a sheet of {path} has {cells} cells, nearly all of them empty: delete those outside of the table"
            )
        yield row


def _stamp(paths: Iterable[Path]) -> tuple[tuple[str, int, int], ...]:
    try:
        return tuple((str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in paths)
    except OSError as error:
        raise TableError(f"{error.filename} cannot be opened ({error.strerror}): give another file") from None
