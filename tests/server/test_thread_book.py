"""The book of threads, when several servers over one store write in it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from langgraph_convcoa.server.thread_book import ThreadBook
from langgraph_convcoa.storage import ConversationStore
from langgraph_convcoa.storage.sqlite import SqliteStore
from tests.bounds import SECONDS

pytest.importorskip("aiosqlite")


async def renamed_by_several(stores: list[ConversationStore], times: int) -> set[str]:
    """What is kept of a thread whose metadata several servers have added to at a time."""
    async with AsyncExitStack() as stack, asyncio.timeout(SECONDS):
        books = []
        for store in stores:
            await stack.enter_async_context(store.opened())
            books.append(ThreadBook(await stack.enter_async_context(store.book()), store.entry))
        await books[0].create("ann", "t", {})

        async def rename(book: ThreadBook, number: int) -> None:
            async with book.changing("ann", "t"):
                entry = await book.get("ann", "t")
                assert entry is not None
                await asyncio.sleep(0)
                entry["metadata"][f"n{number}"] = True
                await book.put("ann", entry)

        await asyncio.gather(*(rename(books[number % len(books)], number) for number in range(times)))
        found = await books[-1].get("ann", "t")
        assert found is not None
        return set(found["metadata"])


async def test_what_several_servers_note_of_a_thread_is_all_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langgraph_convcoa.storage.sqlite.WAIT_SECONDS", SECONDS)
    stores: list[ConversationStore] = [SqliteStore(tmp_path / "store.sqlite") for _ in range(2)]
    assert await renamed_by_several(stores, 8) == {f"n{number}" for number in range(8)}
