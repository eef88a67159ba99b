"""Connections to a PostgreSQL server: shared by threads, limited in number and time, with errors in plain words."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from langgraph_convcoa.errors import InputError, RetrievalError, first_line
from langgraph_convcoa.retrieval.engine.base import end_of
from langgraph_convcoa.retrieval.engine.postgres.driver import cut, passwords_of

if TYPE_CHECKING:
    from psycopg import Connection, Cursor, Error

Rows: TypeAlias = "Cursor[tuple[Any, ...]]"

_Result = TypeVar("_Result")
_FORM = "postgresql://user@host:5432/database?collection=NAME, with the password in PGPASSWORD"
# Most connections at a time; further threads wait.
_MOST = 8
# Transactions that write the same documents may stop each other; the loser is run again.
_ATTEMPTS = 5
_AGAIN = ("40001", "40P01")  # serialization failure, deadlock
_GRACE = 0.5
# With keepalives, the server frees the locks of a vanished machine within a minute. A connection that only holds a lock is
# idle for long, so a limit on idle time is lifted; servers before PostgreSQL 14 have no such limit.
_PATIENT = (
    "SET statement_timeout = 0; SET lock_timeout = 0; "
    "SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3; "
    "SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'"
)


class Connections:
    """Runs transactions on connections that stay open."""

    def __init__(self, address: str, *, timeout: float, label: str) -> None:
        if find_spec("psycopg") is None:
            raise RetrievalError('PostgreSQL needs the extra pgvector: pip install "langgraph-convcoa[pgvector]"')
        if (secrets := passwords_of(address)) is None:
            raise InputError(f"The address of the PostgreSQL server cannot be read; write it {_FORM}.")
        self.timeout, self.label = timeout, label
        self._address, self._secrets = address, secrets
        self._clear()

    def _clear(self) -> None:
        self._kept: list[Connection[tuple[Any, ...]]] = []
        self._guard = threading.Lock()
        self._places, self._process = threading.BoundedSemaphore(_MOST), os.getpid()
        # Not `__del__`: for an object in a reference cycle, Python may delete the connections first, and the driver warns.
        weakref.finalize(self, _close, self._kept, self._process)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), self._address, timeout=self.timeout, label=self.label), ()

    def run(self, work: Callable[[Rows], _Result], *, timeout: float | None = None) -> _Result:
        """Run `work` in one transaction within the time-out, and return its result.

        `work` may run again if two transactions stop each other, or if the server had closed a kept connection.
        """
        import psycopg

        limit = self.timeout if timeout is None else timeout
        end = end_of(limit)
        if time.monotonic() >= end:
            raise self.worded(psycopg.OperationalError(), limit, end)
        for attempt in range(_ATTEMPTS):
            with self._connection(end, limit) as (connection, kept):
                try:
                    with self._watched(connection, end), connection.transaction(), connection.cursor(binary=True) as cursor:
                        set_local(cursor, {"statement_timeout": max(1, int(1000 * (end - time.monotonic())))})
                        return work(cursor)
                except psycopg.Error as error:
                    again = error.sqlstate in _AGAIN or (connection.closed and kept)
                    if kept and connection.closed:
                        # The server was restarted: the other connections are dead too.
                        self.close()
                    if not again or attempt == _ATTEMPTS - 1 or time.monotonic() > end:
                        raise self.worded(error, limit, end) from None
        raise AssertionError

    @contextmanager
    def session(self) -> Iterator[Connection[tuple[Any, ...]]]:
        """A new connection without transaction and time-out, for long work; closing it frees its locks."""
        import psycopg

        connection = self._connected(time.monotonic() + self.timeout, self.timeout)
        try:
            connection.execute(_PATIENT)
            yield connection
        except psycopg.Error as error:
            raise self.worded(error) from None
        finally:
            if connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
                # A server frees the locks of a closed connection only some time later.
                with contextlib.suppress(psycopg.Error):
                    connection.execute("SELECT pg_advisory_unlock_all()")
            connection.close()

    def close(self) -> None:
        """Close the kept connections."""
        if self._process != os.getpid():
            self._clear()
        with self._guard:
            _close(self._kept, self._process)

    def worded(self, error: Error, limit: float | None = None, end: float | None = None) -> RetrievalError:
        """An error of the driver in plain words."""
        from psycopg import errors

        reason = first_line(error, self._secrets).rstrip(".")
        if limit is not None and end is not None and (isinstance(error, errors.QueryCanceled) or time.monotonic() >= end):
            return RetrievalError(f"{self.label} did not answer within {limit:g} s; it is too busy, or stopped.")
        state = error.sqlstate or ""
        if state.startswith("53") or state == "58030":
            kept = "" if limit is None else "nothing of this was written: "
            return RetrievalError(f"{self.label} is full ({reason}); {kept}make room, and try again.")
        if isinstance(error, errors.UndefinedTable):
            return RetrievalError(f"{self.label} is not there; add documents to make it, or name another collection.")
        if isinstance(error, errors.InsufficientPrivilege):
            return RetrievalError(f"{self.label} cannot be used: {reason}; give the user the rights.")
        if isinstance(error, errors.FeatureNotSupported) and "vector" in reason:
            return RetrievalError(f"{self.label} needs the extension pgvector on the server: {reason}.")
        if isinstance(error, errors.OperationalError) and not state:
            check = "check that the server runs and that the address is right"
            return RetrievalError(f"{self.label} cannot be reached: {reason}; {check}.")
        return RetrievalError(f"{self.label} failed: {type(error).__name__}: {reason}.")

    @contextmanager
    def _connection(self, end: float, limit: float) -> Iterator[tuple[Connection[tuple[Any, ...]], bool]]:
        """A connection for a block, and True if it was open before; a broken connection is not kept."""
        import psycopg

        if self._process != os.getpid():
            # After a fork, the connections are the parent's.
            self._clear()
        places = self._places
        if not places.acquire(timeout=max(0.0, end - time.monotonic())):
            raise RetrievalError(f"{self.label} had no connection free within {limit:g} s; ask it less at a time.")
        try:
            with self._guard:
                kept = self._kept.pop() if self._kept else None
            connection = kept or self._connected(end, limit)
            try:
                yield connection, kept is not None
            except BaseException:
                if connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                    connection.close()
                raise
            finally:
                if not connection.closed:
                    with self._guard:
                        self._kept.append(connection)
        finally:
            places.release()

    def _connected(self, end: float, limit: float) -> Connection[tuple[Any, ...]]:
        import psycopg

        # Keepalives, since a firewall drops a silent connection, such as one that only holds a lock.
        settings: dict[str, Any] = {"connect_timeout": max(1, int(end - time.monotonic() + 0.999)), "keepalives_idle": 60}
        try:
            # COPY sends UTF-8, so PGCLIENTENCODING and the encoding of the database are overridden.
            return psycopg.connect(self._address, autocommit=True, prepare_threshold=None, client_encoding="UTF8", **settings)
        except psycopg.Error as error:
            raise self.worded(error, limit, end) from None

    @contextmanager
    def _watched(self, connection: Connection[tuple[Any, ...]], end: float) -> Iterator[None]:
        """Cut the connection if the server does not answer soon after its own time-out."""
        timer = threading.Timer(max(0.0, end - time.monotonic()) + _GRACE, cut, [connection])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def _close(kept: list[Connection[tuple[Any, ...]]], process: int) -> None:
    """Close connections and remove them from the list, except in a fork of their process."""
    while kept and process == os.getpid():
        kept.pop().close()


def set_local(cursor: Rows, settings: Mapping[str, object]) -> None:
    """Set the server's settings for a transaction."""
    parts = ", ".join(["set_config(%s, %s, true)"] * len(settings))
    cursor.execute(f"SELECT {parts}", [str(part) for setting in settings.items() for part in setting])
