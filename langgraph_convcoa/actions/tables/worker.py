"""The process of a file's database: one engine, which answers JSON over pipes, with a memory limit of the system.

The first message says what to open. The process ends with its standard input.
"""

from __future__ import annotations

import contextlib
import datetime
import re
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path
from typing import Any

from langgraph_convcoa.actions.base import ActionInputError
from langgraph_convcoa.actions.tables.engine import Engine, Result, Table, TableError
from langgraph_convcoa.retrieval.documents.child import pipes, receive, send

GRACE_SECONDS = 1.5
"""Seconds after its time-out at which a query that ignores interrupts is killed."""
_LONGEST_TEXT, _LONGEST_RESULT = 4_000, 32_000_000
_OVERHEAD = 400 * 2**20
"""Bytes for the interpreter, DuckDB's threads and a result, beside the tables."""
_UNITS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4}


def result_of(message: Mapping[str, Any]) -> Result:
    """A result from its JSON form. Values other than numbers, dates with a time, and texts become texts.

    Example:
        >>> result_of({"columns": ["n"], "rows": [[{"decimal": "1.50"}]], "more": False}).rows
        ((Decimal('1.50'),),)
    """
    rows = tuple(tuple(_value(cell) for cell in row) for row in message["rows"])
    return Result(tuple(message["columns"]), rows, message["more"])


def _value(cell: Any) -> Any:
    if isinstance(cell, dict):
        [(kind, text)] = cell.items()
        return Decimal(text) if kind == "decimal" else datetime.datetime.fromisoformat(text)
    return cell


def _sent(result: Result) -> dict[str, Any]:
    rows: list[list[Any]] = []
    size = 0
    for row in result.rows:
        rows.append([_cell(value) for value in row])
        size += sum(len(cell) + 8 if isinstance(cell, str) else 40 for cell in rows[-1])
        if size > _LONGEST_RESULT:
            break
    return {"columns": result.columns, "rows": rows, "more": result.more or len(rows) < len(result.rows)}


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Decimal) and value.is_finite():
        return {"decimal": str(value)}
    if isinstance(value, datetime.datetime):
        return {"datetime": value.isoformat()}
    if isinstance(value, bytes | bytearray | memoryview):
        return f"({len(value)} bytes)"
    return str(value)[:_LONGEST_TEXT]


def main() -> None:
    """Answer requests until the standard input ends."""
    requests, replies = pipes()
    engine: Engine | None = None
    sent: list[Table] | None = None
    while True:
        try:
            request = receive(requests)
        except EOFError:
            return
        try:
            if engine is None:
                _limit_memory(str(request.get("memory_limit", "")))
                engine = _open(request)
            with _deadline(float(request["seconds"])):
                if "sql" in request:
                    reply = _sent(engine.run(request["sql"], request["max_rows"], float(request["seconds"])))
                else:
                    tables = engine.tables()
                    reply = {"tables": None if tables is sent else [asdict(table) for table in tables]}
                    sent = tables
        except (ActionInputError, TableError, TimeoutError) as error:
            reply = {"error": type(error).__name__, "text": str(error), "full": "Out of Memory" in str(error)}
        except MemoryError:
            text = "the query needs more memory than there is for the tables"
            reply = {"error": "ActionInputError", "text": text, "full": True}
        except Exception as error:  # noqa: BLE001 - told to the process that asked
            reply = {"error": "TableError", "text": f"the tables cannot be read: {type(error).__name__}: {error}"[:500]}
        try:
            send(replies, reply)
        except BrokenPipeError:
            return


def _open(request: Mapping[str, Any]) -> Engine:
    names, views = request["names"], bool(request["sample_views"])
    path = Path(request["database"]) if request["database"] else None
    if request["kind"] == "sqlite":
        from langgraph_convcoa.actions.tables.sqlite import SQLiteTables

        return SQLiteTables(path or Path(), names, sample_views=views)
    from langgraph_convcoa.actions.tables.files import DuckDBTables

    files = {name: Path(file) for name, file in request["files"].items()}
    limits = {"memory_limit": request["memory_limit"], "threads": int(request["threads"])}
    return DuckDBTables(files, database=path, names=names, sample_views=views, **limits)


@contextlib.contextmanager
def _deadline(seconds: float) -> Any:
    """End the process if a query takes longer, even if its caller has ended."""
    timer = getattr(signal, "setitimer", None)
    if timer is not None:
        timer(signal.ITIMER_REAL, min(seconds, 1e6) + GRACE_SECONDS)
    try:
        yield
    finally:
        if timer is not None:
            timer(signal.ITIMER_REAL, 0)


def _limit_memory(limit: str) -> None:
    """Limit the memory of the process to that of the tables and its own needs (Linux)."""
    found = re.fullmatch(r"\s*([\d.]+)\s*([KMGT]?)(I?)B?\s*", limit.upper())
    if found is None or sys.platform == "win32":
        return
    import resource

    size = int(float(found[1]) * _UNITS[found[2]] * (1.1 if found[3] else 1)) + _OVERHEAD
    for kind, most in ((resource.RLIMIT_DATA, size), (resource.RLIMIT_FSIZE, size), (resource.RLIMIT_CORE, 0)):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, (most, most))
