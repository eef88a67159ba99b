"""Opening a session from what the command line was given."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from langgraph_convcoa.cli.session import Session
from langgraph_convcoa.cli.session_documents import cache_folder, open_retriever
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.storage.stores import default_store, open_store, thread_name

if TYPE_CHECKING:
    from langgraph_convcoa.actions.base import Action
    from langgraph_convcoa.actions.web.search import SearchProvider

_TITLES_READ = 100


@dataclass(frozen=True)
class SessionSettings:
    """What a session is opened with, as on the command line; `search` is how the web is searched, None not at all."""

    docs: str
    model: str | None = None
    base_url: str | None = None
    thread: str | None = None
    store: str | Path | None = None
    k: int | None = None
    threshold: float | None = None
    max_mb: float = 50.0
    cache: bool = True
    data: tuple[str, ...] = ()
    search: str | None = None


def open_session(settings: SessionSettings, *, progress: bool, warn: Callable[[str], None]) -> Session:
    """A session over documents, tables and the web, answered by a model or, without one, by extraction.

    What can go wrong fast is tried before the documents are encoded: the store, then the model, then the tables.

    Raises:
        ConvCoAError: The store, the model, the documents or a setting cannot be used.
    """
    if settings.base_url and not settings.model:
        raise InputError("--base-url needs --model: give the name under which that server knows its model")
    thread, store = kept_where(settings.thread, settings.store)
    open_store(store).check()
    from langgraph_convcoa.context import ConvCoAContext

    model = None
    if settings.model:
        from langgraph_convcoa.reasoning.models import load_chat_model

        model = load_chat_model(settings.model, base_url=settings.base_url)
    actions, web = _tables(settings), _search(settings)
    retriever, titles = None, []
    if settings.docs:
        size = settings.max_mb
        retriever = open_retriever(settings.docs, k=5, max_mb=size, cache=settings.cache, progress=progress, warn=warn)
        # An encoder that does not fit is told now, and loading it takes nothing from the time of the first look-up.
        retriever.check_encoder()
        titles = [str(passage.metadata.get("title") or "") for passage in retriever.memory.passages[:_TITLES_READ]]
    if web is not None:
        from langgraph_convcoa.actions.web.action import WebQuerying

        # After the tables: without a model a question that fits no description goes to the first action.
        pages = cache_folder() / "web.sqlite" if settings.cache else None
        actions.append(WebQuerying(web, encoder=None if retriever is None else retriever.encoder, cache=pages))
    from langgraph_convcoa.graph import build_graph

    graph = build_graph(model=model, retriever=retriever, actions=actions)
    context = ConvCoAContext(k=settings.k, threshold=settings.threshold)
    return Session(graph, context, thread, store, titles, actions, sources_of(settings))


def _tables(settings: SessionSettings) -> list[Action]:
    if not settings.data:
        return []
    from langgraph_convcoa.actions.tables.action import DataAnalysis

    return [DataAnalysis(settings.data)]


def _search(settings: SessionSettings) -> SearchProvider | None:
    if not settings.search:
        return None
    from langgraph_convcoa.actions.web.engines import as_search

    return as_search(settings.search)


def kept_where(thread: str | None, store: str | Path | None) -> tuple[str, str | Path | None]:
    """The thread and the store that are meant: a thread without a store is kept in the user's own, neither is kept nowhere.

    Raises:
        InputError: The thread's name cannot be stored.
        StoreError: The user's store cannot be made.

    Example:
        >>> kept_where(None, None)
        ('default', None)
        >>> kept_where(None, "talks.sqlite")
        ('default', 'talks.sqlite')
    """
    if thread is None:
        return "default", store
    return thread_name(thread), default_store() if store is None else store


def sources_of(settings: SessionSettings) -> str:
    """What the settings say to look things up in, as a short text to compare; paths do not stand in it."""
    named = [getattr(settings, name, None) for name in ("docs", "data", "search")]
    return hashlib.sha256(json.dumps(named, default=str).encode("utf-8", "surrogatepass")).hexdigest()[:16]
