"""The engine by itself, over a real server: what it stores and finds, whose it is, and how it fails."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.engine.choose import open_engine
from langgraph_convcoa.retrieval.engine.postgres.connections import _MOST
from langgraph_convcoa.retrieval.engine.postgres.engine import PostgresEngine
from tests.bounds import SECONDS, run_in_threads
from tests.postgres_server import PASSWORD
from tests.retrieval.engine.test_protocol import DIMENSION, axis, passage

# A server that is not given up would be waited for without an end.
pytestmark = pytest.mark.timeout(SECONDS)


@pytest.fixture
def engine(address: str) -> Iterator[PostgresEngine]:
    engine = open_engine(address)
    assert isinstance(engine, PostgresEngine)
    engine.open(DIMENSION, "test", create=True)
    yield engine
    engine.close()


def everything(engine: PostgresEngine, connection: Any) -> dict[str, list[Any]]:
    columns = {
        "documents": "tenant, document, digest",
        "passages": "tenant, id, document, part, text, metadata, spans, terms, vectors",
        "windows": "tenant, vector::text",
        "words": "tenant, term, count, length",
    }
    tables = engine._sql.tables
    found = {
        name: connection.execute(f"SELECT {what} FROM {tables[name]} ORDER BY {what}").fetchall()
        for name, what in columns.items()
    }
    summed = "SELECT tenant, term, sum(found) FROM {} GROUP BY tenant, term HAVING sum(found) <> 0 ORDER BY 1, 2"
    found["frequencies"] = connection.execute(summed.format(tables["frequencies"])).fetchall()
    totals = "SELECT tenant, sum(passages), sum(filled), sum(words) FROM {} GROUP BY tenant ORDER BY 1"
    found["totals"] = connection.execute(totals.format(tables["totals"])).fetchall()
    return found


def test_what_goes_leaves_no_row(engine, connection):
    engine.put([passage("x#1", "x", words="one two"), passage("x#2", "x", words="two"), passage("y", words="three")])
    engine.put([passage("x", words="four")])
    engine.delete(["x", "y"])
    engine.settle()
    assert not any(rows for name, rows in everything(engine, connection).items() if name != "totals")


def test_text_of_any_script_is_kept_whatever_encoding_the_environment_names(address, monkeypatch):
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    engine = open_engine(address, tenant="Zoë 日本")
    engine.open(DIMENSION, "test", create=True)
    engine.put([passage("é", "日本 🎈", words="naïve 日本", of="Zoë")])
    assert engine.parts(["日本 🎈"]) == {"日本 🎈": ["é"]}
    [found] = engine.patterns(["é"])
    assert (found.text, found.metadata, found.terms) == ("naïve 日本", {"of": "Zoë"}, {"naïve": 1, "日本": 1})
    assert engine.search(axis(0), 1) == [["é"]]
    engine.close()


def test_two_that_write_the_same_documents_leave_one_state(engine, connection, address):
    def write(words: str) -> None:
        own = open_engine(address)
        own.open(DIMENSION, "test")
        for _ in range(8):
            own.put([passage(f"x{n}#1", f"x{n}", words=words) for n in (2, 0, 1)] + [passage("y", words=words)])
        own.close()

    run_in_threads(partial(write, words) for words in ("one two", "one", "three"))
    assert engine.count() == 4
    kept = {words for words in ("one two", "one", "three") if engine.patterns(["y"])[0].text == words}
    assert {engine.patterns([f"x{n}#1"])[0].text for n in range(3)} == kept
    [words] = kept
    assert dict(engine.statistics(words.split()).frequencies) == dict.fromkeys(words.split(), 4)


def test_more_threads_than_connections_wait_for_each_other(engine):
    engine.put([passage("x")])
    found: list[Any] = []
    run_in_threads([lambda: found.append(engine.search(axis(0), 1))] * 20)
    assert found == [[["x"]]] * 20
    assert len(engine._connections._kept) <= _MOST


def test_two_make_a_collection_at_once(address):
    engines = [open_engine(address) for _ in range(4)]
    run_in_threads(partial(engine.open, DIMENSION, "test", create=True) for engine in engines)
    for engine in engines:
        engine.put([passage("x")])
        assert engine.count() == 1
        engine.close()


def test_another_version_and_long_vectors_are_refused_before_anything_is_written(engine, address, connection):
    other = open_engine(address)
    with pytest.raises(InputError, match="up to 4000 numbers"):
        open_engine(address, collection="large").open(5_000, "test", create=True)
    connection.execute("UPDATE convcoa_collections SET version = 99 WHERE name = %s", [engine.collection])
    with pytest.raises(RetrievalError, match="is of version 99, and this library reads version 1"):
        other.open(DIMENSION, "test", create=True)
    with pytest.raises(RetrievalError, match="version 99"):
        engine.put([passage("x")])
    assert engine.count() == 0
    other.close()


def test_no_password_in_any_message_or_picture_of_the_engine(address):
    assert PASSWORD not in repr(open_engine(address))
    wrong = open_engine(address.replace("reader:", "reader:wr0ng-"))
    with pytest.raises(RetrievalError, match="password authentication failed") as raised:
        wrong.open(DIMENSION, "test")
    assert "wr0ng" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_an_engine_that_takes_a_connection_and_says_nothing_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        engine = open_engine(f"postgresql://u:pw@127.0.0.1:{port}/x?collection=c", timeout=1)
        with pytest.raises(RetrievalError, match="did not answer within 1 s"):
            engine.count()


@contextmanager
def stopped(processes: list[int]) -> Iterator[None]:
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)


@pytest.mark.skipif(os.getuid() != 0, reason="the server runs as another user, whose processes only root may stop")
def test_a_server_that_stands_still_is_given_up(engine, connection):
    engine.put([passage("x")])
    [[process]] = engine._connections.run(lambda cursor: cursor.execute("SELECT pg_backend_pid()").fetchall())
    engine._connections.timeout, patience = 1, engine._connections.timeout
    with stopped([process]), pytest.raises(RetrievalError, match="did not answer within 1 s"):
        engine.search(axis(0), 1)
    engine._connections.timeout = patience
    assert engine.search(axis(0), 1) == [["x"]]


def test_an_engine_that_is_full_says_so_and_keeps_what_it_had(engine, connection):
    engine.put([passage("x", words="one")])
    before = everything(engine, connection)
    table = engine._sql.tables["words"]
    connection.execute(
        f"CREATE FUNCTION full_{table}() RETURNS trigger LANGUAGE plpgsql AS "
        "$$BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END$$"
    )
    connection.execute(f"CREATE TRIGGER full_disk BEFORE INSERT ON {table} EXECUTE FUNCTION full_{table}()")
    for again in (1, 2):
        with pytest.raises(RetrievalError, match=r"is full \(could not extend file.*make room"):
            engine.put([passage("y", words="two"), passage("x", words=f"three {again}")])
    assert everything(engine, connection) == before
    connection.execute(f"DROP TRIGGER full_disk ON {table}")
    engine.put([passage("y", words="two")])
    assert engine.count() == 2


def test_an_engine_that_is_busy_is_given_up_and_works_again_later(engine, connection, address):
    engine.put([passage("x")])
    impatient = open_engine(address)
    impatient.open(DIMENSION, "test")
    patience = impatient.timeout
    impatient.timeout = impatient._connections.timeout = 0.5
    with connection.transaction():
        connection.execute(f"LOCK TABLE {engine._sql.tables['passages']}")
        for ask in (lambda: impatient.search(axis(0), 1), lambda: impatient.put([passage("y")])):
            with pytest.raises(RetrievalError, match="did not answer within"):
                ask()
    impatient.timeout = impatient._connections.timeout = patience
    assert impatient.search(axis(0), 1) == [["x"]]
    assert impatient.count() == 1
    impatient.close()
