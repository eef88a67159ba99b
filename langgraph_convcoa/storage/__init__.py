"""Conversation stores: an SQLite file on one machine, a PostgreSQL database for many, or memory.

The base class keeps threads in memory. This module also checks the names of threads and has the version of their format.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langgraph_convcoa.errors import ConvCoAError, InputError, StoreError, ThreadBusyError
from langgraph_convcoa.files import private_folder

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.store.base import BaseStore

FORMAT = 1  # The format of a stored thread. A store or a thread of a later format is refused and not changed.
LONGEST_THREAD = 200  # Maximum number of characters of a thread's name: an index entry of PostgreSQL holds about 2,700 bytes.
CONNECT_SECONDS = 10  # Seconds that a database server has to accept a connection.
TURN_WAIT_SECONDS = 120.0  # Seconds that a turn waits for another program's turn of the same thread.


class ConversationStore:
    """Threads in memory while the program runs. The base class of the stores on disk and in a database.

    Any failure of a store is a `StoreError` that names the store.
    """

    label: str = "memory"  # the name of the store in messages, never with a password

    def check(self) -> None:
        """Raise StoreError if the store cannot be used."""

    def opened(self) -> AbstractAsyncContextManager[BaseCheckpointSaver[Any]]:
        """The store's checkpointer. Its tables are made if they are missing."""
        from langgraph.checkpoint.memory import InMemorySaver

        return nullcontext(InMemorySaver())

    def shared(self) -> AbstractAsyncContextManager[BaseStore]:
        """A `BaseStore` in the same place, for knowledge that a user's threads share."""
        from langgraph.store.memory import InMemoryStore

        return nullcontext(InMemoryStore())

    def book(self) -> AbstractAsyncContextManager[BaseStore]:
        """A `BaseStore` for the owners and titles of a server's threads."""
        return self.shared()

    async def erase(self, saver: Any, thread: str) -> None:
        """Delete a thread. Other threads may be in use."""
        await saver.adelete_thread(thread)

    def turn(self, thread: str, wait: float) -> AbstractAsyncContextManager[None]:
        """Lock a thread for one turn. If two turns began after the same round, one would be lost."""
        return nullcontext()

    def entry(self, name: str) -> AbstractAsyncContextManager[None]:
        """Lock an entry of `book`, so that nobody else writes it between a read and a write."""
        return nullcontext()

    async def taken(self, threads: Iterable[str]) -> set[str]:
        """Select the threads that have a running turn, as far as the store knows."""
        return set()

    async def prune(self, saver: Any, thread: str) -> None:
        """Drop all checkpoints of a thread except the last, which holds the whole thread."""

    async def settle(self, saver: Any) -> None:
        """Complete the writes of a cancelled turn. Until then they lock the store."""

    def scrub(self) -> None:
        """Remove the traces of deleted threads from the store's files."""

    def error(self, error: BaseException) -> StoreError | None:
        """The error to show for an exception of the store's driver; None for other exceptions."""
        return None

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise the driver's errors as a `StoreError`. The original is hidden: its text may hold a password."""
        try:
            yield
        except ConvCoAError:
            raise
        except Exception as error:
            if (reported := self.error(error)) is not None:
                raise reported from None
            raise

    def busy(self, thread: str) -> ThreadBusyError:
        """The error for a thread that another program holds."""
        return ThreadBusyError(
            f"the thread {thread!r} of {self.label} is busy in another program: try again, or use another --thread"
        )


def later_format(what: str, version: object) -> str:
    """The message for a store or a thread that a later release wrote."""
    return f"{what} is of format {version}, and this release reads up to {FORMAT}: upgrade langgraph-convcoa"


def thread_name(name: str) -> str:
    r"""Check a thread's name. All characters except NUL are allowed: a name never becomes part of a path."""
    if not name.strip():
        raise InputError("the thread has no name: give one, such as --thread thesis")
    if len(name) > LONGEST_THREAD:
        raise InputError(f"the thread's name has {len(name):,} characters, {LONGEST_THREAD} at most: give a shorter one")
    if "\0" in name:
        raise InputError("the thread's name holds a null character: give another")
    return storable(name)


def storable(name: str) -> str:
    """The name with "?" for each lone surrogate, which no database stores."""
    return name.encode("utf-8", "replace").decode("utf-8")


def open_store(where: str | Path | None) -> ConversationStore:
    """Return the store at a path or an address, or for None a store in memory. Nothing is opened or made yet.

    Example:
        >>> open_store("postgresql://reader:secret@db.example.org/talks").label
        'postgresql://db.example.org/talks'
        >>> open_store("talks.sqlite").label
        'talks.sqlite'
    """
    if where is None:
        return ConversationStore()
    text = str(where)
    if text.startswith(("postgresql://", "postgres://")):
        from langgraph_convcoa.storage.postgres import PostgresStore

        return PostgresStore(text)
    if "://" in text:
        scheme = text.partition("://")[0]
        raise StoreError(f"a store at {scheme}:// is not known: give an SQLite file or a postgresql:// address")
    if not text or "\0" in text:
        raise StoreError("the store has no name: give an SQLite file or a postgresql:// address")
    from langgraph_convcoa.storage.sqlite import SqliteStore

    return SqliteStore(Path(text))


def data_folder() -> Path:
    """The folder in CONVCOA_DATA_DIR, or the user's data folder. A missing folder is made; only its owner has access."""
    from platformdirs import user_data_dir

    folder = Path(os.environ.get("CONVCOA_DATA_DIR") or user_data_dir("langgraph-convcoa", appauthor=False))
    try:
        private_folder(folder)
    except OSError as error:
        raise StoreError(f"the folder {folder} cannot be made ({error.strerror}): give a --store FILE") from error
    return folder


def default_store() -> Path:
    """The file in the data folder for threads that are kept without `--store`."""
    return data_folder() / "conversations.sqlite"
