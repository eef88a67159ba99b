"""An engine over files in its own process. The process is killed if a query takes too long, and started again."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from langgraph_convcoa.actions.base import ActionInputError
from langgraph_convcoa.actions.tables.engine import Column, Result, Table, TableError
from langgraph_convcoa.actions.tables.worker import GRACE_SECONDS, main
from langgraph_convcoa.retrieval.documents.worker import Child, EndedError

_START_SECONDS, _FILE_SECONDS, _DATABASE_SECONDS = 60.0, 120.0, 30.0
"""Limits for starting the process, for reading files, and for opening a database."""
_SQLITE_FRESH_SECONDS = 60.0
_ERRORS = {"ActionInputError": ActionInputError, "TableError": TableError, "TimeoutError": TimeoutError}


class EngineProcess:
    """`DuckDBTables` or `SQLiteTables` in a process. `kind` is "duckdb" or "sqlite"; other arguments go to the class.

    Queries run one after another. The process does not see variables of the environment that could be secrets.
    """

    def __init__(
        self,
        kind: str,
        *,
        files: Mapping[str, Path] | None = None,
        database: Path | None = None,
        names: Sequence[str] | None = None,
        memory_limit: str = "1GB",
    ) -> None:
        self.dialect, self.default_schema = kind, "main"
        self._paths = [database] if database else [*(files or {}).values()]
        self.source = ", ".join(map(str, self._paths))
        self._opening: dict[str, Any] = {
            "kind": kind,
            "files": {name: str(path) for name, path in (files or {}).items()},
            "database": str(database) if database else "",
            "names": list(names) if names is not None else None,
            "memory_limit": memory_limit,
            "seconds": _DATABASE_SECONDS if database and (names is None or kind == "sqlite") else _FILE_SECONDS,
        }
        self._folder = Path.cwd()
        self._lock = threading.Lock()
        self._process: Child | None = None
        self._closed = False
        self._open()

    def tables(self) -> list[Table]:
        """The tables, with a few values of each column. Changed files are read again, but SQLite files only after a minute."""
        with self._lock:
            old = self.dialect != "sqlite" or time.monotonic() - self._read_at > _SQLITE_FRESH_SECONDS
            self._ready(fresh=old and self._stamp != self._stamped())
            return self._tables

    def run(self, sql: str, max_rows: int, seconds: float) -> Result:
        """See `Engine.run`."""
        if not self._lock.acquire(timeout=min(seconds, threading.TIMEOUT_MAX)):
            raise TimeoutError(f"the tables of {self.source} were busy with other queries for {seconds:g} s")
        try:
            self._ready()
            found = self._ask({"sql": sql, "max_rows": max_rows, "seconds": seconds}, seconds + GRACE_SECONDS + 0.5)
        except EndedError as error:
            if error.late or error.status == -getattr(signal, "SIGALRM", signal.SIGABRT):
                raise TimeoutError(f"the query took more than {seconds:g} s") from None
            raise ActionInputError("the query ended the database (out of memory): write a simpler one") from None
        finally:
            self._lock.release()
        return Result(tuple(found["columns"]), tuple(map(tuple, found["rows"])), found["more"])

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._closed = True
            self._end()

    def _ready(self, *, fresh: bool = False) -> None:
        if fresh or self._process is None or not self._process.usable:
            self._open()

    def _open(self) -> None:
        if self._closed:
            raise TableError(f"the tables of {self.source} are closed: open them again")
        self._end()
        self._stamp, self._read_at = self._stamped(), time.monotonic()
        self._process = Child(main.__module__, "main()", self._folder)
        try:
            found = self._ask(self._opening, _START_SECONDS + float(self._opening["seconds"]))
        except EndedError:
            raise TableError(f"{self.source} cannot be opened: it takes too long or too much memory") from None
        except TableError:
            self._end()
            raise
        self._tables = [
            Table(**{**table, "columns": tuple(Column(**{**c, "samples": tuple(c["samples"])}) for c in table["columns"])})
            for table in found["tables"]
        ]

    def _end(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None

    def _ask(self, message: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """The reply to a message. Raises EndedError if the process ended, or took longer and was killed."""
        assert self._process is not None
        try:
            reply: dict[str, Any] = self._process.ask(message, seconds)
        except EndedError:
            self._end()
            raise
        if "error" in reply:
            if reply["full"]:
                # The process starts again, so the next query has all the memory.
                self._end()
            raise _ERRORS[reply["error"]](reply["text"])
        return reply

    def _stamped(self) -> list[tuple[int, int]]:
        """Time and size of the files, and of the log that SQLite keeps beside its file."""
        logs = [path.with_name(f"{path.name}-wal") for path in self._paths if self.dialect == "sqlite"]
        try:
            about = [path.stat() for path in (*self._paths, *(log for log in logs if log.exists()))]
        except OSError as error:
            raise TableError(f"{error.filename} cannot be opened ({error.strerror}): give another file") from None
        return [(one.st_mtime_ns, one.st_size) for one in about]
