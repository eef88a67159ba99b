"""One conversation with the graph, run turn by turn, as the command line needs it: streamed, stored and interruptible."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from langgraph_convcoa.cli.documents import cache_folder, documents_of, open_retriever
from langgraph_convcoa.cli.options import ConversationOptions
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.storage import default_store, open_store
from langgraph_convcoa.storage.base import TURN_WAIT_SECONDS, ConversationStore, thread_name
from langgraph_convcoa.storage.threads import SOURCES_KEY, StoredGraph, config_of, rounds_of, unfinished_question

if TYPE_CHECKING:
    from langgraph.graph import StateGraph
    from langgraph.store.base import BaseStore
    from langgraph.types import StateSnapshot

    from langgraph_convcoa.actions.base import Action
    from langgraph_convcoa.context import ConvCoAContext
    from langgraph_convcoa.memory.knowledge_set import Round
    from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

OUTPUT_FIELDS = ("answer", "citations", "chain", "knowledge_set", "usage")
"""The graph's output as JSON."""
INTERRUPT = "__interrupt__"
"""The key under which LangGraph gives what a turn waits for."""
_LOGGER = logging.getLogger(__name__)


class View(Protocol):
    """Who watches a turn."""

    def progress(self, event: Mapping[str, Any]) -> None: ...

    def token(self, text: str) -> None: ...

    def decide(self, request: Mapping[str, Any]) -> Mapping[str, Any]: ...


