"""Conversations in a PostgreSQL database, for programs on many machines."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from langgraph_convcoa.errors import StoreError, redact
from langgraph_convcoa.retrieval.engine.postgres.driver import passwords_of
from langgraph_convcoa.storage import CONNECT_SECONDS, ConversationStore

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.store.base import BaseStore

    from langgraph_convcoa.storage.advisory import AdvisoryLocks

_FORM = "postgresql://user@host:5432/database, with the password in PGPASSWORD"


class PostgresStore(ConversationStore):
    """Threads in the tables of LangGraph's `AsyncPostgresSaver`.

    A turn holds an advisory lock on its thread, so that programs on any number of machines take turns. The lock ends with the
    program's connection, also if the program is killed. A program has at most five connections for any number of turns.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._locks: AdvisoryLocks  # while the store is open
        # Show only host and database. In a malformed address any part might be the password, so no part is shown.
        place, _, options = address.partition("://")[2].partition("?")
        rest = place.rpartition("@")[2]
        plain = re.fullmatch(r"[\w.,-]*(:\d+)?(/[\w.-]*)?", rest) and "@" not in options
        self.label = f"postgresql://{rest}" if plain else "postgresql://..."

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

        from langgraph_convcoa.storage.advisory import AdvisoryLocks

        pool = AsyncConnectionPool(
            self._address,
            kwargs={"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row},
            min_size=1,
            max_size=2,  # The saver uses one connection at a time.
            # A chat may wait for hours between turns, longer than a server or a firewall keeps a connection.
            check=AsyncConnectionPool.check_connection,
            open=False,
        )
        with self.errors():
            async with pool, AdvisoryLocks(self._address, self._lost) as self._locks:
                saver: AsyncPostgresSaver = AsyncPostgresSaver(pool)  # type: ignore[arg-type]
                async with self._setting_up():
                    await saver.setup()
                yield saver

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

    def turn(self, thread: str, wait: float) -> AbstractAsyncContextManager[None]:
        return self._locks.held(_turn_of(thread), wait, lambda: self.busy(thread))

    def entry(self, name: str) -> AbstractAsyncContextManager[None]:
        return self._locks.held(f"langgraph_convcoa entry\0{name}", CONNECT_SECONDS, lambda: self.busy(name))

    async def taken(self, threads: Iterable[str]) -> set[str]:
        names = {_turn_of(thread): thread for thread in threads}
        return {names[name] for name in await self._locks.taken([*names])} if names else set()

    def _setting_up(self) -> AbstractAsyncContextManager[None]:
        busy = StoreError(f"{self.label} is busy: try again")
        return self._locks.held("langgraph_convcoa setup", CONNECT_SECONDS * 6, lambda: busy)

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
