import multiprocessing
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.encoders import cache as module
from langgraph_convcoa.retrieval.encoders.cache import PatternCache, encode_texts
from tests.bounds import SECONDS
from tests.retrieval.conftest import BagOfWords

TEXTS = ["apples grow", "pears fall", "apples grow", "plums rot"]


def test_a_text_is_encoded_once(tmp_path, encoder):
    first = encode_texts(encoder, TEXTS, PatternCache(tmp_path / "deep" / "c.sqlite"))
    assert sorted(encoder.passages) == sorted(set(TEXTS))
    again = encode_texts(encoder, [*reversed(TEXTS), "figs"], PatternCache(tmp_path / "deep" / "c.sqlite"))
    assert len(encoder.passages) == 4
    np.testing.assert_array_equal(again[:4], first[::-1])
    np.testing.assert_array_equal(first, encode_texts(encoder, TEXTS, None))


def test_encoders_do_not_share_vectors(tmp_path):
    cache = PatternCache(tmp_path / "c.sqlite")
    small, large = BagOfWords("a"), BagOfWords("b", dimension=512)
    encode_texts(small, TEXTS, cache)
    assert encode_texts(large, TEXTS, cache).shape == (4, 512)
    assert len(cache) == 6


def test_a_run_that_is_killed_goes_on_where_it_stopped(tmp_path, encoder, monkeypatch):
    monkeypatch.setattr(module, "_AT_ONCE", 2)
    texts = [f"text number {n}" for n in range(10)]
    cache = PatternCache(tmp_path / "c.sqlite")

    def stop(done: int, total: int) -> None:
        if done == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode_texts(encoder, texts, cache, stop)
    encoder.passages.clear()
    seen = []
    encode_texts(encoder, texts, cache, lambda done, total: seen.append((done, total, len(cache))))
    assert len(encoder.passages) == 4
    assert seen == [(2, 4, 8), (4, 4, 10)]


def test_a_damaged_vector_is_encoded_anew(tmp_path, encoder):
    cache = PatternCache(tmp_path / "c.sqlite")
    expected = encode_texts(encoder, TEXTS, cache)
    with sqlite3.connect(cache.path) as connection:
        rows = connection.execute("SELECT key, vector FROM patterns ORDER BY key").fetchall()
        flipped = bytes([rows[0][1][0] ^ 1]) + rows[0][1][1:]
        connection.execute("UPDATE patterns SET vector = ? WHERE key = ?", (flipped, rows[0][0]))
        # A whole vector in the wrong place is no less wrong.
        connection.execute("UPDATE patterns SET vector = ? WHERE key = ?", (rows[1][1], rows[2][0]))
    connection.close()
    encoder.passages.clear()
    np.testing.assert_array_equal(encode_texts(encoder, TEXTS, cache), expected)
    assert len(encoder.passages) == 2
    encoder.passages.clear()
    encode_texts(encoder, TEXTS, cache)
    assert encoder.passages == []


def test_another_file_is_an_error_and_left_alone(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("my notes " * 200)
    with pytest.raises(RetrievalError, match="damaged or no cache") as caught:
        PatternCache(path)
    assert str(path) in str(caught.value)
    assert path.read_text() == "my notes " * 200
    with closing(sqlite3.connect(tmp_path / "other.sqlite")) as connection:
        connection.execute("CREATE TABLE notes (text)")
    before = (tmp_path / "other.sqlite").read_bytes()
    with pytest.raises(RetrievalError, match="no pattern cache"):
        PatternCache(tmp_path / "other.sqlite")
    assert (tmp_path / "other.sqlite").read_bytes() == before


def test_another_version_and_a_truncated_file_are_errors(tmp_path, encoder):
    cache = PatternCache(tmp_path / "c.sqlite")
    encode_texts(encoder, [f"text {n}" for n in range(200)], cache)
    connection = sqlite3.connect(cache.path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    data = cache.path.read_bytes()
    cache.path.write_bytes(data[: len(data) // 2 + 100])
    with pytest.raises(RetrievalError, match="delete it"):
        encode_texts(encoder, [f"text {n}" for n in range(200)], PatternCache(cache.path))
    newer = PatternCache(tmp_path / "newer.sqlite")
    connection = sqlite3.connect(newer.path)
    connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(RetrievalError, match="version 99"):
        PatternCache(newer.path)


def test_a_path_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(RetrievalError, match="cannot be made or used"):
        PatternCache(tmp_path / "file" / "c.sqlite")
    with pytest.raises(RetrievalError, match="cannot be made or used"):
        PatternCache(tmp_path)


def test_a_cache_that_cannot_be_written_still_gives_the_vectors(tmp_path, encoder, monkeypatch, caplog):
    cache = PatternCache(tmp_path / "c.sqlite")
    monkeypatch.setattr(module, "_AT_ONCE", 1)

    class Full(sqlite3.Connection):
        def executemany(self, *args):
            raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("langgraph_convcoa.files.open_sqlite", lambda path, *_, **__: sqlite3.connect(path, factory=Full))
    np.testing.assert_array_equal(encode_texts(encoder, TEXTS, cache), encode_texts(encoder, TEXTS, None))
    assert [record.message for record in caplog.records] == [
        f"The pattern cache {cache.path} cannot be written (database or disk is full); going on without it."
    ]


def _fill(path: str, start: int) -> None:
    encode_texts(BagOfWords(), [f"text number {n}" for n in range(start, start + 300)], PatternCache(path))


def test_two_processes_share_a_file(tmp_path, encoder):
    path = str(tmp_path / "c.sqlite")
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_fill, args=(path, start), daemon=True) for start in (0, 150)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(SECONDS)
    assert [process.exitcode for process in processes] == [0, 0]
    texts = [f"text number {n}" for n in range(450)]
    np.testing.assert_array_equal(encode_texts(encoder, texts, PatternCache(path)), encode_texts(encoder, texts, None))
    assert len(PatternCache(path)) == 450
