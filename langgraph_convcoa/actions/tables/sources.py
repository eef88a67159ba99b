"""Opens files, folders and database URLs as engines that query them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import count
from pathlib import Path

from langgraph_convcoa.actions.tables.database import DatabaseTables, parsed_url
from langgraph_convcoa.actions.tables.engine import Engine, TableError, kind_of, table_name
from langgraph_convcoa.actions.tables.process import EngineProcess
from langgraph_convcoa.errors import InputError

Sources = str | Path | Sequence[str | Path] | Mapping[str, str | Path]
_URL = re.compile(r"[A-Za-z][\w+.-]*://")
_ENDINGS = ".csv .tsv .parquet .json .jsonl .xlsx, an SQLite or DuckDB file"


def open_sources(sources: Sources, tables: Sequence[str] | None, memory_limit: str) -> list[Engine]:
    """Engines over the sources: one for all files, so that a query can join them, and one for each database."""
    missing = [package for package in ("duckdb", "openpyxl", "sqlalchemy", "sqlglot") if find_spec(package) is None]
    if missing:
        raise InputError(f'tables need {missing[0]}: install it with pip install "langgraph-convcoa[tabular]"')
    named = list(_named(sources))
    if not named:
        raise InputError("there are no tables: give a CSV, Parquet, Excel or JSON file, or a database URL")
    files: dict[str, Path] = {}
    engines: list[Engine] = []
    try:
        for name, source in named:
            if (found := _file_database(source)) is not None:
                kind, path = found
                engines.append(EngineProcess(kind, database=path, names=tables, memory_limit=memory_limit))
            elif isinstance(source, str):
                engines.append(DatabaseTables(source, tables))
            else:
                files[_free_name(name, files)] = source
        if files:
            engines.insert(0, EngineProcess("duckdb", files=files, memory_limit=memory_limit))
        _check_names(engines, tables or ())
    except BaseException:
        for engine in engines:
            engine.close()
        raise
    return engines


def _named(sources: Sources) -> Iterator[tuple[str, str | Path]]:
    """Each source with the name of its table. URLs stay text, folders become their files."""
    if isinstance(sources, Mapping):
        for name, source in sources.items():
            if not re.fullmatch(r"[A-Za-z]\w{0,62}", name):
                raise InputError(f"the table name {name!r} must be a letter, then letters, digits or _")
            found = list(_found(source))
            yield from ((name if len(found) == 1 else own, one) for own, one in found)
        return
    for source in [sources] if isinstance(sources, str | Path) else sources:
        yield from _found(source)


def _found(source: str | Path) -> Iterator[tuple[str, str | Path]]:
    if not isinstance(source, str | Path):
        raise InputError(f"a source of tables must be a path or a database URL, not {type(source).__name__}")
    if isinstance(source, str) and _URL.match(source):
        if source.lower().startswith(("http://", "https://", "ftp://", "s3://", "file://")):
            raise InputError(f"tables are not read from {source.split(':')[0]} addresses: download the file first")
        yield "", source
        return
    path = Path(source)
    if path.is_dir():
        inside = sorted(entry for entry in path.iterdir() if entry.is_file() and kind_of(entry))
        if not inside:
            raise TableError(f"there is no table in the folder {path}: a table is a file of {_ENDINGS}")
        for file in inside:
            yield table_name(file.name.split(".")[0]), file
        return
    if not path.is_file():
        raise TableError(f"there is no file {path}: check the path")
    if not kind_of(path) and not _database_kind(path):
        raise TableError(f"{path} is no table: give {_ENDINGS}")
    yield table_name(path.name.split(".")[0]), path


def _database_kind(path: Path) -> str:
    with path.open("rb") as file:
        head = file.read(16)
    if head.startswith(b"SQLite format 3\0"):
        return "sqlite"
    return "duckdb" if head[8:12] == b"DUCK" else ""


def _file_database(source: str | Path) -> tuple[str, Path] | None:
    """Kind ("duckdb", "sqlite") and path of a database file, given as a path or a URL; None for other sources."""
    if isinstance(source, Path):
        kind = _database_kind(source)
        return (kind, source) if kind else None
    if source.lower().startswith("duckdb://"):
        kind, path = "duckdb", Path(source.split(":///", 1)[-1])
    elif source.lower().startswith("sqlite"):
        kind, path = "sqlite", Path(parsed_url(source).database or "")
    else:
        return None
    if not path.is_file():
        name = {"duckdb": "DuckDB", "sqlite": "SQLite"}[kind]
        raise TableError(f"there is no {name} database at {path}: write {kind}:///path/to/file")
    return kind, path


def _free_name(name: str, taken: Mapping[str, Path]) -> str:
    folded = {other.casefold() for other in taken}
    free = (name if number == 1 else f"{name}_{number}" for number in count(1))
    return next(one for one in free if one.casefold() not in folded)


def _check_names(engines: Sequence[Engine], given: Sequence[str]) -> None:
    """Check that each given table exists, that each engine has a table, and that no two engines share a table name."""
    seen: dict[str, str] = {}
    found: set[str] = set()
    for engine in engines:
        for table in engine.tables():
            name = table.full_name.casefold()
            other = seen.setdefault(name, engine.source)
            if other != engine.source:
                raise InputError(f"both {other} and {engine.source} have a table {table.full_name!r}: make an action of each")
            found |= {name, f"{engine.default_schema}.{table.name}".casefold()}
    sources = ", ".join(engine.source for engine in engines)
    if missing := next((name for name in given if name.casefold() not in found), None):
        raise TableError(f"there is no table {missing!r} in {sources}: check the name")
    for engine in engines:
        if not engine.tables():
            raise TableError(f"there is no table in {engine.source} that may be read")
