"""The book of threads: owner, title and collection of each. The conversations themselves are in the store's checkpoints."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from weakref import WeakValueDictionary

from langgraph.store.base import BaseStore

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.server.runs import now, to_json
from langgraph_convcoa.text.clean import clean_value

_ROOT = ("convcoa", "server", "threads")
_PAGE = 500
MOST_THREADS = 10_000  # Maximum number of threads of one user.
_MOST_METADATA = 10_000
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,99}")


def key_of(user: str, thread: str) -> str:
    """The name of a user's thread in the store. An anonymous user's thread keeps its name, as at the command line.

    Example:
        >>> key_of("", "t1"), key_of("ann", "t1") == key_of("bob", "t1"), len(key_of("ann", "t1"))
        ('t1', False, 35)
    """
    return f"{digest(user)[:32]}/{thread}" if user else thread


def digest(user: str) -> str:
    """A hash of the user's name."""
    return hashlib.sha256(f"user {user}".encode("utf-8", "surrogatepass")).hexdigest()


def checked_id(thread: str) -> str:
    """Check a thread's id. It has no slash, so that it cannot be the name of another user's thread."""
    if not _ID.fullmatch(thread):
        raise InputError("a thread_id is up to 100 letters, digits, dots, dashes, underscores and spaces, as a UUID is")
    return thread


def checked_metadata(metadata: Any) -> dict[str, Any]:
    """Check a client's metadata, which must be a small object."""
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping) or len(to_json(metadata)) > _MOST_METADATA:
        raise InputError(f"the metadata of a thread must be an object of at most {_MOST_METADATA:,} characters as JSON")
    cleaned: dict[str, Any] = clean_value(dict(metadata))
    for name in ("title", "collection"):
        if not isinstance(cleaned.get(name, ""), str):
            raise InputError(f"the {name} of a thread must be text")
    if "title" in cleaned:
        cleaned["title"] = " ".join(cleaned["title"].split())[:200]
    return cleaned


def _entry(thread: str, kept: Mapping[str, Any]) -> dict[str, Any]:
    fields = {"created_at": "", "updated_at": "", "metadata": dict[str, Any](), "status": "idle", "question": ""}
    return {**fields, **kept, "thread_id": thread}


class ThreadBook:
    """The threads of all users, in the store of the conversations.

    `alone` locks an entry by its name, so that no other program changes it at the same time.
    """

    def __init__(self, store: BaseStore, alone: Callable[[str], AbstractAsyncContextManager[None]]) -> None:
        self._store, self._alone = store, alone
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def _space(self, user: str) -> tuple[str, ...]:
        return (*_ROOT, digest(user))

    @asynccontextmanager
    async def changing(self, user: str, thread: str) -> AsyncIterator[None]:
        """Lock an entry while it is read, changed and written."""
        key = key_of(user, thread)
        # Tasks of this program wait at the first lock, which is cheaper than the lock in the store.
        async with self._locks.setdefault(key, asyncio.Lock()), self._alone(key):
            yield

    async def get(self, user: str, thread: str) -> dict[str, Any] | None:
        item = await self._store.aget(self._space(user), thread)
        return None if item is None else _entry(item.key, item.value)

    async def put(self, user: str, entry: Mapping[str, Any]) -> None:
        await self._store.aput(self._space(user), str(entry["thread_id"]), dict(entry), index=False)

    async def create(self, user: str, thread: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
        time = now()
        entry = _entry(thread, {"created_at": time, "updated_at": time, "metadata": dict(metadata)})
        await self.put(user, entry)
        return entry

    async def delete(self, user: str, thread: str) -> None:
        await self._store.adelete(self._space(user), thread)

    async def all(self, user: str) -> list[dict[str, Any]]:
        """The entries of a user's threads, newest first."""
        found: list[dict[str, Any]] = []
        while page := await self._store.asearch(self._space(user), limit=_PAGE, offset=len(found)):
            found += [_entry(item.key, item.value) for item in page]
        return sorted(found, key=lambda entry: str(entry["updated_at"]), reverse=True)
