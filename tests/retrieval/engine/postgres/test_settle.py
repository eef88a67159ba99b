"""Loads into one collection side by side, and how what comes after them ends: whole, interrupted or refused."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg
import pytest
from langchain_core.documents import Document

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.changes import Committed
from langgraph_convcoa.retrieval.engine.choose import open_engine
from langgraph_convcoa.retrieval.engine.load import load_into
from langgraph_convcoa.retrieval.engine.postgres.engine import PostgresEngine
from tests.bounds import SECONDS, joined, run_in_threads, wait_until
from tests.fake_encoder import WordEncoder
from tests.retrieval.engine.test_protocol import DIMENSION, axis, passage


def opened(address: str, **options: Any) -> PostgresEngine:
    engine = open_engine(address, **options)
    assert isinstance(engine, PostgresEngine)
    engine.open(DIMENSION, "test", create=True)
    return engine


def unbuilt(engine: PostgresEngine) -> list[str]:
    return engine._connections.run(engine._sql.unbuilt)


def waiting(connection: Any, table: str) -> list[int]:
    asked = "SELECT pid FROM pg_locks WHERE NOT granted AND relation = %s::regclass"
    return [row[0] for row in connection.execute(asked, [table]).fetchall()]


def test_the_last_of_several_loads_builds_the_indexes_and_none_waits_for_another(address, caplog):
    one, other = opened(address), opened(address, timeout=30)
    with other.loading():
        other.put([passage("a0", words="apple")])
        with one.loading():
            one.put([passage("b", words="pear"), passage("c", words="pear")])
        one.settle()
        assert "still being loaded by others; the last one builds its indexes" in caplog.text
        assert len(unbuilt(one)) == 4, "the other one is not done, and an index that is built keeps it waiting"
        other.put([passage("a1", words="apple"), passage("a2", words="apple")])
    other.settle()
    assert unbuilt(one) == []
    found = one.statistics(["apple", "pear"])
    assert (dict(found.frequencies), one.count(), len(one.search(axis(0), 9)[0])) == ({"apple": 3, "pear": 2}, 5, 5)
    one.close()
    other.close()


def test_a_load_that_has_ended_or_was_left_holds_nothing_any_more(address, connection):
    engine = opened(address)
    held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
    for number in range(2):
        with engine.loading():
            engine.put([passage(f"a{number}")])
            assert connection.execute(held).fetchone()[0] == 1
        assert connection.execute(held).fetchone()[0] == 0
        with pytest.raises(ZeroDivisionError), engine.loading():
            raise ZeroDivisionError
        assert connection.execute(held).fetchone()[0] == 0
        engine.settle()
        assert connection.execute(held).fetchone()[0] == 0
    engine.close()


def test_a_load_that_died_keeps_nobody_from_building(address, connection):
    one, dead = opened(address), opened(address)
    with dead.loading():
        dead.put([passage("a")])
        ended = "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock'"
        assert connection.execute(ended).fetchall() == [(True,)]
        one.settle()
        assert unbuilt(one) == []
        # What it does further is kept up by the indexes.
        dead.put([passage("b")])
    dead.settle()
    assert one.count() == 2
    one.close()
    dead.close()


def test_a_load_that_begins_while_indexes_are_built_waits_for_them(address, connection, caplog):
    opened(address).close()
    engine = opened(address, timeout=30)
    key = ["convcoa load " + engine.collection]
    connection.execute("SELECT pg_advisory_lock(hashtextextended(%s, 1))", key)
    done: list[int] = []

    def load() -> None:
        with engine.loading():
            engine.put([passage("a")])
        done.append(1)

    thread = threading.Thread(target=load, daemon=True)
    thread.start()
    asked = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    wait_until(lambda: connection.execute(asked).fetchone()[0] == 1, "a load that waits")
    assert "is having its indexes built" in caplog.text
    assert done == []
    connection.execute("SELECT pg_advisory_unlock(hashtextextended(%s, 1))", key)
    joined([thread])
    assert done == [1]
    engine.close()


def test_more_threads_than_connections_load_over_one_engine(address):
    engine = opened(address)
    started = threading.Barrier(10, timeout=SECONDS)

    def load(number: int) -> None:
        with engine.loading():
            # All of them have begun.
            started.wait()
            engine.put([passage(f"p{number}")])

    run_in_threads(partial(load, number) for number in range(10))
    assert engine.count() == 10
    engine.close()


def test_what_batches_left_is_summed_also_where_it_was_summed_before(address, connection):
    engine = opened(address)
    table = engine._sql.tables["frequencies"]

    def rows() -> list[int]:
        return [row[0] for row in connection.execute(f"SELECT found FROM {table} ORDER BY 1").fetchall()]

    with engine.loading():
        for one in (passage("a", words="apple"), passage("b", words="apple pear"), passage("c", words="fig")):
            engine.put([one])
    engine.delete(["c"])
    assert rows() == [-1, 1, 1, 1, 1]
    engine.settle()
    assert rows() == [1, 2]
    engine.put([passage("d", words="pear")])
    engine.put([passage("b")])
    before = engine.statistics(["apple", "pear", "fig"])
    engine.settle()
    assert rows() == [1, 1]
    assert engine.statistics(["apple", "pear", "fig"]) == before
    assert dict(before.frequencies) | {"fig": 0} == {"apple": 1, "pear": 1, "fig": 0}
    engine.close()


def interrupt(_connection: Any, _process: int) -> None:
    os.kill(os.getpid(), signal.SIGINT)


def cancel(connection: Any, process: int) -> None:
    connection.execute("SELECT pg_cancel_backend(%s)", [process])


@pytest.mark.parametrize(
    ("end", "error"), [(interrupt, KeyboardInterrupt), (cancel, RetrievalError)], ids=["ctrl-c", "cancelled"]
)
def test_ended_while_indexes_are_built_all_that_was_loaded_stands_and_the_next_load_builds_them(
    address, pgvector, caplog, end: Callable[[Any, int], None], error: type[BaseException]
):
    engine, documents = open_engine(address), [Document(f"Text {n}.", id=f"d{n}") for n in range(30)]
    assert isinstance(engine, PostgresEngine)
    load_into(engine, documents[:1], WordEncoder(), settle=False)
    table = engine._sql.tables["windows"]
    engine._connections.run(engine._sql.unbuild)
    held, seen = threading.Event(), list[int]()

    def blocked() -> None:
        with psycopg.connect(pgvector) as holding, psycopg.connect(pgvector, autocommit=True) as connection:
            # As a long transaction of a writer does.
            holding.execute(f"LOCK TABLE {table} IN ROW EXCLUSIVE MODE")
            held.set()
            wait_until(lambda: waiting(connection, table), "an index that waits")
            seen.extend(waiting(connection, table))
            end(connection, seen[0])
            wait_until(lambda: not waiting(connection, table), "the end of it, on the server too")

    thread = threading.Thread(target=blocked, daemon=True)
    thread.start()
    assert held.wait(SECONDS)
    with caplog.at_level(logging.WARNING), pytest.raises(error) as raised:
        load_into(engine, documents, WordEncoder())
    joined([thread])
    said = caplog.text if error is KeyboardInterrupt else str(raised.value)
    assert "All documents are loaded and stay so" in said
    assert engine.count() == 30
    assert unbuilt(engine)
    assert load_into(engine, documents, WordEncoder()) == Committed((), 0, 0, 30, 0, 30)
    assert unbuilt(engine) == []
    engine.close()
