"""Where conversations are kept: an SQLite file on one machine, a PostgreSQL database for many, or nowhere."""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from langgraph_convcoa.errors import InputError, StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.store.base import BaseStore

FORMAT = 1
"""The format of a stored thread; a store or a thread of a later one is refused, with nothing written to it."""
LONGEST_THREAD = 200
"""Characters of a thread's name; an index entry of PostgreSQL holds no more than some 2,700 bytes."""
TURN_WAIT_SECONDS = 120.0
"""How long a turn waits for another program's turn of the same thread."""


class ConversationStore(Protocol):
    """What a session needs of a store. Everything that can go wrong with it is a `StoreError` that names it."""

    @property
    def label(self) -> str:
        """The store as messages name it; never with a password."""

    def check(self) -> None:
        """See that the store can be used, before minutes are spent on anything else."""

    def opened(self) -> AbstractAsyncContextManager[BaseCheckpointSaver[Any]]:
        """The store's checkpointer, ready for use."""

    def shared(self) -> AbstractAsyncContextManager[BaseStore]:
        """What is kept beside the threads, for knowledge that a user's threads share."""

    def turn(self, thread: str, wait: float) -> AbstractAsyncContextManager[None]:
        """The thread for one program alone: two that both built on its last round would lose one of theirs."""

    def scrub(self) -> None:
        """See that nothing of what was deleted is left in the store's files."""

    def error(self, error: BaseException) -> StoreError | None:
        """What an exception of the store's driver means to a user; None where it is not the store's."""


class NoStore:
    """Keeps threads for as long as the program runs."""

    label = "memory"

    def check(self) -> None:
        """Nothing can be wrong with it."""

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[BaseCheckpointSaver[Any]]:
        """A saver in memory."""
        from langgraph.checkpoint.memory import InMemorySaver

        yield InMemorySaver()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[BaseStore]:
        """A store in memory."""
        from langgraph.store.memory import InMemoryStore

        yield InMemoryStore()

    @asynccontextmanager
    async def turn(self, thread: str, wait: float) -> AsyncIterator[None]:
        """Nobody else sees it."""
        yield

    def scrub(self) -> None:
        """There are no files."""

    def error(self, error: BaseException) -> StoreError | None:
        """No exception is its."""
        return None


def open_store(where: str | Path | None) -> ConversationStore:
    """The store that a path or an address names; nothing is opened or made yet.

    Args:
        where: An SQLite file, a "postgresql://user@host/database" address, or None for none.

    Raises:
        StoreError: It is neither.

    Example:
        >>> open_store("postgresql://reader:secret@db.example.org/talks").label
        'postgresql://db.example.org/talks'
        >>> open_store("talks.sqlite").label
        'talks.sqlite'
    """
    if where is None:
        return NoStore()
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


def default_store() -> Path:
    """The file in the user's data folder, or in the folder that CONVCOA_DATA_DIR names, for threads kept without `--store`.

    Raises:
        StoreError: Its folder cannot be made.
    """
    from platformdirs import user_data_dir

    folder = Path(os.environ.get("CONVCOA_DATA_DIR") or user_data_dir("langgraph-convcoa", appauthor=False))
    try:
        # Conversations are their owner's business.
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StoreError(f"the folder {folder} cannot be made ({error.strerror}): give a --store FILE") from error
    return folder / "conversations.sqlite"


def thread_name(name: str) -> str:
    r"""A thread's name as it is stored; any characters are allowed, those of paths too, for none becomes part of a path.

    Raises:
        InputError: It is empty, too long, or holds a character that no database stores.

    Example:
        >>> thread_name("../work: a/b")
        '../work: a/b'
        >>> thread_name("")
        Traceback (most recent call last):
        langgraph_convcoa.errors.InputError: the thread has no name: give one, such as --thread thesis
    """
    if not name.strip():
        raise InputError("the thread has no name: give one, such as --thread thesis")
    if len(name) > LONGEST_THREAD:
        raise InputError(f"the thread's name has {len(name):,} characters, {LONGEST_THREAD} at most: give a shorter one")
    if "\0" in name:
        raise InputError("the thread's name holds a null character: give another")
    return name.encode("utf-8", "replace").decode("utf-8")
