"""Conversations in a PostgreSQL database, for programs on many machines."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from langgraph_convcoa.errors import StoreError
from langgraph_convcoa.errors.redaction import redact
from langgraph_convcoa.retrieval.engine.postgres.driver import passwords_of
from langgraph_convcoa.storage.advisory import CONNECT_SECONDS, AdvisoryLocks
from langgraph_convcoa.storage.base import ConversationStore

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.store.base import BaseStore

_SETUP = "langgraph_convcoa setup"
_FORM = "postgresql://user@host:5432/database, with the password in PGPASSWORD"


class PostgresStore(ConversationStore):
    """Threads in the tables of LangGraph's `AsyncPostgresSaver`.

    A turn holds an advisory lock on its thread, so that programs on any number of machines take turns. The lock ends with the
    program's connection, also if the program is killed. A program has at most five connections for any number of turns.
    Keep the password in PGPASSWORD or ~/.pgpass, not in the address: other users of the machine can see a command's
    arguments.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._locks: AdvisoryLocks | None = None
        # Only host and database. In a malformed address any part might be the password, so no part is shown.
        place, _, options = address.partition("://")[2].partition("?")
        rest = place.rpartition("@")[2]
        plain = re.fullmatch(r"[\w.,-]*(:\d+)?(/[\w.-]*)?", rest) and "@" not in options
        self.label = f"postgresql://{rest}" if plain else "postgresql://..."

    def __repr__(self) -> str:
        return f"PostgresStore({self.label!r})"

    def check(self) -> None:
        """Connect once. Raises StoreError if that fails, or if the extra `postgres` is missing."""
        if any(find_spec(name) is None for name in ("psycopg", "psycopg_pool", "langgraph.checkpoint.postgres")):
            raise StoreError('a PostgreSQL store needs the extra postgres: pip install "langgraph-convcoa[postgres]"')
        import psycopg

        if passwords_of(self._address) is None:
            raise self._malformed()
        with self.errors():
            psycopg.connect(self._address, connect_timeout=CONNECT_SECONDS).close()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[BaseCheckpointSaver[Any]]:
        await asyncio.to_thread(self.check)
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
        from psycopg.rows import dict_row
        from psycopg_pool import AsyncConnectionPool

        pool = AsyncConnectionPool(
            self._address,
            kwargs={"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row},
            min_size=1,
            max_size=2,  # The saver uses one connection at a time.
            # A chat may wait for hours between turns, longer than a server or a firewall keeps a connection.
            check=AsyncConnectionPool.check_connection,
            open=False,
        )
        try:
            with self.errors():
                async with pool, AdvisoryLocks(self._address, self._lost) as self._locks:
                    saver: AsyncPostgresSaver = AsyncPostgresSaver(pool)  # type: ignore[arg-type]
                    async with self._setting_up():
                        await saver.setup()
                    yield saver
        finally:
            self._locks = None

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[BaseStore]:
        from langgraph.store.postgres.aio import AsyncPostgresStore
        from psycopg_pool import AsyncConnectionPool

        config: Any = {"min_size": 1, "max_size": 2, "check": AsyncConnectionPool.check_connection}
        with self.errors():
            async with AsyncPostgresStore.from_conn_string(self._address, pool_config=config) as store:
                async with self._setting_up():
                    await store.setup()
                yield store

    @asynccontextmanager
    async def turn(self, thread: str, wait: float) -> AsyncIterator[None]:
        """Lock the thread for this turn with an advisory lock."""
        async with self._opened_locks.held(_turn_of(thread), wait, lambda: self.busy(thread)):
            yield

    @asynccontextmanager
    async def entry(self, name: str) -> AsyncIterator[None]:
        """Lock an entry of the book with an advisory lock."""
        async with self._opened_locks.held(f"langgraph_convcoa entry\0{name}", CONNECT_SECONDS, lambda: self.busy(name)):
            yield

    async def taken(self, threads: Iterable[str]) -> set[str]:
        names = {_turn_of(thread): thread for thread in threads}
        return {names[name] for name in await self._opened_locks.taken([*names])} if names else set()

    @property
    def _opened_locks(self) -> AdvisoryLocks:
        assert self._locks is not None, "the store is not open"
        return self._locks

    def _setting_up(self) -> AbstractAsyncContextManager[None]:
        busy = StoreError(f"{self.label} is busy: try again")
        return self._opened_locks.held(_SETUP, CONNECT_SECONDS * 6, lambda: busy)

    def _lost(self) -> StoreError:
        return StoreError(f"the connection to {self.label} was lost in the middle of the turn: ask again, and it is resumed")

    # `scrub` does nothing: reusing the space of deleted rows (VACUUM) is up to the server's administrator.
    async def prune(self, saver: Any, thread: str) -> None:
        await saver.aprune([thread])

    def error(self, error: BaseException) -> StoreError | None:
        import psycopg

        if not isinstance(error, psycopg.Error):
            return None
        if (secrets := passwords_of(self._address)) is None:
            return self._malformed()
        lines = str(error).strip().splitlines() or [type(error).__name__]
        reason = redact(" ".join(lines[-1].split()), secrets)[:200]
        return StoreError(f"the store {self.label} cannot be used ({reason}): check the server, and the address: {_FORM}")

    def _malformed(self) -> StoreError:
        """The error for a malformed address. The driver's own message would repeat the address with its password."""
        return StoreError(
            f"the address of the store {self.label} is malformed: write it {_FORM}; an @ or / within a name or password is "
            "written %40 or %2F"
        )


def _turn_of(thread: str) -> str:
    return f"langgraph_convcoa turn\0{thread}"
