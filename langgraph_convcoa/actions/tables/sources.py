"""Opens files, folders and database URLs as engines. The engine of databases uses read-only transactions."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, column, create_engine, inspect, make_url, select, table
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from langgraph_convcoa.actions.base import ActionInputError
from langgraph_convcoa.actions.tables.engine import Engine, Result, Sources, Table, TableError, columns_of, kind_of, table_name
from langgraph_convcoa.actions.tables.process import EngineProcess
from langgraph_convcoa.errors import InputError, first_line

_URL = re.compile(r"[A-Za-z][\w+.-]*://")
_ENDINGS = ".csv .tsv .parquet .json .jsonl .xlsx, an SQLite or DuckDB file"
_DIALECTS = {"postgresql": "postgres", "mariadb": "mysql", "mssql": "tsql"}
_SAMPLED_ROWS = 200
_READ_SECONDS = 30.0  # Seconds that PostgreSQL may take for each statement that reads its catalogue.
_MOST_MILLISECONDS = 2_000_000_000  # A little less than PostgreSQL's longest time limit.
_CANCELLED = ("57014", "25P03")
_SECRET_KEY = re.compile(r"pass|pwd|secret|token|key", re.IGNORECASE)
_POSTGRES_ARGUMENTS = {"connect_timeout": 10, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}


def open_sources(sources: Sources, tables: Sequence[str] | None, memory_limit: str) -> list[Engine]:
    """Engines over the sources: one for all files, so that a query can join them, and one for each database."""
    named = list(_named(sources))
    if not named:
        raise InputError("there are no tables: give a CSV, Parquet, Excel or JSON file, or a database URL")
    files: dict[str, Path] = {}
    engines: list[Engine] = []
    try:
        for name, kind, place in named:
            if kind == "table":
                files[_free_name(name, files)] = Path(place)
            elif kind == "url":
                engines.append(DatabaseTables(str(place), tables))
            else:
                engines.append(EngineProcess(kind, database=Path(place), names=tables, memory_limit=memory_limit))
        if files:
            engines.insert(0, EngineProcess("duckdb", files=files, memory_limit=memory_limit))
        _check_names(engines, tables or ())
    except BaseException:
        for engine in engines:
            engine.close()
        raise
    return engines


def _named(sources: Sources) -> Iterator[tuple[str, str, str | Path]]:
    """Each source as `_found` describes it. If a mapping names a single table, the table gets that name."""
    if isinstance(sources, Mapping):
        for name, source in sources.items():
            if not re.fullmatch(r"[A-Za-z]\w{0,62}", name):
                raise InputError(f"the table name {name!r} must be a letter, then letters, digits or _")
            found = list(_found(source))
            yield from ((name if len(found) == 1 else own, kind, place) for own, kind, place in found)
        return
    for source in [sources] if isinstance(sources, str | Path) else sources:
        yield from _found(source)


def _found(source: str | Path) -> Iterator[tuple[str, str, str | Path]]:
    """For each file of a source: a name for its table, its kind ("table", "duckdb", "sqlite", "url"), and its path or URL."""
    if not isinstance(source, str | Path):
        raise InputError(f"a source of tables must be a path or a database URL, not {type(source).__name__}")
    if isinstance(source, str) and _URL.match(source):
        scheme = source.partition(":")[0].lower()
        if scheme in ("http", "https", "ftp", "s3", "file"):
            raise InputError(f"tables are not read from {source.split(':')[0]} addresses: download the file first")
        if not scheme.startswith(("duckdb", "sqlite")):
            yield "", "url", source
            return
        kind, name = ("duckdb", "DuckDB") if scheme.startswith("duckdb") else ("sqlite", "SQLite")
        path = Path(source.split(":///", 1)[-1] if kind == "duckdb" else parsed_url(source).database or "")
        if not path.is_file():
            raise TableError(f"there is no {name} database at {path}: write {kind}:///path/to/file")
        yield "", kind, path
        return
    path = Path(source)
    files = sorted(entry for entry in path.iterdir() if entry.is_file() and kind_of(entry)) if path.is_dir() else [path]
    if not files:
        raise TableError(f"there is no table in the folder {path}: a table is a file of {_ENDINGS}")
    for file in files:
        if not file.is_file():
            raise TableError(f"there is no file {path}: check the path")
        with file.open("rb") as opened:
            head = opened.read(16)
        kind = "sqlite" if head.startswith(b"SQLite format 3\0") else "duckdb" if head[8:12] == b"DUCK" else "table"
        if kind == "table" and not kind_of(file):
            raise TableError(f"{path} is no table: give {_ENDINGS}")
        yield table_name(file.name.split(".")[0]), kind, file


def _free_name(name: str, taken: Mapping[str, Path]) -> str:
    folded = {other.casefold() for other in taken}
    free = (name if number == 1 else f"{name}_{number}" for number in count(1))
    return next(one for one in free if one.casefold() not in folded)


def _check_names(engines: Sequence[Engine], given: Sequence[str]) -> None:
    """Check that each given table exists, that each engine has a table, and that no two engines share a table name."""
    seen: dict[str, str] = {}
    found: set[str] = set()
    for engine in engines:
        for one in engine.tables():
            name = one.full_name.casefold()
            other = seen.setdefault(name, engine.source)
            if other != engine.source:
                raise InputError(f"both {other} and {engine.source} have a table {one.full_name!r}: make an action of each")
            found |= {name, f"{engine.default_schema}.{one.name}".casefold()}
    sources = ", ".join(engine.source for engine in engines)
    if missing := next((name for name in given if name.casefold() not in found), None):
        raise TableError(f"there is no table {missing!r} in {sources}: check the name")
    for engine in engines:
        if not engine.tables():
            raise TableError(f"there is no table in {engine.source} that may be read")


class DatabaseTables:
    """Tables of a database, read-only.

    PostgreSQL runs a query in a read-only transaction with limits on time and memory. Other databases have only the SQL guard:
    connect as a user with read rights only. `names` are the tables that may be read ("table", "schema.table"; None: all of the
    default schema). Messages of a TableError show no user, password or options.
    """

    def __init__(self, url: str | URL, names: Sequence[str] | None = None) -> None:
        self._url = parsed_url(url)
        self._names = names
        backend = self._url.get_backend_name()
        self.dialect = _DIALECTS.get(backend, backend)
        host = f"{self._url.host or 'localhost'}{f':{self._url.port}' if self._url.port else ''}"
        self.source = f"{backend}://{host}/{self._url.database or ''}"
        self.default_schema = ""
        arguments = _POSTGRES_ARGUMENTS if self.dialect == "postgres" else {}
        try:
            self._engine = create_engine(self._url, pool_pre_ping=True, pool_size=2, connect_args=arguments)
        except (SQLAlchemyError, ImportError, TypeError) as error:
            reason = self._told(error)
            raise TableError(f"{self.source} cannot be opened: {reason}; check the URL and install its driver") from None
        try:
            self._tables = self._read()
        except BaseException:
            self._engine.dispose()
            raise

    def tables(self) -> list[Table]:
        """The tables with a few values of each column, read again every minute."""
        if time.monotonic() - self._read_at > 60.0:
            self._tables = self._read()
        return self._tables

    def run(self, sql: str, max_rows: int, seconds: float) -> Result:
        """See `Engine.run`."""
        with self._read_only(seconds) as connection:
            try:
                streamed = connection.execution_options(stream_results=True, no_parameters=True)
                with streamed.exec_driver_sql(sql) as cursor:
                    return Result.of(cursor.keys(), cursor.fetchmany(max_rows + 1), max_rows)
            except DBAPIError as error:
                if getattr(error.orig, "sqlstate", "") in _CANCELLED:
                    raise TimeoutError(f"the query took more than {seconds:g} s") from None
                if error.connection_invalidated:
                    raise
                raise ActionInputError(f"the query failed: {self._told(error)}") from None

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    @contextmanager
    def _read_only(self, seconds: float) -> Iterator[Connection]:
        """A read-only transaction with a time limit. Raises TableError if the database cannot be read."""
        try:
            with self._engine.connect() as connection:
                try:
                    if self.dialect == "postgres":
                        connection.exec_driver_sql("SET TRANSACTION READ ONLY")
                        connection.exec_driver_sql(_postgres_limits(seconds))
                    yield connection
                finally:
                    if not connection.closed and not connection.invalidated:
                        connection.rollback()
        except (SQLAlchemyError, UnicodeError) as error:
            reason = self._told(error)
            raise TableError(
                f"{self.source} cannot be read: {reason}; check that it runs and that the user may read it"
            ) from None

    def _read(self) -> list[Table]:
        tables = []
        with self._read_only(_READ_SECONDS) as connection:
            about = inspect(connection)
            self.default_schema = about.default_schema_name or ""
            wanted = self._names if self._names is not None else [*about.get_table_names(), *about.get_view_names()]
            places = [(name, schema or None) for schema, _, name in (full.rpartition(".") for full in wanted)]
            there = [place for place in places if about.has_table(*place)]
            described = [(*place, about.get_columns(*place), _comment(about, *place)) for place in there]
            if self.dialect == "postgres":
                connection.exec_driver_sql("SET LOCAL statement_timeout = 1000")
            end = time.monotonic() + 3.0
            for name, schema, columns, comment in described:
                rows = _sampled(connection, name, schema, columns) if time.monotonic() < end else ()
                about_columns = [(c["name"], str(c["type"]), c.get("comment") or "") for c in columns]
                tables.append(Table(name, columns_of(about_columns, rows), self.source, schema or "", comment))
        self._read_at = time.monotonic()
        return tables

    def _told(self, error: BaseException) -> str:
        """The first line of an error, without the secrets of the URL."""
        secrets = [str(self._url.password or ""), *(str(v) for k, v in self._url.query.items() if _SECRET_KEY.search(k))]
        return first_line(getattr(error, "orig", None) or error, secrets).rstrip(". ")


def _comment(about: Any, name: str, schema: str | None) -> str:
    try:
        return (about.get_table_comment(name, schema) or {}).get("text") or ""
    except NotImplementedError:
        return ""


def _sampled(connection: Connection, name: str, schema: str | None, columns: Any) -> Sequence[Any]:
    """The first rows. Empty for a slow view, or a table that this user may not read."""
    query: Any = select(*(column(c["name"]) for c in columns)).select_from(table(name, schema=schema))
    rows: Sequence[Any] = ()
    with suppress(DBAPIError), connection.begin_nested():
        rows = connection.execute(query.limit(_SAMPLED_ROWS)).fetchall()
    return rows


def _postgres_limits(seconds: float) -> str:
    """The statement that sets the limits of a transaction. Only a superuser can limit temporary files too."""
    milliseconds = max(1, int(min(seconds * 1000, _MOST_MILLISECONDS)))
    settings = {
        "statement_timeout": f"{milliseconds}",
        "lock_timeout": f"{milliseconds}",
        "idle_in_transaction_session_timeout": f"{milliseconds + 60_000}",
        "standard_conforming_strings": "on",
        # PostgreSQL's compiler of expressions ignores the time limit.
        "jit": "off",
        "work_mem": "16MB",
        "hash_mem_multiplier": "1",
        "max_parallel_workers_per_gather": "2",
    }
    named = ", ".join(f"pg_catalog.set_config('{name}', '{value}', true)" for name, value in settings.items())
    files = "pg_catalog.set_config('temp_file_limit', '1GB', true)"
    return f"SELECT {named}, CASE WHEN pg_catalog.current_setting('is_superuser') = 'on' THEN {files} END"


def parsed_url(url: str | URL) -> URL:
    """The URL as SQLAlchemy reads it, with psycopg as the driver of PostgreSQL if it is installed."""
    try:
        parsed = make_url(url)
    except (SQLAlchemyError, ValueError):
        # The message does not repeat the text, which may hold a password.
        raise TableError("the database URL cannot be read: write it as postgresql://user:password@host/database") from None
    if "@" in (parsed.host or ""):
        # A part of the password would be shown as the host.
        raise TableError("the database URL cannot be read: write @ in a user name or password as %40")
    if parsed.drivername in ("postgres", "postgresql") and find_spec("psycopg") is not None:
        parsed = parsed.set(drivername="postgresql+psycopg")
    return parsed
