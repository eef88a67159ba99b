"""One conversation with the graph, run turn by turn, as the command line needs it: streamed, stored and interruptible."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from langgraph_convcoa.errors import InputError, RetrievalError, StoreError

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.graph import StateGraph

    from langgraph_convcoa.actions.base import Action
    from langgraph_convcoa.actions.web_search import SearchProvider
    from langgraph_convcoa.context import ConvCoAContext
    from langgraph_convcoa.retrieval.cache import PatternCache
    from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

OUTPUT_FIELDS = ("answer", "citations", "chain", "knowledge_set", "usage")
"""The graph's output as JSON (DESIGN section 9)."""

_SQLITE_WAIT_SECONDS = 5.0
_TITLES_READ = 100
_TURN_WAIT_SECONDS = 120.0


class View(Protocol):
    """Who watches a turn."""

    def progress(self, event: Mapping[str, Any]) -> None: ...

    def token(self, text: str) -> None: ...


class Session:
    """A thread of a conversation graph, from the opening of its store to its closing.

    Turns run on an event loop of the session's own, so that Ctrl-C cancels a turn at once, even inside a model's request.

    Args:
        graph: What `build_graph` returns.
        context: The settings of every turn.
        thread: The name of the thread in the store.
        store: An SQLite file; without one the conversation lives as long as the session.
        titles: The titles of the documents, for whoever wants to suggest a question.
        actions: The actions of the graph that are closed with the session.

    Raises:
        StoreError: On entering, when the file cannot be used.
    """

    def __init__(
        self,
        graph: StateGraph[Any, Any, Any, Any],
        context: ConvCoAContext,
        thread: str = "default",
        store: Path | None = None,
        titles: Sequence[str] = (),
        actions: Sequence[Action] = (),
    ) -> None:
        self.titles = titles
        self._actions = actions
        self._graph = graph
        self._context = context
        self._config: RunnableConfig = {"configurable": {"thread_id": thread}}
        self._thread = thread
        self._store = store
        self._runner = asyncio.Runner()
        self._open = AsyncExitStack()

    def __enter__(self) -> Session:
        if self._store is not None:
            check_store(self._store)
        self._compiled = self._graph.compile(checkpointer=self._runner.run(self._saver()))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._runner.run(self._open.aclose())
        for action in self._actions:
            if callable(close := getattr(action, "close", None)):
                close()
        self._runner.close()

    async def _saver(self) -> BaseCheckpointSaver[Any]:
        if self._store is None:
            from langgraph.checkpoint.memory import InMemorySaver

            return InMemorySaver()
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        try:
            saver = await self._open.enter_async_context(AsyncSqliteSaver.from_conn_string(str(self._store)))
            await saver.setup()
        except (sqlite3.Error, OSError) as error:
            raise _store_error(self._store, error) from error
        return saver

    def ask(self, question: str, view: View | None = None) -> dict[str, Any]:
        """Run one turn.

        Args:
            question: The user's question.
            view: Told of progress events and of the answer's tokens as they come.

        Returns:
            The graph's output: `answer`, `citations`, `chain`, `knowledge_set` and `usage`.

        Raises:
            ConvCoAError: The turn failed; what the thread knew before stays as it was.
        """
        return self._runner.run(self._turn(question, view))

    async def _turn(self, question: str, view: View | None) -> dict[str, Any]:
        async with self._alone():
            return await self._streamed(question, view)

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """One turn of a stored thread at a time: two programs that both built on its last round would lose one of theirs."""
        if self._store is None:
            yield
            return
        from filelock import AsyncFileLock, Timeout

        thread = hashlib.sha256(self._thread.encode("utf-8", "replace")).hexdigest()[:12]
        lock = AsyncFileLock(f"{self._store}.{thread}.lock", timeout=_TURN_WAIT_SECONDS, poll_interval=0.1)
        try:
            await lock.acquire()
        except Timeout:
            raise StoreError(
                f"the thread {self._thread!r} of {self._store} is busy in another program: try again, or use another --thread"
            ) from None
        except OSError as error:
            raise _store_error(self._store, error) from error
        try:
            yield
        finally:
            await lock.release()

    async def _streamed(self, question: str, view: View | None) -> dict[str, Any]:
        output: Mapping[str, Any] = {}
        # LangGraph types a stream of several modes as of one; with a list, its items are pairs of mode and part.
        stream: Any = self._compiled.astream(
            {"question": question},
            self._config,
            context=self._context,
            stream_mode=["messages", "custom", "values"],
            durability="sync",
        )
        try:
            # Closed at once when the turn is cancelled, not when the garbage collector comes by.
            async with aclosing(stream) as parts:
                async for mode, part in parts:
                    if mode == "values":
                        output = part
                    elif view is not None and mode == "custom":
                        view.progress(part)
                    elif view is not None:
                        view.token(part[0].text)
        except sqlite3.Error as error:
            if self._store is None:
                raise
            raise _store_error(self._store, error) from error
        return {name: output[name] for name in OUTPUT_FIELDS if name in output}


