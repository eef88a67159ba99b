"""Locks over a connection that is lost at the worst moments, with a server that is made up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest

psycopg = pytest.importorskip("psycopg")

from langgraph_convcoa.errors import StoreError, ThreadBusyError  # noqa: E402
from langgraph_convcoa.storage import advisory  # noqa: E402
from langgraph_convcoa.storage.advisory import AdvisoryLocks, lock_key  # noqa: E402
from tests.bounds import SECONDS  # noqa: E402


class Server:
    """Its connections, and what each of them holds; `then` is called with the statement and before its result is given."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.then: Callable[[str], Any] | None = None

    def holds(self, name: str) -> list[bool]:
        return [lock_key(name) in connection.held for connection in self.connections]


class Connection:
    def __init__(self, server: Server) -> None:
        self.server, self.closed = server, False
        self.held: list[int] = []
        server.connections.append(self)

    async def execute(self, query: bytes, given: tuple[Any, ...] | None = None) -> Connection:
        await asyncio.sleep(0)
        if self.closed:
            raise psycopg.OperationalError("the connection is closed")
        self.answer: list[tuple[Any, ...]] = []
        if b"try_advisory_lock" in query:
            assert given is not None
            others = [one for one in self.server.connections if one is not self and given[0] in one.held]
            if not others:
                self.held.append(given[0])
            self.answer = [(not others,)]
        elif b"unlock" in query:
            assert given is not None
            with suppress(ValueError):
                self.held.remove(given[0])
        if self.server.then is not None:
            await self.server.then(query.decode())
        return self

    async def fetchall(self) -> list[tuple[Any, ...]]:
        return self.answer

    async def close(self) -> None:
        self.closed = True
        self.held.clear()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()

    async def connect(*_: object, **__: object) -> Connection:
        return Connection(server)

    monkeypatch.setattr(psycopg.AsyncConnection, "connect", connect)
    monkeypatch.setattr(advisory, "_BEAT_SECONDS", 0.01)
    return server


@pytest.fixture
async def locks(server: Server) -> AsyncIterator[AdvisoryLocks]:
    async with asyncio.timeout(2 * SECONDS), AdvisoryLocks("", lambda: StoreError("lost")) as locks:
        yield locks


def busy() -> Exception:
    return ThreadBusyError("busy")


async def test_one_that_comes_when_the_lock_is_handed_over_waits_no_longer_than_it_may(locks: AdvisoryLocks) -> None:
    has, leave = asyncio.Event(), asyncio.Event()

    async def second() -> None:
        async with locks.held("x", SECONDS, busy):
            has.set()
            await leave.wait()

    async with locks.held("x", 0, busy):
        waiting = asyncio.create_task(second())
        await asyncio.sleep(0.05)
    # It is free, and yet another's.
    with pytest.raises(ThreadBusyError):
        async with asyncio.timeout(SECONDS), locks.held("x", 0.05, busy):
            pass
    await has.wait()
    leave.set()
    await waiting
    async with locks.held("x", 0, busy):
        pass


async def test_a_connection_that_was_given_up_holds_nothing_any_more(locks: AdvisoryLocks, server: Server) -> None:
    async def cancelled(query: str) -> None:
        if query == "SELECT 1":
            server.then = None
            raise psycopg.errors.QueryCanceled("by an administrator")

    with pytest.raises(StoreError, match="lost"):
        async with locks.held("x", SECONDS, busy):
            server.then = cancelled
            await asyncio.sleep(SECONDS)
    assert server.holds("x") == [False]
    async with locks.held("x", 0, busy):
        assert server.holds("x") == [False, True]


async def test_one_that_is_cancelled_twice_while_it_asks_for_a_lock_leaves_none(locks: AdvisoryLocks, server: Server) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def slow(query: str) -> None:
        if "try_advisory_lock" in query:
            asked.set()
            await answer.wait()

    async def turn() -> None:
        async with locks.held("x", SECONDS, busy):
            raise AssertionError

    server.then = slow
    asking = asyncio.create_task(turn())
    await asked.wait()
    for _ in range(2):
        asking.cancel()
        await asyncio.sleep(0.01)
    answer.set()
    with pytest.raises(asyncio.CancelledError):
        await asking
    async with asyncio.timeout(SECONDS):
        while any(server.holds("x")):
            await asyncio.sleep(0.01)


async def test_a_server_that_says_nothing_is_given_up_though_its_connection_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advisory, "_LOST_SECONDS", 0.3)
    writers = list[asyncio.StreamWriter]()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Takes whoever comes and says that it is ready, to the first statement too, and nothing more."""
        writers.append(writer)
        ready = b"Z\0\0\0\5I"
        await reader.read(1000)
        writer.write(b"R\0\0\0\x08\0\0\0\0" + ready)
        await reader.read(1000)
        writer.write(b"T\0\0\0\6\0\0C\0\0\0\x0dSELECT 1\0" + ready)

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    address = f"postgresql://u:pw@127.0.0.1:{port}/x?sslmode=disable&gssencmode=disable"
    async with server, AdvisoryLocks(address, lambda: StoreError("lost")) as locks:
        with pytest.raises(psycopg.OperationalError):
            # Far less than the 10 s for which the driver would wait for the end of what it cancels.
            async with asyncio.timeout(9), locks.held("x", SECONDS, busy):
                pass
        for writer in writers:
            writer.close()
    assert len(writers) == 2
