"""The base class of conversation stores, which is the store in memory, and the format of a stored thread."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from langgraph_convcoa.errors import ConvCoAError, InputError, StoreError, ThreadBusyError

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.store.base import BaseStore

FORMAT = 1
"""The format of a stored thread; a store or a thread of a later one is refused, with nothing written to it."""
LONGEST_THREAD = 200
"""Characters of a thread's name; an index entry of PostgreSQL holds no more than some 2,700 bytes."""
TURN_WAIT_SECONDS = 120.0
"""How long a turn waits for another program's turn of the same thread."""


class ConversationStore:
    """Threads in memory, for as long as the program runs; the base of the stores that last.

    Everything that can go wrong with a store is a `StoreError` that names it.
    """

    label: str = "memory"  # the store as messages name it; never with a password

    def check(self) -> None:
        """Raise StoreError where the store cannot be used, before minutes are spent on anything else."""

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[BaseCheckpointSaver[Any]]:
        """The store's checkpointer, its tables made when missing."""
        from langgraph.checkpoint.memory import InMemorySaver

        yield InMemorySaver()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[BaseStore]:
        """A `BaseStore` in the same place, for knowledge that a user's threads share."""
        from langgraph.store.memory import InMemoryStore

        yield InMemoryStore()

    @asynccontextmanager
    async def book(self) -> AsyncIterator[BaseStore]:
        """A `BaseStore` for what a server notes of its threads: whose they are, and their titles."""
        async with self.shared() as store:
            yield store

    async def erase(self, saver: Any, thread: str) -> None:
        """Delete a thread while others are used."""
        await saver.adelete_thread(thread)

    @asynccontextmanager
    async def turn(self, thread: str, wait: float) -> AsyncIterator[None]:
        """The thread for one program alone: of two that both add a round to the same last one, one would be lost."""
        yield

    @asynccontextmanager
    async def entry(self, name: str) -> AsyncIterator[None]:
        """An entry of the book for one program alone, from its reading to its writing."""
        yield

    async def taken(self, threads: Iterable[str]) -> set[str]:
        """Those of the threads in which any program is in a turn now, as far as the store knows."""
        return set()

    async def prune(self, saver: Any, thread: str) -> None:
        """Drop all checkpoints of a thread but the last; each holds the whole thread."""

    async def settle(self, saver: Any) -> None:
        """Complete what a turn that was cancelled had begun to write; the store is locked for others until then."""

    def scrub(self) -> None:
        """Remove what was deleted from the store's files."""

    def error(self, error: BaseException) -> StoreError | None:
        """The error for the user of an exception of the store's driver; None where it is not the store's."""
        return None

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise the driver's errors as a `StoreError`, without their own text, which may hold a password."""
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
    r"""A thread's name as it is stored; any characters are allowed, those of paths too, for none becomes part of a path."""
    if not name.strip():
        raise InputError("the thread has no name: give one, such as --thread thesis")
    if len(name) > LONGEST_THREAD:
        raise InputError(f"the thread's name has {len(name):,} characters, {LONGEST_THREAD} at most: give a shorter one")
    if "\0" in name:
        raise InputError("the thread's name holds a null character: give another")
    return storable(name)


def storable(name: str) -> str:
    """The name without the lone surrogates that no database stores."""
    return name.encode("utf-8", "replace").decode("utf-8")
