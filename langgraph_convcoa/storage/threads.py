"""The threads of a conversation store: listed, shown, exported, imported and deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from langgraph_convcoa.errors import InputError, StoreError
from langgraph_convcoa.storage import ConversationStore, open_store, storable, thread_name
from langgraph_convcoa.storage.thread_export import file_as_values, thread_as_file
from langgraph_convcoa.storage.turns import Turns, config_of, rounds_of, unfinished_question

if TYPE_CHECKING:
    from langgraph.graph import StateGraph
    from langgraph.types import StateSnapshot

    from langgraph_convcoa.context import ConvCoAContext
    from langgraph_convcoa.memory.knowledge_set import Round

_WAIT_SECONDS = 5.0

Result = TypeVar("Result")


class StoredGraph:
    """A conversation graph with an open store and its own event loop. The base class of `Threads` and of a session."""

    def __init__(
        self,
        graph: StateGraph[Any, Any, Any, Any],
        store: str | Path | ConversationStore | None,
        context: ConvCoAContext | None = None,
        sources: str = "",
    ) -> None:
        self.store = store if isinstance(store, ConversationStore) else open_store(store)
        self._graph, self._context, self._sources = graph, context, sources
        self._runner = asyncio.Runner()
        self._open = AsyncExitStack()
        self.turns: Turns

    def __enter__(self) -> Self:
        try:
            self._runner.run(self._opened())
        except BaseException:
            self._runner.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._runner.run(self._open.aclose())
        finally:
            self._runner.close()

    async def _opened(self) -> None:
        saver = await self._open.enter_async_context(self.store.opened())
        shared = None
        if self._context is not None and self._context.share_knowledge:
            shared = await self._open.enter_async_context(self.store.shared())
        graph = self._graph.compile(checkpointer=saver, store=shared)
        self.turns = Turns(graph, self.store, self._context, self._sources)

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        with self.store.errors():
            return self._runner.run(work)


@dataclass(frozen=True)
class ThreadSummary:
    """A line of the list of threads."""

    thread: str
    rounds: int
    first_question: str
    last_question: str
    time: str  # when the last round was answered (ISO 8601), or ""
    unfinished: str  # the question of an interrupted turn, or ""

    @classmethod
    def of(cls, thread: str, snapshot: StateSnapshot) -> ThreadSummary:
        """The summary of a thread's state."""
        rounds = rounds_of(snapshot.values)
        questions = [one["original_question"] for one in rounds] or [""]
        extra: Mapping[str, Any] = (rounds[-1].get("convcoa") or {}) if rounds else {}
        time = str(extra.get("time") or snapshot.created_at or "")
        return cls(thread, len(rounds), questions[0], questions[-1], time, unfinished_question(snapshot))


class Threads(StoredGraph):
    """The conversations in a store."""

    def __init__(self, store: str | Path | ConversationStore | None) -> None:
        from langchain_core.runnables import RunnableLambda

        from langgraph_convcoa.graph import build_graph

        # This graph is never run. It can read and write the threads of every graph: actions do not change the state's form.
        super().__init__(build_graph(retriever=RunnableLambda(lambda _: [])), store)

    def summaries(self) -> list[ThreadSummary]:
        """All threads, newest first."""
        return self.run(self._summaries())

    async def _summaries(self) -> list[ThreadSummary]:
        try:
            # The newest come first. In a store that was never pruned, a thread has several checkpoints.
            names = dict.fromkeys([part.config["configurable"]["thread_id"] async for part in self.turns.saver.alist(None)])
        except Exception as error:
            if self.store.error(error) is not None:
                raise
            raise StoreError(
                f"a thread of {self.store.label} is damaged ({type(error).__name__}): the others can be shown by their names"
            ) from error
        return [ThreadSummary.of(name, await self.turns.snapshot(name)) for name in names]

    def show(self, thread: str) -> list[Round]:
        """The rounds of a thread, oldest first."""
        return rounds_of(self.run(self._existing(storable(thread))).values)

    def export(self, thread: str) -> dict[str, Any]:
        """A thread as an object for JSON, for `add`. An unfinished turn is left out."""
        return thread_as_file(storable(thread), self.run(self._existing(storable(thread))).values)

    def add(self, data: Any, thread: str | None = None) -> str:
        """Store an exported thread and return its name."""
        values = file_as_values(data)
        name = thread_name(str(data.get("thread") or "default") if thread is None else thread)
        self.run(self._add(name, values))
        return name

    async def _add(self, name: str, values: dict[str, Any]) -> None:
        config = config_of(name)
        async with self.store.turn(name, _WAIT_SECONDS):
            if (await self.turns.graph.aget_state(config)).created_at is not None:
                raise InputError(f"there is a thread {name!r} already: give another name with --thread, or delete it first")
            await self.turns.graph.aupdate_state(config, values, as_node="remember")

    def delete(self, thread: str) -> None:
        """Delete a thread from the store's files, and the rounds that it shared with other threads of its user.

        Raises StoreError if another program runs a turn of the thread or has the file open.
        """
        self.run(self._delete(storable(thread)))

    async def _delete(self, thread: str) -> None:
        from langgraph_convcoa.memory.sharing import aforget_thread

        async with self.store.turn(thread, _WAIT_SECONDS):
            try:
                with suppress(StoreError):
                    # A thread that is damaged, or of a later format, can be deleted too.
                    await self._existing(thread)
            except InputError:
                # An earlier deletion may have ended before the file was rebuilt.
                await self._scrub()
                raise
            async with self.store.shared() as shared:
                await aforget_thread(shared, thread)
            await self.turns.saver.adelete_thread(thread)
        await self._scrub()

    async def _scrub(self) -> None:
        # A file can be rebuilt, and its log emptied, only without open connections.
        await self._open.aclose()
        try:
            await asyncio.to_thread(self.store.scrub)
        finally:
            await self._opened()

    async def _existing(self, thread: str) -> StateSnapshot:
        snapshot = await self.turns.snapshot(thread)
        if snapshot.created_at is None:
            raise InputError(f"there is no thread {thread!r} in {self.store.label}: see convcoa threads list")
        return snapshot
