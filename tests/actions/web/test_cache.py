"""What is kept, for how long, and what happens to a file that is not as it should be."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from langgraph_convcoa.actions.web import pages as web_cache
from langgraph_convcoa.actions.web.pages import WebCache
from langgraph_convcoa.errors import RetrievalError
from tests.bounds import run_in_threads


class Clock:
    def __init__(self) -> None:
        self.time = 1_000.0

    def __call__(self) -> float:
        return self.time


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_value_is_kept_for_its_time_and_a_file_outlives_its_cache(on_disk: bool, tmp_path: Path) -> None:
    clock = Clock()
    cache = WebCache(tmp_path / "a" / "web.sqlite" if on_disk else None, now=clock)
    value = {"text": "Zürich \ud800", "n": [1, None]}
    cache.put("a", value, 60)
    cache.put("b", value, 0)
    cache.put("c", [1], 60)
    again = WebCache(tmp_path / "a" / "web.sqlite", now=clock) if on_disk else cache
    assert (cache.get("a"), cache.get("b"), again.get("c")) == (value, None, [1])
    clock.time += 61
    assert cache.get("a") is again.get("c") is None


def test_old_entries_leave_the_file_and_memory_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_cache, "_IN_MEMORY", 3 * 201)
    monkeypatch.setattr(web_cache, "_ON_DISK", 5)
    monkeypatch.setattr(web_cache, "_PRUNE_EVERY", 1)
    clock = Clock()
    cache, memory = WebCache(tmp_path / "web.sqlite", now=clock), WebCache(now=clock)
    cache.put("old", 1, 10)
    clock.time += 20
    for n in range(9):
        cache.put(str(n), n, 100 + n)
        memory.put(str(n), n, 100)
    with closing(sqlite3.connect(tmp_path / "web.sqlite")) as connection:
        keys = {row[0] for row in connection.execute("SELECT key FROM entries")}
    assert keys == {"4", "5", "6", "7", "8"}
    assert cache.get("5") == 5
    assert [memory.get(str(n)) for n in range(9)] == [None] * 6 + [6, 7, 8]


def test_a_damaged_entry_and_one_without_a_digest_are_asked_anew(tmp_path: Path) -> None:
    path = tmp_path / "web.sqlite"
    WebCache(path).put("a", {"text": "It is 300 m long."}, 60)
    WebCache(path).put("b", {"text": "It is red."}, 60)
    change = [
        "UPDATE entries SET value = replace(value, '300', '900') WHERE key = 'a'",
        "UPDATE entries SET value = (SELECT value FROM entries WHERE key = 'b') WHERE key = 'a'",
        "UPDATE entries SET expires = expires + 1 WHERE key = 'a'",
        """UPDATE entries SET value = '{"text": "of an older release"}' WHERE key = 'a'""",
        "UPDATE entries SET value = NULL WHERE key = 'a'",
        "UPDATE entries SET value = x'00ff' WHERE key = 'a'",
    ]
    for statement in change:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(statement)
        assert WebCache(path).get("a") is None, statement
        assert WebCache(path).get("b") == {"text": "It is red."}
        WebCache(path).put("a", {"text": "It is 300 m long."}, 60)
        assert WebCache(path).get("a") == {"text": "It is 300 m long."}


def test_another_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("My notes, which are longer than the header of an SQLite file. " * 10)
    before = text.read_bytes()
    with pytest.raises(RetrievalError, match="cannot be used"):
        WebCache(text)
    assert text.read_bytes() == before
    other = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE mine (a)")
    with pytest.raises(RetrievalError, match="no web cache"):
        WebCache(other)
    with pytest.raises(RetrievalError, match="cannot be made"):
        WebCache(text / "web.sqlite")


def test_a_file_that_is_damaged_later_costs_only_the_cache(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "web.sqlite"
    cache = WebCache(path)
    cache.put("a", 1, 60)
    for file in tmp_path.iterdir():
        file.write_bytes(b"damaged" * 1_000)
    assert cache.get("b") is None
    cache.put("c", 2, 60)
    assert "going on without it" in caplog.text


def test_threads_share_a_cache(tmp_path: Path) -> None:
    cache = WebCache(tmp_path / "web.sqlite")

    def work(n: int) -> None:
        for i in range(20):
            cache.put(f"{n} {i}", i, 60)

    run_in_threads(lambda n=n: work(n) for n in range(4))
    fresh = WebCache(tmp_path / "web.sqlite")
    assert [fresh.get(f"{n} {i}") for n in range(4) for i in range(20)] == list(range(20)) * 4
