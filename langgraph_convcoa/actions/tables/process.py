"""An engine over files in a process of its own, which is killed if a query takes too long, and started again."""

from __future__ import annotations

import signal
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from langgraph_convcoa.actions.base import ActionInputError
from langgraph_convcoa.actions.tables.engine import Column, Result, Table, TableError
from langgraph_convcoa.actions.tables.worker import GRACE_SECONDS, main, result_of
from langgraph_convcoa.retrieval.documents.child import Child, EndedError

_START_SECONDS, _FILE_SECONDS, _DATABASE_SECONDS, _PLAIN_SECONDS = 60.0, 120.0, 4.0, 30.0
"""Limits for starting the process, reading files, and opening a database with values of its views and without."""
_ERRORS = {"ActionInputError": ActionInputError, "TableError": TableError, "TimeoutError": TimeoutError}


class _EndedError(Exception):
    """The process ended before it answered."""


class _FullError(Exception):
    """The process ran out of memory and was ended."""


class EngineProcess:
    """`DuckDBTables` or `SQLiteTables` in a process. `kind` is "duckdb" or "sqlite"; the others are arguments of the class.

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
        threads: int = 2,
    ) -> None:
        self.dialect, self.default_schema = kind, "main"
        self.source = str(database) if database else ", ".join(map(str, (files or {}).values()))
        self._opening: dict[str, Any] = {
            "kind": kind,
            "files": {name: str(path) for name, path in (files or {}).items()},
            "database": str(database) if database else "",
            "names": list(names) if names is not None else None,
            "memory_limit": memory_limit,
            "threads": threads,
            "sample_views": True,
            "seconds": _DATABASE_SECONDS if database and (names is None or kind == "sqlite") else _FILE_SECONDS,
        }
        self._folder = Path.cwd()
        self._lock = threading.Lock()
        self._process: Child | None = None
        self._used = False
        self._closed = False
        self._tables: list[Table] = []
        self._start()

    def tables(self) -> list[Table]:
        """The current tables."""
        with self._lock:
            self._started()
            try:
                self._take(self._ask({"seconds": self._opening["seconds"]}, float(self._opening["seconds"])))
            except _EndedError:
                self._start()
            return self._tables

    def run(self, sql: str, max_rows: int, seconds: float) -> Result:
        """See `Engine.run`."""
        if not self._lock.acquire(timeout=min(seconds, threading.TIMEOUT_MAX)):
            raise TimeoutError(f"the tables of {self.source} answered other queries for {seconds:g} s")
        try:
            for fresh in (False, True):
                self._started()
                fresh = fresh or not self._used
                self._used = True
                try:
                    return result_of(self._ask({"sql": sql, "max_rows": max_rows, "seconds": seconds}, seconds))
                except _EndedError as error:
                    failure = f"the query ended the database ({error}): write a simpler one"
                except _FullError as error:
                    failure = str(error)
                if fresh:
                    break
            # A fresh process: earlier queries did not take the memory.
            raise ActionInputError(failure)
        finally:
            self._lock.release()

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._closed = True
            self._end()

    def _started(self) -> None:
        if self._closed:
            raise TableError(f"the tables of {self.source} are closed: open them again")
        if self._process is None or not self._process.usable:
            self._start()

    def _start(self) -> None:
        try:
            self._open()
        except _EndedError:
            if not self._opening["sample_views"]:
                raise TableError(f"{self.source} cannot be opened: it takes too long or too much memory") from None
            # A view may take for ever. Without values of views a database opens at once.
            self._opening |= {"sample_views": False, "seconds": max(_PLAIN_SECONDS, self._opening["seconds"])}
            self._start()

    def _open(self) -> None:
        self._end()
        self._process, self._used = Child(main.__module__, "main()", self._folder), False
        try:
            self._take(self._ask(self._opening, _START_SECONDS + float(self._opening["seconds"])))
        except TableError:
            self._end()
            raise

    def _end(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None

    def _take(self, reply: Mapping[str, Any]) -> None:
        if reply["tables"] is not None:
            self._tables = [
                Table(**{**table, "columns": tuple(Column(**{**c, "samples": tuple(c["samples"])}) for c in table["columns"])})
                for table in reply["tables"]
            ]

    def _ask(self, message: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """The reply to a message; the process is killed if it takes longer than `seconds` and a grace period."""
        assert self._process is not None
        try:
            reply: dict[str, Any] = self._process.ask(message, seconds + GRACE_SECONDS + 0.5)
        except EndedError as error:
            self._end()
            if "sql" in message and (error.late or error.status == -getattr(signal, "SIGALRM", signal.SIGABRT)):
                raise TimeoutError(f"the query took more than {seconds:g} s") from None
            raise _EndedError("out of time" if error.late else "out of memory") from None
        if reply.get("full") and "sql" in message:
            self._end()
            raise _FullError(reply["text"])
        if "error" in reply:
            raise _ERRORS[reply["error"]](reply["text"])
        return reply
