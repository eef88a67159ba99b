"""Locks in a PostgreSQL server, all of one program over one connection, which the server frees when the program dies."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from langgraph_convcoa.retrieval.engine.postgres.driver import cut

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.rows import TupleRow

CONNECT_SECONDS = 10
_POLL_SECONDS = 0.05
_BEAT_SECONDS = 1.0
_LOST_SECONDS = 15.0
"""Without an answer to one statement, the connection is taken for lost."""
# A machine that vanishes says nothing: the server ends its connection after 30 s, when it has long given up what it held.
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
    """A name as the number that PostgreSQL locks.

    Example:
        >>> -(2**63) <= lock_key("a thread") < 2**63
        True
    """
    return int.from_bytes(hashlib.sha256(name.encode("utf-8", "replace")).digest()[:8], "big", signed=True)


class AdvisoryLocks:
    """Locks by name that any number of programs take in turn; open within `async with`.

    One connection holds all that this program holds, so that a thousand turns take no thousand connections of the server.
    Where that connection is lost, others can have the locks: what ran under them is cancelled at once and raises `lost()`.
    """

    def __init__(self, address: str, lost: Callable[[], Exception]) -> None:
        self._address, self._lost = address, lost
        self._connection: AsyncConnection[TupleRow] | None = None
        self._connecting = asyncio.Lock()
        # Here, not in the connection: how long a statement waits for others says nothing about the server.
        self._asking = asyncio.Lock()
        # The server lets one connection take a lock twice, so that tasks of one program take turns here.
        self._own: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        self._holders: dict[int, asyncio.Task[object]] = {}
        self._dropped: set[int] = set()
        self._beat: asyncio.Task[None] | None = None

    async def __aenter__(self) -> AdvisoryLocks:
        await self._ready()
        self._beat = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._beat is not None:
            self._beat.cancel()
            await asyncio.wait([self._beat])
        if self._connection is not None:
            await self._connection.close()

    @asynccontextmanager
    async def held(self, name: str, wait: float, busy: Callable[[], Exception]) -> AsyncIterator[None]:
        """The lock for this task alone; raises `busy()` where another has it for longer than so many seconds."""
        key, end = lock_key(name), time.monotonic() + wait
        own = self._own.setdefault(key, asyncio.Lock())
        try:
            # Also where it is free at this moment: others may be waiting for it.
            async with asyncio.timeout(max(0.0, wait)):
                await own.acquire()
        except TimeoutError:
            raise busy() from None
        try:
            # Polled: one that waits inside the server would keep all others of this program waiting.
            while (connection := await self._tried(key)) is None:
                if time.monotonic() >= end:
                    raise busy()
                await asyncio.sleep(_POLL_SECONDS)
            task = asyncio.current_task()
            assert task is not None
            self._holders[key] = task
            try:
                yield
            except asyncio.CancelledError:
                if key in self._dropped and task.uncancel() == 0:
                    raise self._lost() from None
                raise
            finally:
                del self._holders[key]
                if key in self._dropped:
                    self._dropped.discard(key)
                else:
                    await asyncio.shield(self._freed(connection, key))
        finally:
            own.release()

    async def taken(self, names: Sequence[str]) -> set[str]:
        """Those of the names that any program holds."""
        keys = {lock_key(name): name for name in names}
        _, rows = await self._asked(_TAKEN, list(keys))
        return {keys[key] for (key,) in rows}

    async def _tried(self, key: int) -> AsyncConnection[TupleRow] | None:
        """The connection that has the lock now; None where another program has it, or it was lost meanwhile."""
        trying = asyncio.ensure_future(self._asked("SELECT pg_try_advisory_lock(%s)", key))
        try:
            connection, [(had,)] = await asyncio.shield(trying)
        except asyncio.CancelledError:
            # It may have it by now, and nobody would give it back.
            await asyncio.shield(self._undone(trying, key))
            raise
        # Until this task goes on, another may have found the connection lost, and this one was no holder that is told.
        return connection if had and connection is self._connection and not connection.closed else None

    async def _undone(self, trying: asyncio.Future[tuple[AsyncConnection[TupleRow], list[TupleRow]]], key: int) -> None:
        import psycopg

        with suppress(psycopg.Error):
            connection, [(had,)] = await trying
            if had:
                await self._freed(connection, key)

    async def _freed(self, connection: AsyncConnection[TupleRow], key: int) -> None:
        import psycopg

        # Not by `_asked`: a new connection has nothing to give back.
        with suppress(psycopg.Error):
            await self._fetched(connection, "SELECT pg_advisory_unlock(%s)", key)

    async def _asked(self, query: str, given: object) -> tuple[AsyncConnection[TupleRow], list[TupleRow]]:
        """What a statement gives, and who said it; tried again where the connection had ended since the last one."""
        import psycopg

        connection = await self._ready()
        try:
            return connection, await self._fetched(connection, query, given)
        except psycopg.OperationalError:
            if not connection.closed:
                raise
        connection = await self._ready()
        return connection, await self._fetched(connection, query, given)

    async def _fetched(self, connection: AsyncConnection[TupleRow], query: str, given: object = None) -> list[TupleRow]:
        async with self._asking:
            # Not by cancelling, for which the driver asks the server and waits for its word.
            lost = asyncio.get_running_loop().call_later(_LOST_SECONDS, cut, connection)
            try:
                cursor = await connection.execute(query.encode(), None if given is None else (given,))
                return await cursor.fetchall()
            finally:
                lost.cancel()

    async def _ready(self) -> AsyncConnection[TupleRow]:
        async with self._connecting:
            if self._connection is None or self._connection.closed:
                from psycopg import AsyncConnection

                self._drop()
                self._connection = await AsyncConnection.connect(
                    self._address, autocommit=True, connect_timeout=CONNECT_SECONDS
                )
                await self._fetched(self._connection, _KEEPALIVE)
            return self._connection

    def _drop(self) -> None:
        """The connection is lost, and with it all locks."""
        for key, task in self._holders.items():
            if key not in self._dropped:
                self._dropped.add(key)
                task.cancel()

    async def _watch(self) -> None:
        import psycopg

        while True:
            await asyncio.sleep(_BEAT_SECONDS)
            connection = self._connection
            if self._holders and connection is not None:
                try:
                    await self._fetched(connection, "SELECT 1")
                except psycopg.Error:
                    # It may be there still, and hold what those who are told of its end hold no more.
                    await connection.close()
                    # Of one that was replaced, the locks are dropped already.
                    if connection is self._connection:
                        self._drop()
