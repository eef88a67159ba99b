"""Opt-in sharing of rounds between the threads of one user, in a LangGraph `BaseStore`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.store.base import BaseStore, SearchItem

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.memory.knowledge_set import Round

_ROOT = ("convcoa", "shared_knowledge")
_PAGE = 200


def user_of(user_id: str | None, config: RunnableConfig | None = None) -> str:
    """The user whose threads share rounds: the authenticated user, else `user_id`, else the `user_id` of `config`.

    Raises InputError if there is no user: rounds of one user must not reach another.

    Example:
        >>> user_of("ann")
        'ann'
        >>> user_of("ann", {"configurable": {"langgraph_auth_user_id": "bob"}})
        'bob'
    """
    configurable: Mapping[str, Any] = (config or {}).get("configurable") or {}
    authenticated = configurable.get("langgraph_auth_user_id")
    # If the server authenticates, a name that the client gives does not count.
    named = (user_id, configurable.get("user_id")) if authenticated is None else (authenticated,)
    for user in named:
        if isinstance(user, str) and user:
            return user
    raise InputError("shared knowledge needs a user: set user_id, or switch share_knowledge off")


def parts_of(store: BaseStore | None, user_id: str | None, config: RunnableConfig) -> tuple[BaseStore, str, str]:
    """The graph's store, the user (see `user_of`) and the thread of a run. Raises InputError if one of them is missing."""
    if store is None:
        raise InputError("shared knowledge needs a store: compile(store=...), or switch share_knowledge off")
    user, thread = user_of(user_id, config), str((config.get("configurable") or {}).get("thread_id") or "")
    if not thread:
        raise InputError("shared knowledge needs a thread: give a thread_id, or switch share_knowledge off")
    return store, user, thread


def share_round(store: BaseStore, user_id: str, thread: str, entry: Round) -> None:
    """Store a round of a thread for the user's other threads. Storing it again replaces it."""
    owner = _digest(thread)
    store.put(_namespace(user_id), f"{owner}-{entry['round']:06d}", {"thread": owner, "round": dict(entry)}, index=False)


def shared_rounds(store: BaseStore, user_id: str, *, but_of: str | None = None, limit: int = 200) -> list[Round]:
    """The newest `limit` rounds that the user's threads share, oldest first, without those of the thread `but_of`."""
    found: list[SearchItem] = []
    kept: list[SearchItem] = []
    own = _digest(but_of) if but_of is not None else None
    while page := store.search(_namespace(user_id), limit=_PAGE, offset=len(found)):
        found += page
        kept += [item for item in page if item.value.get("thread") != own and isinstance(item.value.get("round"), dict)]
        times = [item.updated_at for item in found]
        # A database returns the newest first, and is read only as far as needed. Other stores are read to the end.
        if len(kept) >= limit and times[0] > times[-1] and times == sorted(times, reverse=True):
            break
    kept.sort(key=lambda item: (item.created_at, item.key))
    return [cast("Round", item.value["round"]) for item in kept[-limit:]]


async def aforget_thread(store: BaseStore, thread: str) -> int:
    """Delete the rounds that a thread has shared, for all users. Returns their number."""
    deleted = 0
    while found := await store.asearch(_ROOT, filter={"thread": _digest(thread)}, limit=_PAGE):
        for item in found:
            await store.adelete(item.namespace, item.key)
        deleted += len(found)
    return deleted


def _namespace(user_id: str) -> tuple[str, ...]:
    # A digest is used: stores join labels with dots and search by prefix, so "ann" would also find the rounds of "anna".
    if not user_id:
        raise InputError("shared knowledge needs a user: set user_id")
    return (*_ROOT, _digest(user_id))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
