"""Locks in a PostgreSQL server. A program has one connection for all its locks. If the program dies, the server frees them."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from weakref import WeakValueDictionary

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from langgraph_convcoa.retrieval.engine.postgres.driver import cut
from langgraph_convcoa.storage import CONNECT_SECONDS

_BEAT_SECONDS = 1.0
_LOST_SECONDS = 15.0  # If a statement has no answer for this many seconds, the connection counts as lost.
# If a program's machine is cut off, the server ends the connection after 30 s. By then the program has given up its locks.
_KEEPALIVE = (
    "SELECT set_config('tcp_keepalives_idle', '10', false), set_config('tcp_keepalives_interval', '5', false),"
    " set_config('tcp_keepalives_count', '4', false)"
)
_TAKEN = (
    "SELECT key FROM (SELECT (classid::bigint << 32) | objid::bigint AS key FROM pg_locks WHERE locktype = 'advisory'"
    " AND objsubid = 1 AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) AS held"
    " WHERE key = ANY(%s)"
)


def lock_key(name: str) -> int:
    """The number that PostgreSQL locks for a name: a signed integer of 64 bits."""
    return int.from_bytes(hashlib.sha256(name.encode("utf-8", "replace")).digest()[:8], "big", signed=True)


class AdvisoryLocks:
    """Named locks that any number of programs take in turn. Used with `async with`.

    One connection holds all locks of this program, so that a thousand turns do not need a thousand connections. If that
    connection is lost, other programs can take the locks. Code that holds a lock is then cancelled and raises `lost()`.
    """

    def __init__(self, address: str, lost: Callable[[], Exception]) -> None:
        self._address, self._lost = address, lost
        self._connection: AsyncConnection[TupleRow] | None = None
        # One statement runs at a time. `_LOST_SECONDS` are counted only when this lock is held.
        self._asking = asyncio.Lock()
        # The server lets one connection take a lock twice, so the tasks of one program take turns here.
        self._own: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        self._held: dict[int, asyncio.Timeout] = {}
        self._returning: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> AdvisoryLocks:
        async with self._asking:
            await self._connect()
        self._beat = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._beat.cancel()
        await asyncio.wait([self._beat, *self._returning])
        if self._connection is not None:
            await self._connection.close()

    @asynccontextmanager
    async def held(self, name: str, wait: float, busy: Callable[[], Exception]) -> AsyncIterator[None]:
        """Hold a lock; raises `busy()` if another task or program keeps it for longer than `wait` seconds."""
        key, end = lock_key(name), time.monotonic() + wait
        own = self._own.setdefault(key, asyncio.Lock())
        try:
            # `own.locked()` would not do: it is False for a moment while other tasks wait for the lock.
            async with asyncio.timeout(max(0.0, wait)):
                await own.acquire()
        except TimeoutError:
            raise busy() from None
        try:
            # The lock is polled: a statement that waits inside the server would block all other statements of this program.
            while (connection := await self._tried(key)) is None:
                if time.monotonic() >= end:
                    raise busy()
                await asyncio.sleep(0.05)
            # This timeout expires when the connection is lost.
            self._held[key] = limit = asyncio.timeout(None)
            try:
                async with limit:
                    yield
            except TimeoutError:
                if limit.expired():
                    raise self._lost() from None
                raise
            finally:
                del self._held[key]
                await asyncio.shield(self._freed(connection, key))
        finally:
            own.release()

    async def taken(self, names: Sequence[str]) -> set[str]:
        """The names whose locks any program holds."""
        keys = {lock_key(name): name for name in names}
        _, rows = await self._asked(_TAKEN, list(keys))
        return {keys[key] for (key,) in rows}

    async def _tried(self, key: int) -> AsyncConnection[TupleRow] | None:
        """Try to take a lock. Returns the connection that holds it, or None if the lock is taken or the connection lost."""
        trying = asyncio.ensure_future(self._asked("SELECT pg_try_advisory_lock(%s)", key))
        try:
            connection, [(had,)] = await asyncio.shield(trying)
        except asyncio.CancelledError:
            # The statement may still get the lock, and nobody would free it.
            self._returning.add(returning := asyncio.create_task(self._returned(trying, key)))
            returning.add_done_callback(self._returning.discard)
            raise
        return connection if had and connection is self._connection and not connection.closed else None

    async def _returned(self, trying: asyncio.Future[tuple[AsyncConnection[TupleRow], list[TupleRow]]], key: int) -> None:
        with suppress(psycopg.Error):
            connection, [(had,)] = await trying
            if had:
                await self._freed(connection, key)

    async def _freed(self, connection: AsyncConnection[TupleRow], key: int) -> None:
        # An error means that the connection is lost, and the lock with it.
        with suppress(psycopg.Error):
            async with self._asking:
                await self._fetched(connection, "SELECT pg_advisory_unlock(%s)", key)

    async def _asked(self, query: str, given: object) -> tuple[AsyncConnection[TupleRow], list[TupleRow]]:
        """Run a statement. Returns the connection, which is opened again if it has ended, and the rows."""
        async with self._asking:
            if (connection := self._connection) is not None and not connection.closed:
                try:
                    return connection, await self._fetched(connection, query, given)
                except psycopg.OperationalError:
                    if not connection.closed:
                        raise
            connection = await self._connect()
            return connection, await self._fetched(connection, query, given)

    async def _connect(self) -> AsyncConnection[TupleRow]:
        self._expire()
        opened = psycopg.AsyncConnection.connect(self._address, autocommit=True, connect_timeout=CONNECT_SECONDS)
        self._connection = connection = await opened
        await self._fetched(connection, _KEEPALIVE)
        return connection

    async def _fetched(self, connection: AsyncConnection[TupleRow], query: str, given: object = None) -> list[TupleRow]:
        # The connection to a silent server is cut. To cancel the statement, the driver would have to wait for the server.
        lost = asyncio.get_running_loop().call_later(_LOST_SECONDS, cut, connection)
        try:
            cursor = await connection.execute(query.encode(), None if given is None else (given,))
            return await cursor.fetchall()
        finally:
            lost.cancel()

    def _expire(self) -> None:
        for limit in self._held.values():
            # A timeout that has expired cannot be set again.
            if not limit.expired() and limit.when() is None:
                limit.reschedule(0)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_BEAT_SECONDS)
            connection = self._connection
            if self._held and connection is not None:
                try:
                    async with self._asking:
                        await self._fetched(connection, "SELECT 1")
                except psycopg.Error:
                    # Close the connection, so that the server frees the locks. Their holders raise `lost()`.
                    await connection.close()
                    if connection is self._connection:
                        self._expire()
