"""Atomic replacement of files and folders, checksums of folders, and SQLite connections."""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Literal

SqliteMode = Literal["rwc", "rw", "ro"]
"""How a database is opened: made when missing ("rwc"), for reading and writing ("rw"), for reading only ("ro")."""


@contextmanager
def replacing(target: str | Path, *, private: bool = False) -> Iterator[Path]:
    """A temporary file in the target's folder that takes the target's place when the block ends without an error.

    The file has been made, empty; write to it by its path. It is flushed to the disk before it replaces the target and removed
    on an error; one of a killed process stays (`remove_remains`). It gets the target's permissions or, for a new target, those
    of the umask (`private`: its owner's alone). The folder is made when missing.

    Example:
        >>> import tempfile
        >>> target = Path(tempfile.mkdtemp()) / "settings.json"
        >>> with replacing(target) as temporary:
        ...     _ = temporary.write_text("{}")
        >>> target.read_text(), [path.name for path in target.parent.iterdir()]
        ('{}', ['settings.json'])
    """
    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.partial")
    try:
        temporary.touch(0o600 if private else 0o666)
        mode = (target if target.is_file() else temporary).stat().st_mode & 0o777
        yield temporary
        temporary.chmod(mode)
        flush_file(temporary)
        temporary.replace(target)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    flush_folder(target.parent)


@contextmanager
def replacing_folder(target: str | Path) -> Iterator[Path]:
    """A new, empty folder beside the target that takes its place, filled, when the block ends without an error.

    Its files get the permissions of the umask. One process at a time may replace a folder; what a killed one left is used or
    removed by the next. On an error the target is as it was.
    """
    target = Path(target)
    partial, old = target.with_name(f".{target.name}.partial"), target.with_name(f".{target.name}.old")
    if old.exists() and not target.exists():
        old.replace(target)
    for remains in (partial, old):
        shutil.rmtree(remains, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        mode = partial.stat().st_mode & 0o666
        for file in partial.rglob("*"):
            if file.is_file():
                file.chmod(mode)
                flush_file(file)
        if target.exists():
            target.replace(old)
        partial.replace(target)
    finally:
        if old.exists() and not target.exists():
            old.replace(target)
        for remains in (partial, old):
            shutil.rmtree(remains, ignore_errors=True)
    flush_folder(target.parent)


def private_folder(folder: str | Path) -> None:
    """Make a folder, and those above it that are missing, for their owner alone (0700); others stay as they are."""
    folder = Path(folder).absolute()
    for missing in [*(above for above in folder.parents if not above.exists())][::-1]:
        missing.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def private_file(path: str | Path) -> None:
    """Make an empty file for its owner alone (0600) where there is none, before a library makes it for everybody.

    SQLite gives a database's logs the permissions of the database.
    """
    os.close(os.open(path, os.O_CREAT | os.O_RDONLY | getattr(os, "O_CLOEXEC", 0), 0o600))


def remove_remains(target: str | Path) -> None:
    """Remove the temporary files that killed writers of a file left beside it; nobody may be writing it now."""
    target = Path(target)
    for left in target.parent.glob(f".{glob.escape(target.name)}.*.partial"):
        with suppress(OSError):
            left.unlink()


def checksums(folder: Path) -> dict[str, str]:
    """SHA-256 of each file of a folder and those below it, by its path in the folder.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "a.txt").write_text("a")
        >>> found = checksums(folder)
        >>> {name: digest[:8] for name, digest in found.items()}, first_damaged(folder, found)
        ({'a.txt': 'ca978112'}, None)
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): _digest(path) for path in files}


def first_damaged(folder: Path, wanted: Mapping[str, str]) -> str | None:
    """The first file that is missing or has another SHA-256 than it should; None where all are as they should be."""
    for name, digest in wanted.items():
        path = folder / name
        try:
            # A name that leads elsewhere is none that was written here.
            sound = path.resolve().is_relative_to(folder.resolve()) and path.is_file() and _digest(path) == digest
        except (OSError, ValueError, RuntimeError):
            # RuntimeError: a link to itself.
            sound = False
        if not sound:
            return name
    return None


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def flush_file(path: Path) -> None:
    """Wait until a file's content is on the disk."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def flush_folder(folder: Path) -> None:
    """Wait until the names of a folder's files are on the disk, where the system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def open_sqlite(
    path: str | Path, mode: SqliteMode = "rwc", *, timeout: float = 30.0, autocommit: bool = False, any_thread: bool = False
) -> sqlite3.Connection:
    """A connection to an SQLite file, which the caller closes; for a short use take `sqlite_connection`.

    `timeout`: seconds to wait for another connection's lock; `autocommit`: begin no transaction implicitly; `any_thread`:
    allow other threads, which must take turns.
    """
    uri = f"{Path(path).absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(
        uri, uri=True, timeout=timeout, isolation_level=None if autocommit else "DEFERRED", check_same_thread=not any_thread
    )


@contextmanager
def sqlite_connection(
    path: str | Path,
    mode: SqliteMode = "rwc",
    *,
    timeout: float = 30.0,
    autocommit: bool = False,
    error: Callable[[Exception], BaseException] = lambda error: error,
) -> Iterator[sqlite3.Connection]:
    """A connection to an SQLite file for the block, closed after it.

    An open transaction is committed at the block's end and rolled back on an error; with `autocommit` the block commits its
    own, and what it did not commit is rolled back. `error` says what to raise for an `sqlite3.Error`, or for the
    `UnicodeDecodeError` that damaged text gives.

    Example:
        >>> import tempfile
        >>> with sqlite_connection(Path(tempfile.mkdtemp()) / "numbers.sqlite") as connection:
        ...     _ = connection.execute("CREATE TABLE numbers (value INTEGER)")
        ...     connection.execute("SELECT count(*) FROM numbers").fetchone()
        (0,)
    """
    try:
        with closing(open_sqlite(path, mode, timeout=timeout, autocommit=autocommit)) as connection:
            yield connection
            if not autocommit:
                connection.commit()
    except (sqlite3.Error, UnicodeDecodeError) as caught:
        wanted = error(caught)
        if wanted is caught:
            raise
        raise wanted from caught


def prepare_sqlite(
    connection: sqlite3.Connection, application: int, version: int, schema: Sequence[str], *, wal: bool = True
) -> tuple[int, int]:
    """Give a database without tables its tables and its stamp, under the write lock, since another process may do the same.

    `application` is the `application_id` that says which program's file it is, `version` the `user_version` of its format,
    `schema` the statements that make the tables. No transaction may be open. Returns the stamp that the database carries, for
    the caller to compare.
    """
    if _is_blank(connection):
        if wal:
            connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("BEGIN IMMEDIATE")
        if _is_blank(connection):
            for statement in (*schema, f"PRAGMA application_id={application}", f"PRAGMA user_version={version}"):
                connection.execute(statement)
        connection.execute("COMMIT")
    return sqlite_stamp(connection)


def sqlite_stamp(connection: sqlite3.Connection) -> tuple[int, int]:
    """The `application_id` and `user_version` of a database."""
    application, version = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    return application, version


def _is_blank(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None
