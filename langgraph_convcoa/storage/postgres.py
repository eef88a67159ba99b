"""Conversations in a PostgreSQL database, for programs on many machines."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from langgraph_convcoa.errors import StoreError
from langgraph_convcoa.errors.redaction import redact
from langgraph_convcoa.storage.base import ConversationStore

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.store.base import BaseStore
    from psycopg import AsyncConnection
    from psycopg.rows import DictRow
    from psycopg_pool import AsyncConnectionPool

_CONNECT_SECONDS = 10
_POLL_SECONDS = 0.05
_MOST_TURNS = 50
"""At a time, of one program; each holds a connection."""
_SETUP = "langgraph_convcoa setup"
_FORM = "postgresql://user@host:5432/database, with the password in PGPASSWORD"


class PostgresStore(ConversationStore):
    """Threads in the tables of LangGraph's `AsyncPostgresSaver`.

    A turn holds an advisory lock on its thread, so that programs on any number of machines take turns; the lock ends with its
    connection, also where the program is killed.
    The password is better kept in PGPASSWORD or ~/.pgpass than in the address, since others on the machine see a command's
    arguments.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._pool: AsyncConnectionPool[AsyncConnection[DictRow]] | None = None
        # Host and database; neither user nor password, nor what might be one in an address that is written wrongly.
        rest = address.partition("://")[2].partition("?")[0].rpartition("@")[2]
        plain = re.fullmatch(r"[\w.,-]*(:\d+)?(/[\w.-]*)?", rest)
        self.label = f"postgresql://{rest}" if plain else "postgresql://..."

    def __repr__(self) -> str:
        return f"PostgresStore({self.label!r})"

    def check(self) -> None:
        """Connect once; StoreError without a server, where it refuses, or without the extra `postgres`."""
        if any(find_spec(name) is None for name in ("psycopg", "psycopg_pool", "langgraph.checkpoint.postgres")):
            raise StoreError('a PostgreSQL store needs the extra postgres: pip install "langgraph-convcoa[postgres]"')
        import psycopg
        from psycopg.conninfo import conninfo_to_dict

        # The messages of the driver about a malformed address repeat it, and with it a password.
        malformed = StoreError(f"the address of the store {self.label} is malformed: write it {_FORM}")
        try:
            ports = str(conninfo_to_dict(self._address).get("port") or "")
        except psycopg.Error:
            raise malformed from None
        if ports.replace(",", "").strip("0123456789"):
            raise malformed
        with self.errors():
            psycopg.connect(self._address, connect_timeout=_CONNECT_SECONDS).close()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[BaseCheckpointSaver[Any]]:
        await asyncio.to_thread(self.check)
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
        from psycopg.rows import dict_row
        from psycopg_pool import AsyncConnectionPool

        def pool_of(least: int, most: int) -> AsyncConnectionPool[AsyncConnection[DictRow]]:
            return AsyncConnectionPool(
                self._address,
                kwargs={"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row},
                min_size=least,
                max_size=most,
                # A chat may wait for hours between turns, longer than a server or a firewall keeps a connection.
                check=AsyncConnectionPool.check_connection,
                open=False,
            )

        # Apart: a turn holds its lock's connection while its steps wait for another one.
        pool, locks = pool_of(1, 4), pool_of(0, _MOST_TURNS)
        try:
            with self.errors():
                async with pool, locks:
                    self._pool = locks
                    saver = AsyncPostgresSaver(pool)
                    async with self._locked(_SETUP, _CONNECT_SECONDS * 6):
                        await saver.setup()
                    yield saver
        finally:
            self._pool = None

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[BaseStore]:
        from langgraph.store.postgres.aio import AsyncPostgresStore

        with self.errors():
            async with AsyncPostgresStore.from_conn_string(self._address) as store:
                async with self._locked(_SETUP, _CONNECT_SECONDS * 6):
                    await store.setup()
                yield store

    @asynccontextmanager
    async def turn(self, thread: str, wait: float) -> AsyncIterator[None]:
        """The thread for this program alone, by an advisory lock."""
        async with self._locked(f"langgraph_convcoa turn\0{thread}", wait, thread):
            yield

    @asynccontextmanager
    async def _locked(self, name: str, wait: float, thread: str = "") -> AsyncIterator[None]:
        assert self._pool is not None, "the store is not open"
        key = int.from_bytes(hashlib.sha256(name.encode("utf-8", "replace")).digest()[:8], "big", signed=True)
        end = time.monotonic() + wait
        async with self._pool.connection() as connection:
            # Polled: one that waits inside the server holds a snapshot, for which an index made by `setup` would wait in turn.
            while not await _succeeds(connection, "SELECT pg_try_advisory_lock(%s) AS ok", key):
                if time.monotonic() > end:
                    raise self.busy(thread) if thread else StoreError(f"{self.label} is busy: try again")
                await asyncio.sleep(_POLL_SECONDS)
            try:
                yield
            finally:
                if not connection.closed:
                    await _succeeds(connection, "SELECT pg_advisory_unlock(%s) AS ok", key)

    # `scrub` does nothing: reusing the space of deleted rows (VACUUM) is up to the server's administrator.
    async def prune(self, saver: Any, thread: str) -> None:
        await saver.aprune([thread])

    def error(self, error: BaseException) -> StoreError | None:
        import psycopg

        if not isinstance(error, psycopg.Error):
            return None
        lines = str(error).strip().splitlines() or [type(error).__name__]
        reason = self._without_secrets(" ".join(lines[-1].split()))[:200]
        return StoreError(f"the store {self.label} cannot be used ({reason}): check the server, and the address: {_FORM}")

    def _without_secrets(self, text: str) -> str:
        from psycopg.conninfo import conninfo_to_dict

        return redact(
            text, [str(value) for key, value in conninfo_to_dict(self._address).items() if "password" in key and value]
        )


async def _succeeds(connection: AsyncConnection[DictRow], query: str, key: int) -> bool:
    row = await (await connection.execute(query.encode(), (key,))).fetchone()
    return bool(row and row["ok"])
