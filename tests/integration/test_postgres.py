"""Conversations in a real PostgreSQL: eight writers at once, and a password that is never shown."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from langgraph_convcoa.errors import ModelError, StoreError, ThreadBusyError
from langgraph_convcoa.graph import build_graph
from langgraph_convcoa.server.thread_book import ThreadBook
from langgraph_convcoa.storage import open_store
from langgraph_convcoa.storage.threads import Threads
from langgraph_convcoa.storage.turns import Turns, before_last, config_of
from tests.bounds import SECONDS
from tests.fakes import KeywordRetriever, ScriptedModel, direct
from tests.integration.turns import context, many_turns
from tests.postgres_server import PASSWORD, postgres_server
from tests.server.test_thread_book import renamed_by_several
from tests.storage.test_threads import session

pytest.importorskip("psycopg_pool")
pytest.importorskip("langgraph.checkpoint.postgres")
import psycopg

pytestmark = pytest.mark.slow

WRITERS = 8
TURNS = 200
THREADS = ["a", "b", "a.b", "a/b"]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with postgres_server() as address:
        yield address


async def test_turns_of_one_program_at_once_do_not_wait_for_each_others_connections(address: str) -> None:
    """As those of a server: each holds its lock while its steps are stored."""
    store = open_store(address)
    async with store.opened() as saver, store.book() as book, asyncio.timeout(SECONDS):
        all_there = asyncio.Barrier(12)

        async def turn(number: int) -> None:
            async with store.turn(f"at once {number}", SECONDS):
                await all_there.wait()
                assert await saver.aget_tuple(config_of(f"at once {number}")) is None

        await asyncio.gather(*map(turn, range(12)))
        threads = ThreadBook(book, store.entry)
        for user in ("ann", "bob"):
            await threads.create(user, "t", {"title": user})
        await threads.delete("bob", "t")
        assert [[entry["metadata"] for entry in await threads.all(user)] for user in ("ann", "bob")] == [
            [{"title": "ann"}],
            [],
        ]


async def test_what_several_servers_note_of_a_thread_is_all_kept(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langgraph_convcoa.storage.postgres.CONNECT_SECONDS", SECONDS)
    assert await renamed_by_several([open_store(address) for _ in range(3)], 24) == {f"n{number}" for number in range(24)}


def test_eight_writers_lose_nothing_and_mix_no_threads(address: str) -> None:
    processes = [
        context().Process(target=many_turns, args=(address, writer, THREADS, TURNS // WRITERS), daemon=True)
        for writer in range(WRITERS)
    ]
    for process in processes:
        process.start()
    end = time.monotonic() + 2 * SECONDS
    for process in processes:
        process.join(max(0.0, end - time.monotonic()))
    assert [process.exitcode for process in processes] == [0] * WRITERS
    with Threads(address) as threads:
        shown = {thread: threads.show(thread) for thread in THREADS}
        summaries = {summary.thread: summary for summary in threads.summaries()}
    expected: Counter[str] = Counter()
    for writer in range(WRITERS):
        for n in range(TURNS // WRITERS):
            thread = THREADS[(writer + n) % len(THREADS)]
            expected[f"{thread} {writer}-{n}"] += 1
    got: Counter[str] = Counter()
    for thread, rounds in shown.items():
        assert [entry["round"] for entry in rounds] == list(range(1, len(rounds) + 1))
        assert summaries[thread].rounds == len(rounds)
        assert not summaries[thread].unfinished
        for entry in rounds:
            asked = entry["original_question"].removeprefix("When was the Hopfield network described, ").rstrip("?")
            assert asked.rpartition(" ")[0] == thread
            assert "1982" in entry["answer"]
            got[asked] += 1
    assert got == expected
    assert sum(got.values()) == TURNS


def test_old_checkpoints_are_dropped_and_a_thread_is_deleted_with_what_it_shared(address: str) -> None:
    with session(address, "gone", share_knowledge=True, user_id="ann") as conversation:
        for n in range(3):
            conversation.ask(f"When was the Hopfield network described, xyzzy{n}?")

    def rows(connection: psycopg.Connection[tuple[int]], table: str, column: str) -> int:
        query = f"SELECT count(*) FROM {table} AS t WHERE t.{column}::text LIKE '%gone%' OR t::text LIKE '%xyzzy%'"
        found = connection.execute(query.encode()).fetchone()
        assert found is not None
        return found[0]

    with psycopg.connect(address) as connection:
        assert rows(connection, "checkpoints", "thread_id") == 1
        assert rows(connection, "store", "prefix") == 3
    with Threads(address) as threads:
        exported = threads.export("gone")
        threads.delete("gone")
        assert threads.add(exported) == "gone"
        assert threads.export("gone")["state"] == exported["state"]
        threads.delete("gone")
    with psycopg.connect(address) as connection:
        for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes"):
            assert rows(connection, table, "thread_id") == 0
        assert rows(connection, "store", "prefix") == 0


@pytest.mark.parametrize("change", ["wrong", "port", "host", "slash"])
def test_a_password_is_in_no_error(address: str, change: str) -> None:
    secret = "hunter2-very/secret"
    addresses = {
        "wrong": address.replace(quote(PASSWORD, safe=""), quote(secret, safe="")),
        "port": f"postgresql://reader:{quote(secret, safe='')}@localhost:{secret}/postgres",
        "host": f"postgresql://reader@nowhere.invalid/postgres?password={quote(secret, safe='')}",
        "slash": f"postgresql://reader:{secret}@localhost/postgres",
    }
    store = open_store(addresses[change])
    with pytest.raises(StoreError) as told:
        store.check()
    chain: BaseException | None = told.value
    shown = f"{store!r} {store.label} {told.value}"
    assert "hunter2" not in shown
    assert "PGPASSWORD" in shown
    assert "\n" not in str(chain)


def test_a_server_that_stops_and_returns_is_a_store_error_and_then_none(address: str) -> None:
    with session(address, "cut") as conversation:
        conversation.ask("When was the Hopfield network described?")
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        assert len(conversation.ask("Who introduced sparsemax?")["knowledge_set"]["Contextual knowledge set"]) == 2


async def test_the_last_turn_is_replaced_or_kept(address: str) -> None:
    replies = {"first": "It was in 1982 [1].", "second": "In 2016 [1].", "edited": "In 2020 [1]."}

    def reply(prompt: str) -> str:
        if "broken" in prompt:
            raise ConnectionError("no")
        return direct(next(text for word, text in [*replies.items()][::-1] if word in prompt))

    store = open_store(address)
    async with store.opened() as saver, asyncio.timeout(SECONDS):
        graph = build_graph(model=ScriptedModel(by_prompt=reply), retriever=KeywordRetriever()).compile(checkpointer=saver)
        turns = Turns(graph, store)
        for question in ("When was the first?", "When was the second?"):
            await turns.run("replaced", {"question": question})
        before = before_last(await turns.snapshot("replaced"))
        with pytest.raises(ModelError):
            await turns.run("replaced", {"question": "Is it broken?"}, before=before)
        assert before_last(await turns.snapshot("replaced")) == before
        assert [one["original_question"].split()[-1] for one in await turns.rounds("replaced")] == ["first?", "second?"]
        output = await turns.run("replaced", {"question": "When was the edited?"}, before=before)
        assert [message.text for message in (await turns.snapshot("replaced")).values["messages"]][-2:] == [
            "When was the edited?",
            output["answer"],
        ]
        await turns.rate("replaced", 2, "up")
        assert [one["convcoa"].get("rating") for one in await turns.rounds("replaced")] == [None, "up"]
        assert len([part async for part in saver.alist(config_of("replaced"))]) == 1


async def test_a_turn_whose_lock_is_lost_is_ended_at_once_and_can_be_resumed(address: str) -> None:
    """Another program may have the thread by then."""
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    store, other = open_store(address), open_store(address)
    async with store.opened(), store.book() as book, asyncio.timeout(SECONDS):
        threads = ThreadBook(book, store.entry)
        with pytest.raises(StoreError, match="ask again, and it is resumed"):
            async with store.turn("lost", SECONDS):
                async with await psycopg.AsyncConnection.connect(address, autocommit=True) as connection:
                    await connection.execute(end.encode())
                await asyncio.sleep(SECONDS)
        # Everything is reached anew.
        await threads.create("ann", "after", {})
        assert await threads.get("ann", "after") is not None
        async with other.opened(), other.turn("lost", SECONDS):
            assert await store.taken(["lost", "free"]) == {"lost"}
            with pytest.raises(ThreadBusyError):
                async with store.turn("lost", 0.1):
                    pass
            async with store.turn("free", 0):
                pass
        assert await store.taken(["lost", "free"]) == set()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1), store.turn("cancelled", SECONDS):
                await asyncio.sleep(SECONDS)
        assert await store.taken(["cancelled"]) == set()


async def test_a_program_takes_one_connection_for_all_its_locks(address: str) -> None:
    def connections() -> int:
        with psycopg.connect(address) as connection:
            [(count,)] = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE usename = 'reader'").fetchall()
        return count

    # Those of other tests may still be ending.
    store, others = open_store(address), connections()
    async with store.opened(), asyncio.timeout(SECONDS):
        all_there = asyncio.Barrier(301)

        async def turn(number: int) -> None:
            async with store.turn(f"many {number}", SECONDS):
                await all_there.wait()

        turns = [asyncio.create_task(turn(number)) for number in range(300)]
        await all_there.wait()
        await asyncio.gather(*turns)
        assert connections() - others <= 4
