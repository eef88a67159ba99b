"""Where conversations are kept, and what is said where they cannot be."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_convcoa.errors import ConvCoAError, InputError, StoreError
from langgraph_convcoa.storage import FORMAT, LONGEST_THREAD, default_store, open_store, thread_name
from langgraph_convcoa.storage.threads import Threads
from tests.storage.test_threads import WHEN, session


def filled(store: Path, thread: str = "a", rounds: int = 1) -> Path:
    with session(store, thread) as conversation:
        for _ in range(rounds):
            conversation.ask(WHEN)
    return store


def change(store: Path, *statement: Any) -> None:
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute(*statement)


def test_a_store_is_checked_without_being_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = tmp_path / "theirs.sqlite"
    change(theirs, "CREATE TABLE notes (x)")
    before = theirs.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        open_store(theirs).check()
    assert theirs.read_bytes() == before
    monkeypatch.setattr("os.access", lambda *_arguments: False)
    with pytest.raises(StoreError, match="cannot be written"):
        open_store(theirs).check()


def test_a_store_of_a_later_release_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    store = filled(tmp_path / "s.sqlite")
    change(store, f"PRAGMA user_version={FORMAT + 1}")
    before = store.read_bytes()
    for use in (session(store), Threads(store)):
        with pytest.raises(StoreError, match=f"format {FORMAT + 1}.*upgrade"), use:
            pass
    assert store.read_bytes() == before


def test_a_thread_of_a_later_release_is_refused_and_the_others_are_not(tmp_path: Path) -> None:
    store = filled(filled(tmp_path / "s.sqlite", "new"), "old")
    with closing(sqlite3.connect(store)) as connection:
        [(metadata,)] = connection.execute("SELECT metadata FROM checkpoints WHERE thread_id = 'new'")
        later = json.dumps({**json.loads(metadata), "convcoa_format": FORMAT + 1}).encode()
        connection.execute("UPDATE checkpoints SET metadata = ? WHERE thread_id = 'new'", (later,))
        connection.commit()
    with session(store, "new") as conversation, pytest.raises(StoreError, match="upgrade"):
        conversation.ask(WHEN)
    with session(store, "old") as conversation:
        conversation.ask(WHEN)
        assert len(conversation.rounds()) == 2


def test_a_store_made_before_stores_were_stamped_is_taken(tmp_path: Path) -> None:
    store = filled(tmp_path / "s.sqlite")
    change(store, "PRAGMA user_version=0")
    change(store, "PRAGMA application_id=0")
    with session(store) as conversation:
        assert len(conversation.rounds()) == 1


def test_a_locked_store_is_told_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langgraph_convcoa.storage.sqlite.WAIT_SECONDS", 0.05)
    store = filled(tmp_path / "s.sqlite")
    with session(store) as conversation:
        with closing(sqlite3.connect(store)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="in use by another program"):
                conversation.ask(WHEN)
        assert len(conversation.rounds()) == 1
        conversation.ask(WHEN)
        assert len(conversation.rounds()) == 2


def test_a_file_that_becomes_read_only_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    store = filled(tmp_path / "s.sqlite")
    with session(store) as conversation:
        # Root may write to any file, so the database itself is told to refuse.
        conversation._runner.run(conversation.turns.saver.conn.execute("PRAGMA query_only=ON"))  # type: ignore[union-attr]
        with pytest.raises(StoreError, match="cannot be written"):
            conversation.ask(WHEN)
        assert len(conversation.rounds()) == 1


@pytest.mark.skipif(os.getuid() == 0, reason="root may write to any file")
def test_a_read_only_file_is_told_before_anything_else(tmp_path: Path) -> None:
    store = filled(tmp_path / "s.sqlite")
    store.chmod(0o400)
    with pytest.raises(StoreError, match="cannot be written"):
        open_store(store).check()


def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    store = filled(tmp_path / "s.sqlite", rounds=3)
    content = bytearray(store.read_bytes())
    content[4096:] = random.Random(1).randbytes(len(content) - 4096)
    store.write_bytes(bytes(content))
    with pytest.raises(StoreError, match="damaged"), session(store) as conversation:
        conversation.ask(WHEN)
    store.write_bytes(b"SQLite format 3\0" + random.Random(1).randbytes(5000))
    with pytest.raises(StoreError):
        open_store(store).check()


def test_a_damaged_thread_is_told_and_can_be_deleted(tmp_path: Path) -> None:
    store = filled(filled(tmp_path / "s.sqlite", "bad"), "good")
    change(store, "UPDATE checkpoints SET checkpoint = x'c1c1c1' WHERE thread_id = 'bad'")
    with session(store, "bad") as conversation, pytest.raises(StoreError, match=r"'bad'.*damaged"):
        conversation.ask(WHEN)
    with Threads(store) as threads:
        with pytest.raises(StoreError, match="damaged"):
            threads.summaries()
        assert len(threads.show("good")) == 1
        threads.delete("bad")
        assert [summary.thread for summary in threads.summaries()] == ["good"]


@pytest.mark.parametrize("part", ["channel_values", "channel_versions", "versions_seen"])
def test_a_checkpoint_without_a_part_is_damaged(tmp_path: Path, part: str) -> None:
    store, serde = filled(tmp_path / "s.sqlite", "bad"), JsonPlusSerializer()
    with closing(sqlite3.connect(store)) as connection:
        for kind, blob, place in connection.execute("SELECT type, checkpoint, rowid FROM checkpoints").fetchall():
            checkpoint = serde.loads_typed((kind, blob))
            del checkpoint[part]
            changed = serde.dumps_typed(checkpoint)
            connection.execute("UPDATE checkpoints SET type = ?, checkpoint = ? WHERE rowid = ?", (*changed, place))
        connection.commit()
    with session(store, "bad") as conversation, pytest.raises(StoreError, match=r"'bad'.*damaged"):
        conversation.ask(WHEN)


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b\\c", "~", ".", "x\n y", "'; DROP TABLE checkpoints; --", "日本"])
def test_a_threads_name_may_hold_any_characters(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    store = filled(tmp_path / "in" / "s.sqlite", name)
    filled(store, "other")
    with Threads(store) as threads:
        assert sorted(summary.thread for summary in threads.summaries()) == sorted([name, "other"])
        threads.delete(name)
        assert [summary.thread for summary in threads.summaries()] == ["other"]
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    assert all(path.name.startswith("s.sqlite") for path in (tmp_path / "in").iterdir())


async def test_programs_that_open_a_new_store_at_once_make_its_tables_in_turn(tmp_path: Path) -> None:
    async def opened() -> None:
        store = open_store(tmp_path / "s.sqlite")
        async with store.opened(), store.shared(), store.book():
            pass

    await asyncio.gather(*(opened() for _ in range(6)))


def test_names_that_cannot_be_stored_are_told() -> None:
    for name in ("", "  ", "a\0b", "x" * (LONGEST_THREAD + 1)):
        with pytest.raises(InputError, match="thread"):
            thread_name(name)
    assert thread_name("\udcff") == "?"


def test_the_users_own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVCOA_DATA_DIR", str(tmp_path / "data"))
    assert default_store() == tmp_path / "data" / "conversations.sqlite"
    assert (tmp_path / "data").stat().st_mode & 0o077 == 0
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CONVCOA_DATA_DIR", str(tmp_path / "file"))
    with pytest.raises(StoreError, match="--store"):
        default_store()


@pytest.mark.parametrize("where", ["mysql://x/y", "", "a\0b"])
def test_what_is_no_store_is_told(where: str) -> None:
    with pytest.raises(ConvCoAError, match="store"):
        open_store(where)


def test_a_package_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langgraph_convcoa.storage.sqlite.find_spec", lambda _name: None)
    monkeypatch.setattr("langgraph_convcoa.storage.postgres.find_spec", lambda _name: None)
    with pytest.raises(StoreError, match=r"langgraph-convcoa\[sqlite\]"):
        open_store(tmp_path / "s.sqlite").check()
    with pytest.raises(StoreError, match=r"langgraph-convcoa\[postgres\]"):
        open_store("postgresql://localhost/x").check()


async def test_a_thread_is_one_through_a_link_to_its_store_too(tmp_path: Path) -> None:
    store = await asyncio.to_thread(filled, tmp_path / "s.sqlite")
    link = tmp_path / "link.sqlite"
    link.symlink_to(store)
    with pytest.raises(StoreError, match="busy in another program"):
        async with open_store(store).turn("a", 0.2), open_store(link).turn("a", 0.2):
            pass
