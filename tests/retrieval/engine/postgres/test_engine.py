"""The engine by itself, over a real server: what it stores and finds, whose it is, and how it fails."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.engine.base import StoredPassage
from langgraph_convcoa.retrieval.engine.choose import open_engine
from langgraph_convcoa.retrieval.engine.postgres.engine import PostgresEngine
from tests.bounds import joined
from tests.postgres_server import PASSWORD

DIMENSION = 8


def passage(name: str, document: str | None = None, *, words: str = "", axis: int = 0, **metadata: Any) -> StoredPassage:
    vectors = np.zeros((3, DIMENSION), dtype=np.float32)
    vectors[:, axis] = 1
    vectors[2, (axis + 1) % DIMENSION] = 0.1
    terms = {word: words.split().count(word) for word in words.split()}
    text = words or name
    return StoredPassage(name, document or name, text, metadata, [(0, 1), (1, 2)], vectors, terms, f"{words}{axis}".encode())


def axis(number: int) -> np.ndarray[Any, Any]:
    return np.eye(DIMENSION, dtype=np.float32)[number : number + 1]


@pytest.fixture
def engine(address: str) -> Iterator[PostgresEngine]:
    engine = open_engine(address)
    assert isinstance(engine, PostgresEngine)
    engine.open(DIMENSION, "test", create=True)
    yield engine
    engine.close()


def everything(engine: PostgresEngine, connection: Any) -> dict[str, list[Any]]:
    """The rows of all tables, summed where rows are summed."""
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


@pytest.mark.parametrize("exact", [0, 5_000], ids=["hnsw", "compared"])
def test_the_nearest_passages_come_first_each_once_and_as_many_as_are_asked_for(engine, exact):
    engine._exact = exact
    engine.put([passage(f"p{n}", axis=n % 4, even=n % 2 == 0) for n in range(200)])
    [first, second] = engine.search(np.concatenate([axis(2), axis(3)]), 50)
    assert set(first) == {f"p{n}" for n in range(200) if n % 4 == 2}
    assert len(second) == len(set(second)) == 50
    [every] = engine.search(axis(1), 300)
    assert len(every) == 200
    [odd] = engine.search(axis(2), 60, {"even": False})
    assert len(odd) == 60
    assert all(int(name[1:]) % 2 for name in odd)


def test_the_same_again_changes_nothing_and_what_goes_leaves_nothing(engine, connection):
    parts = [passage("x#1", "x", words="one two"), passage("x#2", "x", words="two")]
    engine.put([*parts, passage("y", words="three")])
    before = everything(engine, connection)
    engine.put([passage("y", words="three")])
    engine.put(parts)
    assert everything(engine, connection) == before
    engine.put([passage("x", words="four")])
    assert engine.parts(["x"]) == {"x": ["x"]}
    engine.put(parts)
    assert everything(engine, connection) == before
    engine.delete(["x", "z"])
    engine.delete(["x"])
    engine.delete(["y"])
    engine.settle()
    assert not any(rows for name, rows in everything(engine, connection).items() if name != "totals")
    assert engine.count() == 0


def test_a_batch_is_written_whole_or_not_at_all(engine, connection):
    engine.put([passage("x", words="one")])
    before = everything(engine, connection)
    with pytest.raises(RetrievalError, match="passage of another document"):
        engine.put([passage("y", words="two"), passage("x", "z", words="three")])
    assert everything(engine, connection) == before


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


def test_a_load_stores_what_put_stores_and_builds_the_indexes_at_the_end(engine, address, connection):
    batches = [[passage(f"p{n}", words=f"w{n} all", axis=n % 8) for n in range(start, start + 20)] for start in (0, 20, 40)]
    with pytest.raises(KeyboardInterrupt), engine.loading():
        engine.put(batches[0])
        raise KeyboardInterrupt
    other = open_engine(address)
    other.open(DIMENSION, "test")
    assert other.count() == 20
    assert other._connections.run(other._sql.unbuilt)
    assert len(other.search(axis(0), 5)[0]) == 5
    with other.loading():
        for batch in batches[1:]:
            other.put(batch)
    other.settle()
    assert not other._connections.run(other._sql.unbuilt)
    copy = open_engine(address, collection="copied_" + engine.collection)
    copy.open(DIMENSION, "test", create=True)
    for batch in batches:
        copy.put(batch)
    assert everything(copy, connection) == everything(other, connection)
    other.close()
    copy.close()


def test_two_that_write_the_same_documents_leave_one_state(engine, connection, address):
    def write(words: str) -> None:
        own = open_engine(address)
        own.open(DIMENSION, "test")
        for _ in range(8):
            own.put([passage(f"x{n}#1", f"x{n}", words=words) for n in (2, 0, 1)] + [passage("y", words=words)])
        own.close()

    threads = [threading.Thread(target=write, args=(words,), daemon=True) for words in ("one two", "one", "three")]
    for thread in threads:
        thread.start()
    joined(threads)
    assert engine.count() == 4
    kept = {words for words in ("one two", "one", "three") if engine.patterns(["y"])[0].text == words}
    assert {engine.patterns([f"x{n}#1"])[0].text for n in range(3)} == kept
    [words] = kept
    assert dict(engine.statistics(words.split()).frequencies) == dict.fromkeys(words.split(), 4)


def test_two_make_a_collection_at_once(address):
    engines = [open_engine(address) for _ in range(4)]
    threads = [
        threading.Thread(target=engine.open, args=(DIMENSION, "test"), kwargs={"create": True}, daemon=True)
        for engine in engines
    ]
    for thread in threads:
        thread.start()
    joined(threads)
    for engine in engines:
        engine.put([passage("x")])
        assert engine.count() == 1
        engine.close()


def test_another_encoder_dimension_or_version_is_refused_before_anything_is_written(engine, address, connection):
    other = open_engine(address)
    with pytest.raises(RetrievalError, match="was encoded by 'test' in vectors of length 8, and the encoder given is 'else'"):
        other.open(DIMENSION, "else", create=True)
    with pytest.raises(RetrievalError, match="with vectors of length 9"):
        other.open(9, "test", create=True)
    with pytest.raises(InputError, match="up to 4000 numbers"):
        open_engine(address, collection="large").open(5_000, "test", create=True)
    connection.execute("UPDATE convcoa_collections SET version = 99 WHERE name = %s", [engine.collection])
    with pytest.raises(RetrievalError, match="is of version 99, and this library reads version 1"):
        other.open(DIMENSION, "test", create=True)
    with pytest.raises(RetrievalError, match="version 99"):
        engine.put([passage("x")])
    assert engine.count() == 0
    other.close()


def test_a_collection_that_is_not_there_is_said(address):
    engine = open_engine(address)
    with pytest.raises(RetrievalError, match="is not there; add documents"):
        engine.open(DIMENSION, "test")
    assert engine.count() == 0
    engine.close()


_NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_HOSTILE = (
    st.sampled_from(["theirs", "' OR 1=1 --", "%", "_", "secret", "default' --", "\\", "%s", "a\0b", "{passages}", '"'])
    | _NAMES
)


@pytest.mark.slow
def test_nothing_of_another_tenant_in_a_thousand_tries(address, connection):
    theirs = open_engine(address, tenant="theirs")
    theirs.open(DIMENSION, "test", create=True)
    theirs.put([passage(f"s{n}#1", f"s{n}", words="secret apple", owner="theirs", year=n) for n in range(20)])
    before = everything(theirs, connection)
    tries = 0

    @settings(max_examples=100, suppress_health_check=list(HealthCheck))
    @given(tenant=_HOSTILE, name=_HOSTILE, value=_HOSTILE, ids=st.lists(_HOSTILE, max_size=3))
    def attempt(tenant: str, name: str, value: str, ids: list[str]) -> None:
        nonlocal tries
        try:
            mine = open_engine(address, tenant="mine" if tenant == "theirs" else tenant)
        except InputError:
            mine = open_engine(address, tenant="mine")
        mine._exact = 0 if len(ids) % 2 else 5_000
        mine.open(DIMENSION, "test")
        for condition in (None, {name: value}, {"$or": [{name: {"$ne": value}}, {"owner": "theirs"}]}, {"year": {"$gte": 0}}):
            try:
                assert mine.search(axis(0), 10, condition) == [[]]
                assert mine.words({"secret": 1.0, value: 1.0}, 2.0, 10, condition) == []
            except InputError:
                pass
            tries += 2
        named = [*ids, "s1", "s1#1", value]
        mine.delete(named)
        assert (mine.patterns(named), mine.parts(named), mine.digests(named)) == ([], {}, {})
        found = mine.statistics(["secret", value])
        assert (found.passages, dict(found.frequencies), mine.count()) == (0, {}, 0)
        tries += 6
        mine.close()

    attempt()
    assert tries >= 1_000
    assert everything(theirs, connection) == before
    # Ids are a tenant's own.
    mine = open_engine(address, tenant="mine")
    mine.open(DIMENSION, "test")
    mine.put([passage("s1#1", "s1", words="plain")])
    mine.delete(["s1"])
    assert everything(theirs, connection) | {"totals": before["totals"]} == before
    mine.close()
    theirs.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://u:hunter22@localhost/x", "names no collection"),
        ("postgresql://u:hunter22@localhost:12x/x?collection=c", "cannot be read"),
        ("postgresql://u:hunter22@[::1/x?collection=c", "cannot be read"),
        ("postgresql://u:hunter22@localhost/x?collection=c&nonsense=hunter22", "cannot be read"),
        ("postgresql://u:hunter22@localhost/x?collection=Dr%20o%27p", "cannot be used"),
        ("postgresql://u:hunter22@localhost/x?collection=c&tenant=", "tenant must be"),
        ("postgresql://u:hunter22@localhost/x?collection=c&tenant=%00", "NUL"),
        ("mongodb://u:hunter22@localhost/x?collection=c", "not the address of an engine"),
    ],
)
def test_an_address_that_cannot_be_used_is_said_without_its_password(url, message):
    with pytest.raises(InputError, match=message) as raised:
        open_engine(url)
    assert "hunter22" not in str(raised.value)


def test_no_password_in_any_message_or_picture_of_the_engine(address):
    assert PASSWORD not in repr(open_engine(address))
    wrong = open_engine(address.replace("reader:", "reader:wr0ng-"))
    with pytest.raises(RetrievalError, match="password authentication failed") as raised:
        wrong.open(DIMENSION, "test")
    assert "wr0ng" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_an_engine_that_is_down_fails_at_once():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    engine = open_engine(f"postgresql://u:pw@127.0.0.1:{port}/x?collection=c")
    start = time.monotonic()
    with pytest.raises(RetrievalError, match=r"cannot be reached: .*refused"):
        engine.open(DIMENSION, "test")
    assert time.monotonic() - start < 5


def test_an_engine_that_takes_a_connection_and_says_nothing_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        engine = open_engine(f"postgresql://u:pw@127.0.0.1:{port}/x?collection=c", timeout=1)
        start = time.monotonic()
        with pytest.raises(RetrievalError, match="did not answer within 1 s"):
            engine.count()
        assert time.monotonic() - start < 5


def test_an_engine_that_is_busy_is_given_up_and_works_again_later(engine, connection, address):
    engine.put([passage("x")])
    impatient = open_engine(address, timeout=0.5)
    impatient.open(DIMENSION, "test")
    with connection.transaction():
        connection.execute(f"LOCK TABLE {engine._sql.tables['passages']}")
        for ask in (lambda: impatient.search(axis(0), 1), lambda: impatient.put([passage("y")])):
            start = time.monotonic()
            with pytest.raises(RetrievalError, match="did not answer within"):
                ask()
            assert time.monotonic() - start < 5
    assert impatient.search(axis(0), 1) == [["x"]]
    assert impatient.count() == 1
    impatient.close()


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
    engine._connections.timeout = 1
    engine.put([passage("x")])
    [[process]] = engine._connections.run(lambda cursor: cursor.execute("SELECT pg_backend_pid()").fetchall())
    with stopped([process]):
        start = time.monotonic()
        with pytest.raises(RetrievalError, match="did not answer within 1 s"):
            engine.search(axis(0), 1)
        assert time.monotonic() - start < 5
    assert engine.search(axis(0), 1) == [["x"]]


def test_a_connection_that_the_server_closed_is_made_again(engine, connection):
    engine.put([passage("x")])
    [[process]] = engine._connections.run(lambda cursor: cursor.execute("SELECT pg_backend_pid()").fetchall())
    connection.execute("SELECT pg_terminate_backend(%s, 5000)", [process])
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


def test_more_threads_than_connections_wait_for_each_other(engine):
    engine.put([passage("x")])
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(engine.search(axis(0), 1)), daemon=True) for _ in range(20)]
    for thread in threads:
        thread.start()
    joined(threads)
    assert found == [[["x"]]] * 20
    assert len(engine._connections._kept) <= 8


def test_a_pickled_engine_has_connections_of_its_own(engine):
    engine.put([passage("x")])
    copy = pickle.loads(pickle.dumps(engine))
    assert copy.search(axis(0), 1) == [["x"]]
    assert not {*map(id, copy._connections._kept)} & {*map(id, engine._connections._kept)}
    copy.close()