class Session(StoredGraph):
    """A thread of a conversation graph, from the opening of its store to its closing.

    Turns run on an event loop of the session's own, so that Ctrl-C cancels a turn at once, even inside a model's request.
    Every step of a turn is in the store before the next begins, so that a turn that was killed is resumed where it was.
    `sources` is a fingerprint of documents, tables and web search: a turn begun over other ones is not resumed. `actions`
    are closed with the session.
    """

    def __init__(
        self,
        graph: StateGraph[Any, Any, Any, Any],
        context: ConvCoAContext,
        thread: str = "default",
        store: str | Path | ConversationStore | None = None,
        actions: Sequence[Action] = (),
        sources: str = "",
    ) -> None:
        super().__init__(store)
        self.thread = thread_name(thread)
        self._actions = actions
        self._builder = graph
        self._context = context
        self._sources = sources
        self._config = config_of(self.thread, sources)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        super().__exit__(kind, error, trace)
        for action in self._actions:
            if callable(close := getattr(action, "close", None)):
                close()

    def _graph(self) -> StateGraph[Any, Any, Any, Any]:
        return self._builder

    async def _shared_store(self) -> BaseStore | None:
        if not getattr(self._context, "share_knowledge", False):
            return None
        return await self._open.enter_async_context(self.store.shared())

    def ask(self, question: str, view: View | None = None) -> dict[str, Any]:
        """Run one turn. The question of a turn that was interrupted, asked again, resumes that turn.

        Returns `answer`, `citations`, `chain`, `knowledge_set` and `usage`; where it raises, the thread stays as it was.
        What is to be approved is put to the view.
        """
        return self._decided(self._run(self._turn(question, view)), view)

    def resume(self, view: View | None = None) -> dict[str, Any]:
        """Resume the turn that was interrupted; model calls whose results are stored are not made again.

        InputError where there is none.
        """
        return self._decided(self._run(self._turn(None, view)), view)

    def unfinished(self) -> str:
        """The question of a turn that was interrupted over the same sources and can be resumed; "" where there is none."""
        return self._resumable(self._run(self._snapshot(self.thread)))

    def rounds(self) -> list[Round]:
        """The rounds of the thread so far, oldest first."""
        return rounds_of(self._values())

    def last(self) -> dict[str, Any]:
        """The output of the last turn that was answered; empty before the first."""
        values = self._values()
        return {name: values[name] for name in OUTPUT_FIELDS if name in values}

    def export(self) -> dict[str, Any]:
        """The thread as an object for JSON, which `convcoa threads import` takes."""
        from langgraph_convcoa.storage.export import thread_as_file

        return thread_as_file(self.thread, self._values())

    def _decided(self, output: dict[str, Any], view: View | None) -> dict[str, Any]:
        """Resume a turn that waits for a person as often as it waits; a person may take any time, so no lock is held."""
        while waiting := output.pop(INTERRUPT, ()):
            if view is None:
                raise InputError("the turn waits for approval: run it at a terminal, without --json")
            output = self._run(self._turn(None, view, view.decide(waiting[0].value)))
        return output

    def _values(self) -> dict[str, Any]:
        values: dict[str, Any] = self._run(self._snapshot(self.thread)).values
        return values

    def _resumable(self, snapshot: StateSnapshot) -> str:
        return unfinished_question(snapshot) if (snapshot.metadata or {}).get(SOURCES_KEY, "") == self._sources else ""

    async def _turn(
        self, question: str | None, view: View | None, decisions: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        async with self.store.turn(self.thread, TURN_WAIT_SECONDS):
            unfinished = ""
            # Read once where there is nothing to resume, since that takes the longer the longer the conversation is.
            if await self._has_open_turn(self.thread):
                if (settled := await self._settled()) is not None and settled[0] == question:
                    return settled[1]
                unfinished = self._resumable(await self._snapshot(self.thread))
            if question is None and not unfinished:
                raise InputError("there is no interrupted turn to resume: ask a question")
            again = unfinished and question in (None, unfinished)
            given: Any = None if again else {"question": question}
            if decisions is not None:
                from langgraph.types import Command

                given = Command(resume=decisions)
            output = await self._streamed(given, view)
            if INTERRUPT not in output:
                await self._prune()
            return output

    async def _settled(self) -> tuple[str, dict[str, Any]] | None:
        """Where a program was killed between a turn's last step and its last checkpoint, write that: (question, output).

        LangGraph drops the results of steps that no checkpoint holds yet when a new input comes; this turn is answered.
        """
        snapshot = await self._snapshot(self.thread)
        stored = await self._saver.aget_tuple(self._config)
        if snapshot.next or unfinished_question(snapshot) or stored is None or not stored.pending_writes:
            return None
        output = await self._streamed(None, None)
        await self._prune()
        return str(snapshot.values.get("asked") or ""), output

    async def _streamed(self, given: Any, view: View | None) -> dict[str, Any]:
        output: Mapping[str, Any] = {}
        # LangGraph types a stream of several modes as of one; with a list, its items are pairs of mode and part.
        stream: Any = self._compiled.astream(
            given, self._config, context=self._context, stream_mode=["messages", "custom", "values"], durability="sync"
        )
        # Closed at once when the turn is cancelled, not at garbage collection.
        async with aclosing(stream) as parts:
            async for mode, part in parts:
                if mode == "values":
                    output = part
                elif view is not None and mode == "custom":
                    view.progress(part)
                elif view is not None:
                    view.token(part[0].text)
        return {name: output[name] for name in (*OUTPUT_FIELDS, INTERRUPT) if name in output}

    async def _prune(self) -> None:
        try:
            await self.store.prune(self._saver, self.thread)
        except Exception as error:
            # The turn is answered and stored; what could not be dropped now is dropped after the next one.
            if self.store.error(error) is None:
                raise
            _LOGGER.debug("The thread %r was not pruned: %s", self.thread, type(error).__name__)


@dataclass(frozen=True)
class Opened:
    """What the options of a conversation name, opened: a graph over its sources, which several threads may share."""

    graph: StateGraph[Any, Any, Any, Any]
    context: ConvCoAContext
    store: ConversationStore
    retriever: HopfieldRetriever | None  # None where there are no documents.
    actions: Sequence[Action]  # To be closed.
    sources: str  # A fingerprint of the documents, tables and web search.


def open_session(options: ConversationOptions, command: str) -> Session:
    """A session over documents, tables and the web, answered by a model or, without one, by extraction."""
    thread = "default" if options.thread is None else thread_name(options.thread)
    found = open_sources(options, command)
    return Session(found.graph, found.context, thread, found.store, found.actions, found.sources)


def open_sources(options: ConversationOptions, command: str) -> Opened:
    """Documents, tables and the web, and the model if any, as a graph.

    What can go wrong fast is tried before the documents are encoded: the store, then the model, then the tables.
    """
    options.check(command)
    docs = documents_of(options.docs, options.index)
    # A thread with a name is kept in the user's own store where no other is given.
    store = open_store(default_store() if options.thread is not None and options.store is None else options.store)
    store.check()
    from langgraph_convcoa.context import ConvCoAContext

    model, web = None, (options.search or "ddgs") if options.web else None
    if options.model:
        from langgraph_convcoa.reasoning.models import load_chat_model

        model = load_chat_model(options.model, base_url=options.base_url)
    actions: list[Action] = []
    if options.data:
        from langgraph_convcoa.actions.tables.action import DataAnalysis

        actions.append(DataAnalysis(options.data))
    if web:
        from langgraph_convcoa.actions.web.search import as_search, check_packages

        check_packages()
        provider = as_search(web)
    retriever = None
    if docs:
        retriever = open_retriever(docs, graph=options.graph, max_mb=options.max_mb, cache=not options.no_cache, progress=True)
        # An encoder that does not fit is refused now, and loading it takes nothing from the time of the first look-up.
        retriever.check_encoder()
    if web:
        from langgraph_convcoa.actions.web.action import WebQuerying

        # After the tables: without a model a question that fits no description goes to the first action.
        pages = None if options.no_cache else cache_folder() / "web.sqlite"
        actions.append(WebQuerying(provider, encoder=None if retriever is None else retriever.encoder, cache=pages))
    from langgraph_convcoa.graph import build_graph

    context = ConvCoAContext(k=options.k, threshold=options.threshold, approve=options.approve or [])
    graph = build_graph(model=model, retriever=retriever, actions=actions, context=context)
    # Paths do not stand in the fingerprint, which is kept in the store.
    named = json.dumps([docs, options.data or [], web], default=str).encode("utf-8", "surrogatepass")
    return Opened(graph, context, store, retriever, actions, hashlib.sha256(named).hexdigest()[:16])
