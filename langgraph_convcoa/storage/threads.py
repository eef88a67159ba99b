"""Lists, shows, exports, imports and deletes the threads of a conversation store."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from langgraph_convcoa.errors import InputError, StoreError
from langgraph_convcoa.storage import open_store
from langgraph_convcoa.storage.base import ConversationStore, storable, thread_name
from langgraph_convcoa.storage.turns import Turns, config_of, unfinished_question

if TYPE_CHECKING:
    from langgraph.graph import StateGraph
    from langgraph.graph.state import CompiledStateGraph
    from langgraph.store.base import BaseStore
    from langgraph.types import StateSnapshot

    from langgraph_convcoa.memory.knowledge_set import Round

_WAIT_SECONDS = 5.0

Result = TypeVar("Result")


def rounds_of(values: Mapping[str, Any]) -> list[Round]:
    """The rounds in a thread's state, oldest first."""
    from langgraph_convcoa.memory.knowledge_set import ContextualKnowledgeSet

    return ContextualKnowledgeSet.load(values.get("knowledge_set")).rounds


class StoredGraph:
    """A conversation graph with an open store and its own event loop. The base class of `Threads` and of a session."""

    def __init__(self, store: str | Path | ConversationStore | None) -> None:
        self.store = store if isinstance(store, ConversationStore) else open_store(store)
        self._runner = asyncio.Runner()
        self._open = AsyncExitStack()
        self._turns: Turns

    def __enter__(self) -> Self:
        try:
            self._runner.run(self._opened())
        except BaseException:
            self._runner.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._runner.run(self._open.aclose())
        finally:
            self._runner.close()

    async def _opened(self) -> None:
        saver = await self._open.enter_async_context(self.store.opened())
        self._turns = self._over(self._graph().compile(checkpointer=saver, store=await self._shared_store()))

    def _over(self, graph: CompiledStateGraph[Any, Any, Any, Any]) -> Turns:
        return Turns(graph, self.store)

    async def _shared_store(self) -> BaseStore | None:
        return None

    def _graph(self) -> StateGraph[Any, Any, Any, Any]:
        raise NotImplementedError

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        with self.store.errors():
            return self._runner.run(work)

    @property
    def _saver(self) -> Any:
        return self._turns.saver


@dataclass(frozen=True)
class ThreadSummary:
    """A line of the list of threads."""

    thread: str
    rounds: int
    first_question: str
    last_question: str
    time: str  # when the last round was answered (ISO 8601), or ""
    unfinished: str  # the question of an interrupted turn, or ""


class Threads(StoredGraph):
    """The conversations in a store."""

    def _graph(self) -> StateGraph[Any, Any, Any, Any]:
        """A graph that can read and write the threads of any graph, whatever its actions."""
        from langgraph_convcoa.graph import build_graph
        from langgraph_convcoa.reasoning.extractive.reasoner import ExtractiveReasoner

        return build_graph(reasoner=ExtractiveReasoner(None), actions=[_NoAction()])

    def summaries(self) -> list[ThreadSummary]:
        """All threads, newest first."""
        return self._run(self._summaries())

    async def _summaries(self) -> list[ThreadSummary]:
        try:
            # Newest first. In a store that was never pruned, a thread has several checkpoints.
            names = dict.fromkeys([part.config["configurable"]["thread_id"] async for part in self._saver.alist(None)])
        except Exception as error:
            if self.store.error(error) is not None:
                raise
            raise StoreError(
                f"a thread of {self.store.label} is damaged ({type(error).__name__}): the others can be shown by their names"
            ) from error
        return [_summary(name, await self._turns.snapshot(name)) for name in names]

    def show(self, thread: str) -> list[Round]:
        """The rounds of a thread, oldest first."""
        return rounds_of(self._run(self._existing(storable(thread))).values)

    def export(self, thread: str) -> dict[str, Any]:
        """A thread as an object for JSON, for `add`. An unfinished turn is left out."""
        from langgraph_convcoa.storage.export import thread_as_file

        return thread_as_file(storable(thread), self._run(self._existing(storable(thread))).values)

    def add(self, data: Any, thread: str | None = None) -> str:
        """Store an exported thread and return its name."""
        from langgraph_convcoa.storage.export import file_as_values

        values = file_as_values(data)
        name = thread_name(str(data.get("thread") or "default") if thread is None else thread)
        self._run(self._add(name, values))
        return name

    async def _add(self, name: str, values: dict[str, Any]) -> None:
        config = config_of(name)
        async with self.store.turn(name, _WAIT_SECONDS):
            if (await self._turns.graph.aget_state(config)).created_at is not None:
                raise InputError(f"there is a thread {name!r} already: give another name with --thread, or delete it first")
            await self._turns.graph.aupdate_state(config, values, as_node="remember")

    def delete(self, thread: str) -> None:
        """Delete a thread from the store's files, also the rounds that it shared with its user's other threads.

        Raises StoreError if another program runs a turn of the thread or has the file open.
        """
        self._run(self._delete(storable(thread)))

    async def _delete(self, thread: str) -> None:
        from langgraph_convcoa.memory.sharing import aforget_thread

        async with self.store.turn(thread, _WAIT_SECONDS):
            try:
                with suppress(StoreError):
                    # A thread that is damaged, or of a later format, can be deleted too.
                    await self._existing(thread)
            except InputError:
                # An earlier deletion may not have reached the file.
                await self._scrub()
                raise
            async with self.store.shared() as shared:
                await aforget_thread(shared, thread)
            await self._saver.adelete_thread(thread)
        await self._scrub()

    async def _scrub(self) -> None:
        # A file can be rebuilt, and its log emptied, only without open connections.
        await self._open.aclose()
        try:
            await asyncio.to_thread(self.store.scrub)
        finally:
            await self._opened()

    async def _existing(self, thread: str) -> StateSnapshot:
        snapshot = await self._turns.snapshot(thread)
        if snapshot.created_at is None:
            raise InputError(f"there is no thread {thread!r} in {self.store.label}: see convcoa threads list")
        return snapshot


def _summary(thread: str, snapshot: StateSnapshot) -> ThreadSummary:
    rounds = rounds_of(snapshot.values)
    extra: Mapping[str, Any] = (rounds[-1].get("convcoa") or {}) if rounds else {}
    return ThreadSummary(
        thread=thread,
        rounds=len(rounds),
        first_question=rounds[0]["original_question"] if rounds else "",
        last_question=rounds[-1]["original_question"] if rounds else "",
        time=str(extra.get("time") or snapshot.created_at or ""),
        unfinished=unfinished_question(snapshot),
    )


class _NoAction:
    name = "none"
    description = "looks nothing up"

    async def retrieve(self, request: Any) -> list[Any]:
        return []
