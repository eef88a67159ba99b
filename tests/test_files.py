import os
import sqlite3
import stat
import threading

import pytest

from langgraph_convcoa.errors import StoreError
from langgraph_convcoa.files import (
    open_sqlite,
    prepare_sqlite,
    private_file,
    remove_remains,
    replacing,
    replacing_folder,
    sqlite_connection,
    sqlite_stamp,
)
from tests.bounds import run_python


def _names(folder):
    return [path.name for path in folder.iterdir()]


def _mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def umask():
    before = os.umask(0o027)
    yield
    os.umask(before)


def test_a_replaced_file_is_whole_and_keeps_its_permissions(tmp_path, umask):
    target = tmp_path / "new" / "file"
    with replacing(target) as temporary:
        assert not target.exists()
        temporary.chmod(0o600)
        temporary.write_bytes(b"one")
    assert (target.read_bytes(), _mode(target)) == (b"one", 0o640)
    target.chmod(0o604)
    with replacing(target) as temporary:
        temporary.write_bytes(b"two")
    assert (target.read_bytes(), _mode(target), _names(target.parent)) == (b"two", 0o604, ["file"])


def test_an_error_leaves_the_file_as_it_was(tmp_path):
    target = tmp_path / "file"
    target.write_bytes(b"one")
    with pytest.raises(KeyboardInterrupt), replacing(target) as temporary:
        temporary.write_bytes(b"half")
        raise KeyboardInterrupt
    assert (target.read_bytes(), _names(tmp_path)) == (b"one", ["file"])


def test_remains_of_a_killed_writer_are_removed_and_nothing_else(tmp_path):
    for name in ("a[b]", ".a[b].0123.partial", ".ab.0123.partial", ".a[b].txt"):
        (tmp_path / name).touch()
    remove_remains(tmp_path / "a[b]")
    assert sorted(_names(tmp_path)) == [".a[b].txt", ".ab.0123.partial", "a[b]"]


def test_a_folder_is_replaced_as_a_whole(tmp_path, umask):
    target = tmp_path / "model"
    with replacing_folder(target) as partial:
        (partial / "weights").touch(0o600)
    with replacing_folder(target) as partial:
        (partial / "config").touch()
        (partial / "part").mkdir()
        (partial / "part" / "weights").touch(0o600)
    assert sorted(path.name for path in target.rglob("*")) == ["config", "part", "weights"]
    assert (_mode(target / "part" / "weights"), _names(tmp_path)) == (0o640, ["model"])


def test_an_error_leaves_the_folder_as_it_was(tmp_path):
    target = tmp_path / "model"
    with replacing_folder(target) as partial:
        (partial / "one").touch()
    with pytest.raises(OSError), replacing_folder(target) as partial:
        (partial / "two").touch()
        raise OSError
    assert (_names(target), _names(tmp_path)) == (["one"], ["model"])


def test_what_a_kill_between_the_two_renames_left_is_put_back(tmp_path):
    (tmp_path / ".model.old").mkdir()
    (tmp_path / ".model.old" / "one").touch()
    (tmp_path / ".model.partial").mkdir()
    with pytest.raises(RuntimeError), replacing_folder(tmp_path / "model"):
        raise RuntimeError
    assert (_names(tmp_path), _names(tmp_path / "model")) == (["model"], ["one"])


def test_a_connection_commits_at_the_end_and_rolls_back_on_an_error(tmp_path):
    path = tmp_path / "what? #1%.sqlite"
    with sqlite_connection(path) as connection:
        connection.execute("CREATE TABLE t (v)")
        connection.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(RuntimeError), sqlite_connection(path) as connection:
        connection.execute("INSERT INTO t VALUES (2)")
        raise RuntimeError
    with sqlite_connection(path, "ro") as connection:
        assert connection.execute("SELECT v FROM t").fetchall() == [(1,)]
    with pytest.raises(sqlite3.OperationalError, match="readonly"), sqlite_connection(path, "ro") as connection:
        connection.execute("INSERT INTO t VALUES (3)")


def test_a_missing_file_is_made_only_where_that_is_wanted(tmp_path):
    with (
        pytest.raises(StoreError, match="unable to open"),
        sqlite_connection(tmp_path / "none", "rw", error=lambda error: StoreError(str(error))),
    ):
        pass
    assert not _names(tmp_path)


def test_a_database_is_stamped_once(tmp_path):
    schema = ["CREATE TABLE t (v)"]
    for autocommit in (True, False):
        path = tmp_path / f"{autocommit}.sqlite"
        connection = open_sqlite(path, autocommit=autocommit)
        assert prepare_sqlite(connection, 77, 2, schema) == (77, 2)
        assert prepare_sqlite(connection, 78, 3, schema) == (77, 2)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        connection.close()
    with sqlite_connection(tmp_path / "other") as connection:
        connection.execute("CREATE TABLE theirs (v)")
        assert sqlite_stamp(connection) == (0, 0)


def test_a_new_database_that_another_writes_is_stamped_after_that(tmp_path):
    writer = open_sqlite(tmp_path / "s", autocommit=True, any_thread=True)
    writer.execute("BEGIN IMMEDIATE")
    threading.Timer(0.2, writer.close).start()
    with sqlite_connection(tmp_path / "s") as connection:
        assert prepare_sqlite(connection, 77, 2, ["CREATE TABLE t (v)"]) == (77, 2)


def test_a_private_file_keeps_the_locks_that_its_database_has_in_this_process(tmp_path):
    with sqlite_connection(tmp_path / "s", autocommit=True) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        private_file(tmp_path / "s")
        other = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('BEGIN EXCLUSIVE')"
        with pytest.raises(AssertionError, match="database is locked"):
            run_python("-c", other, tmp_path / "s")
