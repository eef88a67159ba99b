"""The threads of a store: listed, shown, exported, imported and deleted, through the graph's state."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from langgraph_convcoa.errors import InputError, StoreError
from langgraph_convcoa.storage.stores import ConversationStore, open_store, thread_name
from langgraph_convcoa.storage.thread_state import config_of, read_thread, rounds_of, unfinished_question

if TYPE_CHECKING:
    from langgraph.graph.state import CompiledStateGraph
    from langgraph.types import StateSnapshot

    from langgraph_convcoa.memory.knowledge_set import Round

Result = TypeVar("Result")

_WAIT_SECONDS = 5.0


@dataclass(frozen=True)
class ThreadSummary:
    """A line of the list of threads.

    Attributes:
        thread: Its name.
        rounds: How many rounds were answered.
        first_question: What the conversation began with.
        last_question: What was asked last.
        time: When the last round was answered, as ISO 8601; "" where that is not known.
        unfinished: The question of a turn that was interrupted; "" where there is none.
    """

    thread: str
    rounds: int
    first_question: str
    last_question: str
    time: str
    unfinished: str


class Threads:
    """The conversations in a store.

    Args:
        store: An SQLite file, a "postgresql://" address, or an open store.

    Raises:
        StoreError: On entering, when the store cannot be used.

    Example:
        >>> import tempfile, pathlib
        >>> with Threads(pathlib.Path(tempfile.mkdtemp()) / "talks.sqlite") as threads:
        ...     threads.summaries()
        []
    """

    def __init__(self, store: str | Path | ConversationStore) -> None:
        self._store = open_store(store) if isinstance(store, str | Path) else store
        self._runner = asyncio.Runner()
        self._open = AsyncExitStack()

    def __enter__(self) -> Threads:
        try:
            self._graph = self._runner.run(self._opened())
        except BaseException:
            self._runner.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._runner.run(self._open.aclose())
        finally:
            self._runner.close()

    async def _opened(self) -> CompiledStateGraph[Any, Any, Any, Any]:
        saver = await self._open.enter_async_context(self._store.opened())
        compiled: CompiledStateGraph[Any, Any, Any, Any] = bare_graph().compile(checkpointer=saver)
        return compiled

    def summaries(self) -> list[ThreadSummary]:
        """All threads, the one that was written last first."""
        return self._run(self._summaries)

    async def _summaries(self) -> list[ThreadSummary]:
        saver: Any = self._graph.checkpointer
        try:
            # Newest first; a store whose checkpoints were never pruned holds more than the last one of a thread.
            names = dict.fromkeys([part.config["configurable"]["thread_id"] async for part in saver.alist(None)])
        except Exception as error:
            if self._store.error(error) is not None:
                raise
            raise StoreError(
                f"a thread of {self._store.label} is damaged ({type(error).__name__}): the others can be shown by their names"
            ) from error
        return [summary(name, await read_thread(self._graph, name, self._store.label)) for name in names]

    def show(self, thread: str) -> list[Round]:
        """The rounds of a thread, oldest first.

        Raises:
            InputError: There is no such thread.
        """
        thread = _as_stored(thread)

        async def rounds() -> list[Round]:
            return rounds_of((await self._existing(thread)).values)

        return self._run(rounds)

    def export(self, thread: str) -> dict[str, Any]:
        """A thread as an object for JSON, which `add` takes; what an unfinished turn left is not part of it.

        Raises:
            InputError: There is no such thread.
        """
        from langgraph_convcoa.storage.export import thread_as_file

        thread = _as_stored(thread)

        async def exported() -> dict[str, Any]:
            return thread_as_file(thread, (await self._existing(thread)).values)

        return self._run(exported)

    def add(self, data: Any, thread: str | None = None) -> str:
        """Store an exported thread; the name it has then.

        Args:
            data: What `export` gave, or a contextual knowledge set.
            thread: A name other than the one it was exported under.

        Raises:
            InputError: The data is no thread, or a thread of that name is there already.
        """
        from langgraph_convcoa.storage.export import file_as_values

        values = file_as_values(data)
        name = thread_name(str(data.get("thread") or "default") if thread is None else thread)

        async def added() -> str:
            async with self._store.turn(name, _WAIT_SECONDS):
                config = config_of(name)
                if (await self._graph.aget_state(config)).created_at is not None:
                    raise InputError(
                        f"there is a thread {name!r} already: give another name with --thread, or delete it first"
                    )
                await self._graph.aupdate_state(config, values, as_node="remember")
            return name

        return self._run(added)

    def delete(self, thread: str) -> None:
        """Delete a thread with all that the store's files hold of it, what it shared with others of its user too.

        Raises:
            InputError: There is no such thread.
            StoreError: Another program is in a turn of it, or keeps the file from being rebuilt.
        """
        thread = _as_stored(thread)

        async def deleted() -> None:
            async with self._store.turn(thread, _WAIT_SECONDS):
                try:
                    with suppress(StoreError):
                        # One that is damaged, or of a later format, can be deleted too.
                        await self._existing(thread)
                except InputError:
                    # A deletion before this one may have been kept from the file.
                    await self._scrubbed()
                    raise
                saver: Any = self._graph.checkpointer
                async with self._store.shared() as shared:
                    from langgraph_convcoa.memory.sharing import aforget_thread

                    await aforget_thread(shared, thread)
                await saver.adelete_thread(thread)
            await self._scrubbed()

        self._run(deleted)

    async def _scrubbed(self) -> None:
        # Only with no connection of its own can a file be rebuilt and its log emptied.
        await self._open.aclose()
        try:
            await asyncio.to_thread(self._store.scrub)
        finally:
            self._graph = await self._opened()

    async def _existing(self, thread: str) -> StateSnapshot:
        snapshot = await read_thread(self._graph, thread, self._store.label)
        if snapshot.created_at is None:
            raise InputError(f"there is no thread {thread!r} in {self._store.label}: see convcoa threads list")
        return snapshot

    def _run(self, work: Callable[[], Awaitable[Result]]) -> Result:
        async def run() -> Result:
            return await work()

        try:
            return self._runner.run(run())
        except Exception as error:
            if (mended := self._store.error(error)) is not None and mended is not error:
                raise mended from error
            raise


def _as_stored(name: str) -> str:
    """A name as `thread_name` stores it; one that cannot be stored is simply not there."""
    return name.encode("utf-8", "replace").decode("utf-8")


def summary(thread: str, snapshot: StateSnapshot) -> ThreadSummary:
    """What a list says of a thread."""
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


def bare_graph() -> Any:
    """The graph with nothing to look things up in: enough to read and write threads, whatever their turns looked up."""
    from langgraph_convcoa.graph import build_graph
    from langgraph_convcoa.reasoning.extractive.reasoner import ExtractiveReasoner

    names = ("knowledge_retrieval", "web_querying", "data_analysis")
    return build_graph(reasoner=ExtractiveReasoner(None), actions=[_Nothing(name) for name in names])


class _Nothing:
    """An action that stands for one that a thread's own graph has."""

    description = "looks nothing up"

    def __init__(self, name: str) -> None:
        self.name = name

    async def retrieve(self, request: Any) -> list[Any]:
        return []
