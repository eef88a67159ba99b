"""Atomic replacement of files and folders, checksums of folders, and SQLite connections."""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Literal

SqliteMode = Literal["rwc", "rw", "ro"]  # Create a missing database, read and write an existing one, or only read it.


@contextmanager
def replacing(target: str | Path, *, private: bool = False) -> Iterator[Path]:
    """Yield an empty file beside the target. It replaces the target when the block ends without an error.

    The file is flushed to the disk before it replaces the target, and removed on an error. If the process is killed, the file
    stays until `remove_remains`. The permissions of the target do not change. A new target gets the permissions of the umask,
    or 0600 if `private`. A missing folder is created.
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
    """Yield an empty folder beside the target. It replaces the target when the block ends without an error.

    Its files get the permissions of the umask. Only one process at a time may replace a folder. If a process was killed, the
    next call restores the target or removes the remains. On an error, the target does not change.
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
    """Create a folder and its missing parents with the permissions 0700; existing folders do not change."""
    folder = Path(folder).absolute()
    for missing in [*(above for above in folder.parents if not above.exists())][::-1]:
        missing.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def private_file(path: str | Path) -> None:
    """Create an empty file with the permissions 0600 if it is missing, before a library creates it with wider permissions."""
    # If this process has the file open as a database, opening and closing it here would free the locks of SQLite.
    if not (Path(path).is_file() and os.access(path, os.R_OK)):
        os.close(os.open(path, os.O_CREAT | os.O_RDONLY | getattr(os, "O_CLOEXEC", 0), 0o600))


def remove_remains(target: str | Path) -> None:
    """Remove the temporary files that killed writers left beside a file. No process may be writing the file."""
    target = Path(target)
    for left in target.parent.glob(f".{glob.escape(target.name)}.*.partial"):
        with suppress(OSError):
            left.unlink()


def checksums(folder: Path) -> dict[str, str]:
    """SHA-256 of each file in a folder and its subfolders, by its relative path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): _digest(path) for path in files}


def first_damaged(folder: Path, wanted: Mapping[str, str]) -> str | None:
    """Name of the first file that is missing or has the wrong SHA-256; None if all files are right."""
    for name, digest in wanted.items():
        path = folder / name
        try:
            # A name must not lead out of the folder.
            sound = path.resolve().is_relative_to(folder.resolve()) and path.is_file() and _digest(path) == digest
        except (OSError, ValueError, RuntimeError):
            # RuntimeError: a link points to itself.
            sound = False
        if not sound:
            return name
    return None


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def file_state(path: Path | None) -> tuple[int, ...] | None:
    """Time, size and inode of a file, which change when it is replaced; None if there is no file."""
    try:
        found = path.stat() if path is not None else None
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_size, found.st_ino)


def flush_file(path: Path) -> None:
    """Flush the content of a file to the disk."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def flush_folder(folder: Path) -> None:
    """Flush the names of the files in a folder to the disk, if the system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def open_sqlite(
    path: str | Path, mode: SqliteMode = "rwc", *, timeout: float = 30.0, autocommit: bool = False, any_thread: bool = False
) -> sqlite3.Connection:
    """Open an SQLite file. The caller must close the connection (`sqlite_connection` closes its own).

    `timeout`: seconds to wait for a lock; `autocommit`: no implicit transactions; `any_thread`: threads may take turns.
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
    error: Callable[[Exception], BaseException] | None = None,
) -> Iterator[sqlite3.Connection]:
    """Open an SQLite file for the block and close it after the block.

    The transaction is committed at the end of the block and rolled back on an error. With `autocommit`, the block commits its
    own transactions; a transaction that is left open is rolled back. `error` turns an `sqlite3.Error`, or the
    `UnicodeDecodeError` of damaged text, into the error that is raised.
    """
    try:
        with closing(open_sqlite(path, mode, timeout=timeout, autocommit=autocommit)) as connection:
            yield connection
            if not autocommit:
                connection.commit()
    except (sqlite3.Error, UnicodeDecodeError) as caught:
        if error is None:
            raise
        raise error(caught) from caught


def prepare_sqlite(connection: sqlite3.Connection, application: int, version: int, schema: Sequence[str]) -> tuple[int, int]:
    """Create the tables if the database is empty, under the write lock; returns its `sqlite_stamp`.

    `application` is the program's `application_id`, `version` the format's `user_version`. No transaction may be open.
    """
    if is_blank(connection):
        use_wal(connection)
        connection.execute("BEGIN IMMEDIATE")
        if is_blank(connection):
            for statement in (*schema, f"PRAGMA application_id={application}", f"PRAGMA user_version={version}"):
                connection.execute(statement)
        connection.execute("COMMIT")
    return sqlite_stamp(connection)


def use_wal(connection: sqlite3.Connection) -> None:
    """Switch a database to write-ahead logging. While another connection writes, SQLite refuses at once, so try again."""
    end = time.monotonic() + connection.execute("PRAGMA busy_timeout").fetchone()[0] / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= end:
                raise
        time.sleep(0.01)


def sqlite_stamp(connection: sqlite3.Connection) -> tuple[int, int]:
    """The `application_id` and `user_version` of a database."""
    application, version = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version"))
    return application, version


def is_blank(connection: sqlite3.Connection) -> bool:
    """True if a database has no tables."""
    return connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None
