"""One conversation with the graph, run turn by turn, as the command line needs it: streamed, stored and interruptible."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from langgraph_convcoa.errors import ConvCoAError, InputError
from langgraph_convcoa.storage.stores import TURN_WAIT_SECONDS, ConversationStore, open_store, thread_name
from langgraph_convcoa.storage.thread_state import (
    SOURCES_KEY,
    config_of,
    has_open_turn,
    read_thread,
    rounds_of,
    unfinished_question,
)

if TYPE_CHECKING:
    from langgraph.graph import StateGraph
    from langgraph.graph.state import CompiledStateGraph
    from langgraph.types import StateSnapshot

    from langgraph_convcoa.actions.base import Action
    from langgraph_convcoa.context import ConvCoAContext
    from langgraph_convcoa.memory.knowledge_set import Round

OUTPUT_FIELDS = ("answer", "citations", "chain", "knowledge_set", "usage")
"""The graph's output as JSON."""

Result = TypeVar("Result")
_LOGGER = logging.getLogger(__name__)


class View(Protocol):
    """Who watches a turn."""

    def progress(self, event: Mapping[str, Any]) -> None: ...

    def token(self, text: str) -> None: ...


class Session:
    """A thread of a conversation graph, from the opening of its store to its closing.

    Turns run on an event loop of the session's own, so that Ctrl-C cancels a turn at once, even inside a model's request.
    Every step of a turn is in the store before the next begins, so that a turn that was killed goes on where it was.

    Args:
        graph: What `build_graph` returns.
        context: The settings of every turn.
        thread: The name of the thread in the store.
        store: An SQLite file or a "postgresql://" address; without one the conversation lives as long as the session.
        titles: The titles of the documents, for whoever wants to suggest a question.
        actions: The actions of the graph that are closed with the session.
        sources: What the graph looks things up in, as a text to compare: a turn begun over other sources is not gone on with.

    Raises:
        StoreError: On entering, when the store cannot be used.
    """

    def __init__(
        self,
        graph: StateGraph[Any, Any, Any, Any],
        context: ConvCoAContext,
        thread: str = "default",
        store: str | Path | ConversationStore | None = None,
        titles: Sequence[str] = (),
        actions: Sequence[Action] = (),
        sources: str = "",
    ) -> None:
        self.titles = titles
        self._actions = actions
        self.thread = thread_name(thread)
        self.store = open_store(store) if isinstance(store, str | Path | None) else store
        self._graph = graph
        self._context = context
        self._config = config_of(self.thread, sources)
        self._sources = sources
        self._runner = asyncio.Runner()
        self._open = AsyncExitStack()

    def __enter__(self) -> Session:
        try:
            self._compiled = self._runner.run(self._opened())
        except BaseException:
            self._runner.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._runner.run(self._open.aclose())
        for action in self._actions:
            if callable(close := getattr(action, "close", None)):
                close()
        self._runner.close()

    async def _opened(self) -> CompiledStateGraph[Any, Any, Any, Any]:
        saver = await self._open.enter_async_context(self.store.opened())
        shared = None
        if getattr(self._context, "share_knowledge", False):
            shared = await self._open.enter_async_context(self.store.shared())
        return self._graph.compile(checkpointer=saver, store=shared)

    def ask(self, question: str, view: View | None = None) -> dict[str, Any]:
        """Run one turn. The question of a turn that was interrupted, asked again, goes on with that turn.

        Args:
            question: The user's question.
            view: Told of progress events and of the answer's tokens as they come.

        Returns:
            The graph's output: `answer`, `citations`, `chain`, `knowledge_set` and `usage`.

        Raises:
            ConvCoAError: The turn failed; what the thread knew before stays as it was.
        """
        return self._run(self._turn(question, view))

    def resume(self, view: View | None = None) -> dict[str, Any]:
        """Go on with the turn that was interrupted; model calls whose results are stored are not made again.

        Raises:
            InputError: There is none.
            ConvCoAError: The turn failed once more.
        """
        return self._run(self._turn(None, view))

    def unfinished(self) -> str:
        """The question of a turn that was interrupted and can be gone on with; "" where there is none."""
        return self._run(self._unfinished()) or ""

    def rounds(self) -> list[Round]:
        """The rounds of the thread so far, oldest first."""

        async def read() -> list[Round]:
            return rounds_of((await self._read()).values)

        return self._run(read())

    def last(self) -> dict[str, Any]:
        """The output of the last turn that was answered; empty before the first."""

        async def read() -> dict[str, Any]:
            values = (await self._read()).values
            return {name: values[name] for name in OUTPUT_FIELDS if name in values}

        return self._run(read())

    def export(self) -> dict[str, Any]:
        """The thread as an object for JSON, which `convcoa threads import` takes."""
        from langgraph_convcoa.storage.export import thread_as_file

        async def read() -> dict[str, Any]:
            return thread_as_file(self.thread, (await self._read()).values)

        return self._run(read())

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        try:
            return self._runner.run(work)
        except ConvCoAError:
            raise
        except Exception as error:
            if (mended := self.store.error(error)) is not None:
                raise mended from error
            raise

    async def _unfinished(self) -> str | None:
        """The question of an interrupted turn, where it was begun over the same sources."""
        snapshot = await self._read()
        question = unfinished_question(snapshot)
        return question if question and (snapshot.metadata or {}).get(SOURCES_KEY, "") == self._sources else None

    async def _read(self) -> StateSnapshot:
        return await read_thread(self._compiled, self.thread, self.store.label)

    async def _turn(self, question: str | None, view: View | None) -> dict[str, Any]:
        async with self.store.turn(self.thread, TURN_WAIT_SECONDS):
            unfinished = None
            # Read once where there is nothing to go on with, since that takes the longer the longer the conversation is.
            if await has_open_turn(self._compiled, self.thread, self.store.label):
                if (settled := await self._settled()) is not None and settled[0] == question:
                    return settled[1]
                unfinished = await self._unfinished()
            if question is None and unfinished is None:
                raise InputError("there is no interrupted turn to go on with: ask a question")
            again = unfinished is not None and question in (None, unfinished)
            output = await self._streamed(None if again else {"question": question}, view)
            await self._prune()
            return output

    async def _settled(self) -> tuple[str, dict[str, Any]] | None:
        """Where a program was killed between a turn's last step and its last checkpoint, write that: (question, output).

        LangGraph drops the results of steps that no checkpoint holds yet when a new input comes; this turn is answered.
        """
        snapshot = await self._read()
        saver: Any = self._compiled.checkpointer
        stored = await saver.aget_tuple(self._config)
        if snapshot.next or unfinished_question(snapshot) or stored is None or not stored.pending_writes:
            return None
        output = await self._streamed(None, None)
        await self._prune()
        return str(snapshot.values.get("asked") or ""), output

    async def _streamed(self, given: dict[str, Any] | None, view: View | None) -> dict[str, Any]:
        output: Mapping[str, Any] = {}
        # LangGraph types a stream of several modes as of one; with a list, its items are pairs of mode and part.
        stream: Any = self._compiled.astream(
            given,
            self._config,
            context=self._context,
            stream_mode=["messages", "custom", "values"],
            durability="sync",
        )
        # Closed at once when the turn is cancelled, not when the garbage collector comes by.
        async with aclosing(stream) as parts:
            async for mode, part in parts:
                if mode == "values":
                    output = part
                elif view is not None and mode == "custom":
                    view.progress(part)
                elif view is not None:
                    view.token(part[0].text)
        return {name: output[name] for name in OUTPUT_FIELDS if name in output}

    async def _prune(self) -> None:
        """Drop the checkpoints of the steps that led here: each holds the whole thread, and none is needed any more."""
        saver: Any = self._compiled.checkpointer
        try:
            await saver.aprune([self.thread])
        except NotImplementedError:
            return
        except Exception as error:
            # The turn is answered and stored; what could not be dropped now is dropped after the next one.
            if self.store.error(error) is None:
                raise
            _LOGGER.debug("The thread %r was not pruned: %s", self.thread, type(error).__name__)
