"""Conversations in an SQLite file, for the programs of one machine."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langgraph_convcoa.errors import StoreError
from langgraph_convcoa.files import private_file, sqlite_connection, sqlite_stamp, use_wal
from langgraph_convcoa.storage import FORMAT, ConversationStore, later_format

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.store.base import BaseStore
    from langgraph.store.sqlite.aio import AsyncSqliteStore

WAIT_SECONDS = 5.0  # Seconds that a write waits for another program's write.
_APPLICATION_ID = 0x434F5448
_ADVICE = {
    "not a database": "is not an SQLite database: give another file",
    "locked": "is in use by another program: try again when that has ended",
    "malformed": "is damaged: put a copy in its place, or try sqlite3 {path} .recover",
    "readonly": "cannot be written: change its permissions, or give another file",
    "disk is full": "is on a full disk: make room; what was stored before is still there",
}
_PRUNE = (
    "DELETE FROM checkpoints WHERE thread_id = ? AND checkpoint_id < (SELECT max(checkpoint_id) FROM checkpoints AS latest"
    " WHERE latest.thread_id = checkpoints.thread_id AND latest.checkpoint_ns = checkpoints.checkpoint_ns)",
    "DELETE FROM writes WHERE thread_id = ? AND NOT EXISTS (SELECT 1 FROM checkpoints AS kept WHERE kept.thread_id ="
    " writes.thread_id AND kept.checkpoint_ns = writes.checkpoint_ns AND kept.checkpoint_id = writes.checkpoint_id)",
    "UPDATE checkpoints SET parent_checkpoint_id = NULL WHERE thread_id = ?",
)


class SqliteStore(ConversationStore):
    """Threads in an SQLite file, in the tables of LangGraph's `AsyncSqliteSaver`.

    The file is stamped with its format, so that an older release does not misread the threads of a newer release. Only the
    last checkpoint of a finished turn is kept: each checkpoint holds the whole thread, so a file with all of them would
    grow with the square of the rounds.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.label = path, str(path)

    def check(self) -> None:
        """Check that the file can be a store, before anything is written to it."""
        path = self.path
        with self.errors():
            if find_spec("aiosqlite") is None or find_spec("langgraph.checkpoint.sqlite") is None:
                raise StoreError('an SQLite store needs the extra sqlite: pip install "langgraph-convcoa[sqlite]"')
            if path.is_dir():
                raise StoreError(f"the store {path} is a folder: give a file, such as {path / 'conversations.sqlite'}")
            if not path.parent.is_dir():
                raise StoreError(f"the folder of the store {path} does not exist: make it, or give another file")
            if not os.access(path if path.exists() else path.parent, os.W_OK):
                raise StoreError(f"the store {path} cannot be written: change its permissions, or give another file")
            # Only its owner may read the conversations.
            private_file(path)
            with sqlite_connection(path, timeout=WAIT_SECONDS, autocommit=True) as connection:
                connection.execute("BEGIN IMMEDIATE")
                tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
                application, version = sqlite_stamp(connection)
            if (tables and "checkpoints" not in tables) or application not in (0, _APPLICATION_ID):
                raise StoreError(f"the store {path} is the database of another program: give another file")
            if application and version > FORMAT:
                raise StoreError(later_format(f"the store {path}", version))

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[BaseCheckpointSaver[Any]]:
        self.check()
        import aiosqlite
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        with self.errors():
            async with aiosqlite.connect(str(self.path), timeout=WAIT_SECONDS) as connection:
                saver = AsyncSqliteSaver(connection)
                async with self._setting_up(self.path):
                    await saver.setup()
                # Commits of steps survive a kill and do not wait for the disk. The turn's last commit, in `prune`, waits.
                stamp = (f"application_id={_APPLICATION_ID}", f"user_version={FORMAT}")
                for setting in ("synchronous=NORMAL", "secure_delete=ON", *stamp):
                    await connection.execute(f"PRAGMA {setting}")
                await connection.commit()
                yield saver

    def shared(self) -> AbstractAsyncContextManager[BaseStore]:
        return self._base_store(self.path)

    @asynccontextmanager
    async def book(self) -> AsyncIterator[BaseStore]:
        """A store in its own file: two connections that write to the same file would wait for each other."""
        async with self._base_store(self.path.with_name(f"{self.path.name}.threads")) as store:
            for setting in ("synchronous=NORMAL", "secure_delete=ON"):
                await store.conn.execute(f"PRAGMA {setting}")
            yield store

    @asynccontextmanager
    async def _base_store(self, path: Path) -> AsyncIterator[AsyncSqliteStore]:
        from langgraph.store.sqlite.aio import AsyncSqliteStore

        with self.errors():
            private_file(path)
            async with AsyncSqliteStore.from_conn_string(str(path)) as store:
                async with self._setting_up(path):
                    await store.setup()
                yield store

    @asynccontextmanager
    async def _setting_up(self, path: Path) -> AsyncIterator[None]:
        """Hold the lock of the book, so that programs that open a new store at the same time make its tables in turn."""
        async with self._locked("threads", "setup", 6 * WAIT_SECONDS, 0.01):
            with sqlite_connection(path, timeout=WAIT_SECONDS, autocommit=True) as connection:
                use_wal(connection)
            yield

    async def erase(self, saver: Any, thread: str) -> None:
        """Delete a thread. Its pages are overwritten, and the log is emptied if nobody reads it; `scrub` removes the rest."""
        await saver.adelete_thread(thread)
        async with saver.lock:
            await saver.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def turn(self, thread: str, wait: float) -> AbstractAsyncContextManager[None]:
        """Lock the thread for this turn with an empty lock file in the folder of the store."""
        digest = hashlib.sha256(thread.encode("utf-8", "replace")).hexdigest()[:12]
        return self._locked(digest, thread, wait, 0.1)

    def entry(self, name: str) -> AbstractAsyncContextManager[None]:
        """Lock all entries of the book with one empty lock file: an entry is written in a moment."""
        return self._locked("threads", name, WAIT_SECONDS, 0.01)

    @asynccontextmanager
    async def _locked(self, ending: str, thread: str, wait: float, poll: float) -> AsyncIterator[None]:
        from filelock import AsyncFileLock, Timeout

        # The lock has the store's real name, so that all links to the store share it.
        store = await asyncio.to_thread(os.path.realpath, self.path)
        lock = AsyncFileLock(f"{store}.{ending}.lock", timeout=wait, poll_interval=poll, mode=0o600)
        with self.errors():
            try:
                await lock.acquire()
            except Timeout:
                raise self.busy(thread) from None
        try:
            yield
        finally:
            await lock.release()

    async def prune(self, saver: Any, thread: str) -> None:
        # The last checkpoint is complete, since this library's graph has no `DeltaChannel`.
        async with saver.lock, saver.conn.cursor() as cursor:
            await cursor.execute("PRAGMA synchronous=FULL")
            for statement in _PRUNE:
                await cursor.execute(statement, (thread,))
            await saver.conn.commit()
            await cursor.execute("PRAGMA synchronous=NORMAL")

    async def settle(self, saver: Any) -> None:
        # The connection's thread runs a statement to its end, but the commit was cancelled with the turn.
        async with saver.lock:
            await saver.conn.commit()

    def scrub(self) -> None:
        """Rebuild the file without its free pages, and empty its write-ahead log.

        Raises StoreError if the log cannot be emptied because another program reads the file.
        """
        if not self.path.exists():
            return
        with self.errors(), sqlite_connection(self.path, timeout=WAIT_SECONDS, autocommit=True) as connection:
            connection.execute("PRAGMA secure_delete=ON")
            # Without this, VACUUM would write its copy to a temporary file.
            connection.execute("PRAGMA temp_store=MEMORY")
            connection.execute("VACUUM")
            (blocked, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if blocked:
            raise StoreError(
                f"the rows are deleted, but another program has {self.path} open and its log still holds them: "
                "end that program, then delete again"
            )

    def error(self, error: BaseException) -> StoreError | None:
        if not isinstance(error, sqlite3.Error | OSError):
            return None
        reason = " ".join(str(error).split())[:120]
        other = f"cannot be used ({reason}): check its permissions and the disk, or give another file"
        advice = next((advice.format(path=self.path) for part, advice in _ADVICE.items() if part in reason), other)
        return StoreError(f"the store {self.path} {advice}")
