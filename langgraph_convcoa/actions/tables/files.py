"""DuckDB engine: files that are read into memory, or a DuckDB database, locked before the first query."""

from __future__ import annotations

import contextlib
import csv
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    import duckdb

_READERS = dict.fromkeys(("csv", "tsv"), "read_csv") | dict.fromkeys(("json", "jsonl", "ndjson"), "read_json")
_READERS["parquet"] = "read_parquet"
_EXCEL = ("xlsx", "xlsm")
_SAMPLED_ROWS = 1_000
_MOST_EMPTY_CELLS = 2_000_000
_ABOUT_COLUMNS = """SELECT schema_name, table_name, column_name, data_type, comment FROM duckdb_columns()
    WHERE database_name = {} AND NOT internal ORDER BY table_oid, column_index"""
_ABOUT_TABLES = "SELECT schema_name, table_name, comment FROM duckdb_tables() WHERE database_name = {} AND NOT internal"
_NO_FILES = (
    "python_enable_replacements = false",
    "enable_external_access = false",
    "disabled_filesystems = 'LocalFileSystem'",
)


class DuckDBTables:
    """Tables of files, or of a DuckDB database, read-only. `EngineProcess` runs this in a process with limits.

    After opening, DuckDB reaches no files, extensions or settings. Every query runs in a read-only transaction, and nothing is
    written to disk. `files` maps names of tables to files; sheets of a workbook become `name_sheet`. A `database` is opened
    read-only; if `names` are given ("table", "schema.table"), these tables are copied into memory and the file is closed.
    Views are described without values.
    """

    dialect = "duckdb"
    default_schema = "main"

    def __init__(
        self, files: Mapping[str, Path], database: Path | None, names: Sequence[str] | None, memory_limit: str
    ) -> None:
        import duckdb

        self.source = str(database) if database else ", ".join(map(str, files.values()))
        self._memory_limit = memory_limit
        self._sources: dict[str, str] = {}
        closed = ("autoinstall_known_extensions", "autoload_known_extensions", "allow_community_extensions")
        settings: dict[str, Any] = {"memory_limit": memory_limit, "threads": "2", "temp_directory": ""}
        settings |= dict.fromkeys(closed, "false")
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
        for setting in _NO_FILES:
            self._connection.execute(f"SET {setting}")
        if database is not None and names is not None:
            self._tables = self._copied({(name if "." in name else f"main.{name}").casefold() for name in names})
        else:
            self._tables = self._described("current_database()", lambda schema, name: True)
        self._connection.execute("SET lock_configuration = true")

    def tables(self) -> list[Table]:
        """See `Engine.tables`."""
        return self._tables

    def run(self, sql: str, max_rows: int, seconds: float) -> Result:
        """See `Engine.run`."""
        import duckdb

        cursor = self._connection.cursor()
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
        self._connection.close()

    def _read(self, name: str, path: Path) -> None:
        kind = kind_of(path)
        if not path.stat().st_size:
            raise TableError(f"{path} cannot be read as a table: it is empty")
        if kind not in _EXCEL:
            self._create(name, path, path)
            return
        for table, rows in _sheets(name, path):
            with tempfile.TemporaryDirectory() as folder:
                sheet = Path(folder) / "sheet.csv"
                with sheet.open("w", encoding="utf-8", newline="") as file:
                    csv.writer(file).writerows(_filled(rows, path))
                self._create(table, sheet, path)

    def _create(self, name: str, path: Path, shown: Path) -> None:
        import duckdb

        try:
            # The readers take a path as a pattern, so its special signs are put in brackets.
            pattern = re.sub(r"([\[?*])", r"[\1]", str(path))
            relation: duckdb.DuckDBPyRelation = getattr(self._connection, _READERS[kind_of(path)])(pattern)
            relation.create(name)
        except duckdb.OutOfMemoryException:
            raise self._too_large(str(shown)) from None
        except (duckdb.Error, RuntimeError, ValueError) as error:
            raise TableError(f"{shown} cannot be read as a table: {first_line(error)}") from None
        self._sources[name] = str(shown)

    def _copied(self, wanted: Set[str]) -> list[Table]:
        """Copy the named tables of the attached database and detach it."""
        import duckdb

        try:
            tables = self._described("'given'", lambda schema, name: f"{schema}.{name}".casefold() in wanted)
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

    def _described(self, database: str, allowed: Callable[[str, str], bool]) -> list[Table]:
        """The allowed tables and views of a database. `database` is an SQL expression for its name."""
        import duckdb

        def about(query: str) -> list[tuple[Any, ...]]:
            rows: list[tuple[Any, ...]] = self._connection.execute(query.format(database)).fetchall()
            return rows

        comments = {(schema, name): comment for schema, name, comment in about(_ABOUT_TABLES)}
        grouped: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
        for schema, name, column, type_, comment in about(_ABOUT_COLUMNS):
            grouped.setdefault((schema, name), []).append((column, type_, comment or ""))
        tables = []
        for (schema, name), columns in grouped.items():
            if not allowed(schema, name):
                continue
            rows: Sequence[Sequence[Any]] = []
            if (schema, name) in comments:
                place = ".".join(map(quoted, ("given", schema, name) if database == "'given'" else (schema, name)))
                with contextlib.suppress(duckdb.Error):
                    # The names come from the catalogue, not from a query.
                    rows = self._connection.execute(f"SELECT * FROM {place} LIMIT {_SAMPLED_ROWS}").fetchall()  # noqa: S608
            source, shown_schema = self._sources.get(name, self.source), "" if schema == "main" else schema
            tables.append(Table(name, columns_of(columns, rows), source, shown_schema, comments.get((schema, name)) or ""))
        return tables

    def _too_large(self, what: str) -> TableError:
        return TableError(f"{what} does not fit into {self._memory_limit}: raise memory_limit, or put it into a database")


def _only_select(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
    """The statement as DuckDB parses it. It must be a single SELECT; `execute` would run several statements."""
    import duckdb

    statements = connection.extract_statements(sql)
    if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
        raise ActionInputError("only a SELECT is run, and one at a time")
    return statements[0]


def kind_of(path: Path) -> str:
    """The suffix of a table file in lower case without the dot and without .gz; "" for other files."""
    endings = [ending.lower() for ending in path.suffixes]
    packed = len(endings) > 1 and endings[-1] == ".gz"
    kind = (endings[-2] if packed else endings[-1])[1:] if endings else ""
    known = kind in _READERS or (kind in _EXCEL and not packed)
    return kind if known else ""


def table_name(text: str) -> str:
    """A table name that needs no quotes in SQL: "Sales 2019 (final)" becomes Sales_2019_final."""
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
    """The rows of a sheet. A sheet with millions of empty cells is refused: some cell lies far outside its table."""
    cells = filled = 0
    for row in rows:
        cells += len(row)
        filled += len(row) - row.count(None)
        if cells > _MOST_EMPTY_CELLS and cells > 100 * filled:
            raise TableError(
                f"a sheet of {path} has {cells} cells, nearly all of them empty: delete those outside of the table"
            )
        yield row