def check_store(path: Path) -> None:
    """See that an SQLite file can serve as a store before anything is written to it.

    Raises:
        StoreError: It is a folder, no database, another program's database, locked, or cannot be written.
    """
    if path.is_dir():
        raise StoreError(f"the store {path} is a folder: give a file, such as {path / 'conversations.sqlite'}")
    if not path.parent.is_dir():
        raise StoreError(f"the folder of the store {path} does not exist: make it, or give another file")
    if path.exists() and not os.access(path, os.W_OK):
        raise StoreError(f"the store {path} cannot be written: change its permissions, or give another file")
    try:
        with closing(sqlite3.connect(path, timeout=_SQLITE_WAIT_SECONDS)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            connection.rollback()
    except (sqlite3.Error, OSError) as error:
        raise _store_error(path, error) from error
    if tables and "checkpoints" not in tables:
        raise StoreError(f"the store {path} is the database of another program: give another file")


def _store_error(path: Path, error: Exception) -> StoreError:
    reason = " ".join(str(error).split())[:120]
    if "not a database" in reason:
        return StoreError(f"the store {path} is not an SQLite database: give another file")
    if "locked" in reason:
        return StoreError(f"the store {path} is in use by another program: try again when that has ended")
    return StoreError(f"the store {path} cannot be used ({reason}): check its permissions and the disk, or give another file")


def open_retriever(
    docs: str, *, k: int, max_mb: float, cache: bool, progress: bool, warn: Callable[[str], None]
) -> HopfieldRetriever:
    """A retriever over the documents, or the index, at a path; "demo" is the demonstration's where no such path exists.

    Raises:
        DocumentError: The documents cannot be read.
        RetrievalError: They cannot be encoded, or the index cannot be opened.
    """
    from langgraph_convcoa.retrieval.documents import load_documents
    from langgraph_convcoa.retrieval.index_database import is_index

    if is_index(docs):
        from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

        return HopfieldRetriever.from_pretrained(docs, k=k)
    documents = load_documents(documents_path(docs), progress=progress, max_bytes=int(max_mb * 1e6))
    from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

    patterns = open_cache_or_warn(warn) if cache else None
    return HopfieldRetriever.from_documents(documents, k=k, cache=patterns, progress=progress)


def documents_path(docs: str) -> Path:
    """The path that the documents are read from."""
    path = Path(docs)
    if docs == "demo" and not path.exists():
        from langgraph_convcoa.demo import demo_folder

        return demo_folder()
    return path


def open_cache_or_warn(warn: Callable[[str], None]) -> PatternCache | None:
    """The cache of encoded documents; None, with a warning, where it cannot be used."""
    from langgraph_convcoa.retrieval.cache import PatternCache

    try:
        return PatternCache(cache_folder() / "patterns.sqlite")
    except RetrievalError as error:
        warn(f"{error} Going on without a cache.")
        return None


def cache_folder() -> Path:
    """Where encoded documents and web pages are kept: the user's cache folder, or the one that CONVCOA_CACHE_DIR names."""
    from platformdirs import user_cache_dir

    return Path(os.environ.get("CONVCOA_CACHE_DIR") or user_cache_dir("langgraph-convcoa", appauthor=False))


@dataclass(frozen=True)
class SessionSettings:
    """What a session is opened with, as on the command line; `search` is how the web is searched, None not at all."""

    docs: str
    model: str | None = None
    base_url: str | None = None
    thread: str = "default"
    store: Path | None = None
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
    if settings.store is not None:
        check_store(settings.store)
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
        from langgraph_convcoa.actions.web import WebQuerying

        # After the tables: without a model a question that fits no description goes to the first action.
        pages = cache_folder() / "web.sqlite" if settings.cache else None
        actions.append(WebQuerying(web, encoder=None if retriever is None else retriever.encoder, cache=pages))
    from langgraph_convcoa.graph import build_graph

    graph = build_graph(model=model, retriever=retriever, actions=actions)
    context = ConvCoAContext(k=settings.k, threshold=settings.threshold)
    return Session(graph, context, settings.thread, settings.store, titles, actions)


def _tables(settings: SessionSettings) -> list[Action]:
    if not settings.data:
        return []
    from langgraph_convcoa.actions.tabular import DataAnalysis

    return [DataAnalysis(settings.data)]


def _search(settings: SessionSettings) -> SearchProvider | None:
    if not settings.search:
        return None
    from langgraph_convcoa.actions.web_search import as_search

    return as_search(settings.search)


def read_history(path: Path) -> list[BaseMessage] | list[tuple[str, str]]:
    """Earlier turns from a JSON file: [question, answer] pairs or {"role", "content"} messages, oldest first.

    Raises:
        InputError: The file cannot be read, or holds something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"the history {path} cannot be opened ({error.strerror}): give another file") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"the history {path} is no valid JSON ({error}): mend it") from error
    turns = content if isinstance(content, list) else [content]
    if turns and all(isinstance(turn, dict) and isinstance(turn.get("content"), str) for turn in turns):
        from langchain_core.messages import convert_to_messages

        try:
            return convert_to_messages([{"role": turn.get("role"), "content": turn["content"]} for turn in turns])
        except (ValueError, NotImplementedError) as error:
            raise InputError(f"the history {path} has a message of an unknown role: use user and assistant") from error
    if all(isinstance(turn, list) and len(turn) == 2 and all(isinstance(text, str) for text in turn) for turn in turns):
        return [(turn[0], turn[1]) for turn in turns]
    raise InputError(f'the history {path} must be a list of [question, answer] pairs or of {{"role", "content"}} messages')
