"""Opens files, folders and database URLs as engines that query them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path

from langgraph_convcoa.actions.tables.database import DatabaseTables, parsed_url
from langgraph_convcoa.actions.tables.engine import Engine, Sources, TableError, kind_of, table_name
from langgraph_convcoa.actions.tables.process import EngineProcess
from langgraph_convcoa.errors import InputError

_URL = re.compile(r"[A-Za-z][\w+.-]*://")
_ENDINGS = ".csv .tsv .parquet .json .jsonl .xlsx, an SQLite or DuckDB file"


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
    """Each source as `_found` describes it. A mapping gives its own names to single tables."""
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
