"""The worker process of an engine over files: it answers JSON requests over pipes, under a memory limit.

The first message says what to open. The process ends when its standard input ends.
"""

from __future__ import annotations

import contextlib
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from langgraph_convcoa.actions.base import ActionInputError
from langgraph_convcoa.actions.tables.engine import Engine, TableError
from langgraph_convcoa.retrieval.documents.worker import pipes, receive, send

GRACE_SECONDS = 1.5
"""A query that ignores interrupts is killed this many seconds after its time-out."""
_OVERHEAD = 400 * 2**20
"""Bytes for the interpreter, DuckDB's threads and a result, in addition to the tables."""
_UNITS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4}


def main() -> None:
    """Answer requests until the standard input ends."""
    requests, replies = pipes()
    engine: Engine | None = None
    reply: dict[str, Any]
    while True:
        try:
            request = receive(requests)
        except EOFError:
            return
        try:
            with _deadline(float(request["seconds"])):
                if engine is None:
                    _limit_memory(request["memory_limit"])
                    engine = _open(request)
                    reply = {"tables": [asdict(table) for table in engine.tables()]}
                else:
                    reply = asdict(engine.run(request["sql"], request["max_rows"], float(request["seconds"])))
        except (ActionInputError, TableError, TimeoutError) as error:
            reply = {"error": type(error).__name__, "text": str(error), "full": "Out of Memory" in str(error)}
        except MemoryError:
            text = "the query needs more memory than there is for the tables"
            reply = {"error": "ActionInputError" if engine else "TableError", "text": text, "full": True}
        except Exception as error:  # noqa: BLE001 - sent to the caller
            text = f"the tables cannot be read: {type(error).__name__}: {error}"[:500]
            reply = {"error": "TableError", "text": text, "full": True}
        try:
            send(replies, reply)
        except BrokenPipeError:
            return


def _open(request: Mapping[str, Any]) -> Engine:
    path = Path(request["database"]) if request["database"] else None
    if request["kind"] == "sqlite":
        from langgraph_convcoa.actions.tables.sqlite import SQLiteTables

        return SQLiteTables(path or Path(), request["names"])
    from langgraph_convcoa.actions.tables.files import DuckDBTables

    files = {name: Path(file) for name, file in request["files"].items()}
    return DuckDBTables(files, path, request["names"], request["memory_limit"])


@contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """End the process if the block takes longer, even if its caller has ended."""
    timer = getattr(signal, "setitimer", lambda *_: None)
    real = getattr(signal, "ITIMER_REAL", 0)
    timer(real, min(seconds, 1e6) + GRACE_SECONDS)
    try:
        yield
    finally:
        timer(real, 0)


def _limit_memory(limit: str) -> None:
    """Limit the memory of the process to the limit of the tables plus its own needs (Linux)."""
    found = re.fullmatch(r"\s*([\d.]+)\s*([KMGT]?)(I?)B?\s*", limit.upper())
    if found is None or sys.platform == "win32":
        return
    import resource

    size = int(float(found[1]) * _UNITS[found[2]] * (1.1 if found[3] else 1)) + _OVERHEAD
    for kind, most in ((resource.RLIMIT_DATA, size), (resource.RLIMIT_FSIZE, size), (resource.RLIMIT_CORE, 0)):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, (most, most))
