"""An engine over files in a child process. The child is killed if a query takes too long, and started again."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ByteSize, TypeAdapter, ValidationError

from langgraph_convcoa.actions.base import ActionInputError
from langgraph_convcoa.actions.tables.engine import Result, Table, TableError
from langgraph_convcoa.retrieval.documents.worker import Child, EndedError, pipes, receive, send

if TYPE_CHECKING:
    from langgraph_convcoa.actions.tables.files import DuckDBTables, SQLiteTables

_START_SECONDS, _FILE_SECONDS, _DATABASE_SECONDS = 60.0, 120.0, 30.0
"""Limits for starting the process, for reading files, and for opening a database."""
_GRACE_SECONDS = 1.5  # A query that ignores interrupts is killed this many seconds after its time-out.
_OVERHEAD = 400 * 2**20  # Bytes for the interpreter, DuckDB's threads and a result, in addition to the tables.
_ERRORS = {"ActionInputError": ActionInputError, "TableError": TableError, "TimeoutError": TimeoutError}


class EngineProcess:
    """`DuckDBTables` or `SQLiteTables` in a process. `kind` is "duckdb" or "sqlite"; other arguments go to the class.

    Queries run one after another. The process does not get environment variables that may hold secrets.
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
            old = self.dialect != "sqlite" or time.monotonic() - self._read_at > 60.0
            self._open(fresh=old and self._stamp != self._stamped())
            return self._tables

    def run(self, sql: str, max_rows: int, seconds: float) -> Result:
        """See `Engine.run`."""
        if not self._lock.acquire(timeout=min(seconds, threading.TIMEOUT_MAX)):
            raise TimeoutError(f"the tables of {self.source} were busy with other queries for {seconds:g} s")
        try:
            self._open()
            found = self._ask({"sql": sql, "max_rows": max_rows, "seconds": seconds}, seconds + _GRACE_SECONDS + 0.5)
        except EndedError as error:
            if error.late or error.status == -getattr(signal, "SIGALRM", signal.SIGABRT):
                raise TimeoutError(f"the query took more than {seconds:g} s") from None
            raise ActionInputError("the query ended the database (out of memory): write a simpler one") from None
        finally:
            self._lock.release()
        return TypeAdapter(Result).validate_python(found)

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.end()

    def _open(self, *, fresh: bool = False) -> None:
        """Start the process unless it is running and usable. With `fresh`, always start a new process."""
        if not fresh and self._process is not None and self._process.usable:
            return
        if self._closed:
            raise TableError(f"the tables of {self.source} are closed: open them again")
        if self._process is not None:
            self._process.end()
        self._stamp, self._read_at = self._stamped(), time.monotonic()
        self._process = Child(__name__, "main()", self._folder)
        try:
            found = self._ask(self._opening, _START_SECONDS + float(self._opening["seconds"]))
        except EndedError:
            raise TableError(f"{self.source} cannot be opened: it takes too long or too much memory") from None
        except TableError:
            self._process.end()
            raise
        self._tables = TypeAdapter(list[Table]).validate_python(found["tables"])

    def _ask(self, message: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """The reply to a message. Raises EndedError if the process ended, or took longer and was killed."""
        assert self._process is not None
        reply: dict[str, Any] = self._process.ask(message, seconds)
        if "error" in reply:
            if reply["full"]:
                # The process starts again, so the next query has all the memory.
                self._process.end()
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


def main() -> None:
    """Main function of the child process: answer JSON requests over pipes, under limits, until the standard input ends."""
    requests, replies = pipes()
    engine: DuckDBTables | SQLiteTables | None = None
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
                    reply = {"tables": [asdict(table) for table in engine.tables]}
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


def _open(request: Mapping[str, Any]) -> DuckDBTables | SQLiteTables:
    from langgraph_convcoa.actions.tables.files import DuckDBTables, SQLiteTables

    path = Path(request["database"]) if request["database"] else None
    if request["kind"] == "sqlite":
        return SQLiteTables(path or Path(), request["names"])
    files = {name: Path(file) for name, file in request["files"].items()}
    return DuckDBTables(files, path, request["names"], request["memory_limit"])


@contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """End this child process if the block takes longer than `seconds` and a grace period, even if the parent has ended."""
    timer = getattr(signal, "setitimer", lambda *_: None)
    timer(getattr(signal, "ITIMER_REAL", 0), min(seconds, 1e6) + _GRACE_SECONDS)
    try:
        yield
    finally:
        timer(getattr(signal, "ITIMER_REAL", 0), 0)


def _limit_memory(limit: str) -> None:
    """Limit the memory of this child process (Linux): the limit of the tables, plus what the process itself needs."""
    if sys.platform == "win32" or "%" in limit:
        return
    import resource

    try:
        size = TypeAdapter(ByteSize).validate_python(limit) + _OVERHEAD
    except ValidationError:
        return
    for kind, most in ((resource.RLIMIT_DATA, size), (resource.RLIMIT_FSIZE, size), (resource.RLIMIT_CORE, 0)):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, (most, most))
