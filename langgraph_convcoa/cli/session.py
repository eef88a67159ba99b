"""One conversation with the graph, run turn by turn, as the command line needs it: streamed, stored and interruptible."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from langgraph_convcoa.cli.console import TurnView, consoles
from langgraph_convcoa.cli.documents import cache_folder, documents_of, open_retriever, place_of
from langgraph_convcoa.cli.options import ConversationOptions, named_index
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.storage import default_store, open_store
from langgraph_convcoa.storage.base import ConversationStore, thread_name
from langgraph_convcoa.storage.threads import StoredGraph, rounds_of
from langgraph_convcoa.storage.turns import INTERRUPT, OUTPUT_FIELDS, Turns
from langgraph_convcoa.text.terminal import one_line

if TYPE_CHECKING:
    from langgraph.graph import StateGraph
    from langgraph.graph.state import CompiledStateGraph
    from langgraph.store.base import BaseStore

    from langgraph_convcoa.actions.base import BaseAction
    from langgraph_convcoa.context import ConvCoAContext
    from langgraph_convcoa.memory.knowledge_set import Round
    from langgraph_convcoa.retrieval.retriever import HopfieldRetriever


class Session(StoredGraph):
    """A thread of a conversation graph, while its store is open. Leaving the session also closes the actions.

    Turns run on an event loop of the session's own, so that Ctrl-C cancels a turn at once, even inside a model's request.
    `sources` is a fingerprint of documents, tables and web search: a turn begun over other sources is not resumed.
    """

    def __init__(
        self,
        graph: StateGraph[Any, Any, Any, Any],
        context: ConvCoAContext,
        thread: str = "default",
        store: str | Path | ConversationStore | None = None,
        actions: Sequence[BaseAction] = (),
        sources: str = "",
    ) -> None:
        super().__init__(store)
        self.thread = thread_name(thread)
        self._actions = actions
        self._builder = graph
        self._context = context
        self._sources = sources

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        super().__exit__(kind, error, trace)
        for action in self._actions:
            action.close()

    def _graph(self) -> StateGraph[Any, Any, Any, Any]:
        return self._builder

    def _over(self, graph: CompiledStateGraph[Any, Any, Any, Any]) -> Turns:
        return Turns(graph, self.store, self._context, self._sources)

    async def _shared_store(self) -> BaseStore | None:
        if not getattr(self._context, "share_knowledge", False):
            return None
        return await self._open.enter_async_context(self.store.shared())

    def ask(self, question: str, view: TurnView | None = None) -> dict[str, Any]:
        """Run one turn. The question of an interrupted turn resumes that turn.

        Returns `answer`, `citations`, `chain`, `knowledge_set` and `usage`. If it raises, the thread stays as it was.
        The view asks for approvals.
        """
        return self._decided({"question": question}, view)

    def resume(self, view: TurnView | None = None) -> dict[str, Any]:
        """Resume the turn that was interrupted. Stored results of model calls are used. Raises InputError if there is none."""
        return self._decided(None, view)

    def unfinished(self) -> str:
        """The question of an interrupted turn over the same sources, which can be resumed, or ""."""
        return self._turns.resumable(self._run(self._turns.snapshot(self.thread)))

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

    def _values(self) -> dict[str, Any]:
        values: dict[str, Any] = self._run(self._turns.snapshot(self.thread)).values
        return values

    def _decided(self, given: Mapping[str, Any] | None, view: TurnView | None) -> dict[str, Any]:
        """Run a turn, and resume it after each decision. No lock is held while a person decides."""

        def see(mode: str, part: Any) -> None:
            if view is not None and mode == "custom":
                view.progress(part)
            elif view is not None and mode == "messages":
                view.token(part[0].text)

        output = self._run(self._turns.run(self.thread, given, see))
        while waiting := output.pop(INTERRUPT, ()):
            if view is None:
                raise InputError("the turn waits for approval: run it at a terminal, without --json")
            output = self._run(self._turns.run(self.thread, None, see, decisions=view.decide(waiting[0].value)))
        return output


def run_turn(session: Session, question: str | None) -> dict[str, Any]:
    """Run one turn and show it at the terminal. Without a question, resume the interrupted turn."""
    out, err = consoles()
    if question is not None and (unfinished := session.unfinished()):
        same = unfinished == question.strip()
        said = "resuming the interrupted turn" if same else f'the interrupted turn "{one_line(unfinished, 80)}" is discarded'
        err.print(said, style="dim")
    with TurnView(out, err) as view:
        output = session.resume(view) if question is None else session.ask(question, view)
        view.finish(output)
    return output


@dataclass(frozen=True)
class Basis:
    """What conversations over different documents share: model, tables, web and store."""

    options: ConversationOptions
    store: ConversationStore
    context: ConvCoAContext
    model: Any
    tables: Sequence[BaseAction]
    search: Any

    def over(self, docs: str, retriever: HopfieldRetriever | None) -> Opened:
        """The graph over a retriever of the documents at a path."""
        from langgraph_convcoa.graph import build_graph

        actions = list(self.tables)
        # An engine does not list its documents.
        if retriever is not None and retriever.corpus.complete:
            from langgraph_convcoa.actions.overview import Overview

            actions.append(Overview(retriever))
        if self.search is not None:
            from langgraph_convcoa.actions.web.action import WebQuerying

            pages = None if self.options.no_cache else cache_folder() / "web.sqlite"
            encoder = None if retriever is None else retriever.encoder
            # After the tables: without a model a question that fits no description goes to the first action.
            actions.append(WebQuerying(self.search, encoder=encoder, cache=pages))
        # The address is also used for models that a run names.
        url = self.options.base_url
        graph = build_graph(model=self.model, base_url=url, retriever=retriever, actions=actions, context=self.context)
        return Opened(graph, self.context, self.store, retriever, actions, self.fingerprint(docs))

    def fingerprint(self, docs: str) -> str:
        """A fingerprint of the sources. It is a hash, because it is kept in the store."""
        web = (self.options.search or "ddgs") if self.options.web else None
        named = json.dumps([docs, self.options.data or [], web], default=str).encode("utf-8", "surrogatepass")
        return hashlib.sha256(named).hexdigest()[:16]


@dataclass(frozen=True)
class Opened:
    """The opened sources of a conversation and the graph over them, which several threads may share."""

    graph: StateGraph[Any, Any, Any, Any]
    context: ConvCoAContext
    store: ConversationStore
    retriever: HopfieldRetriever | None  # None without documents.
    actions: Sequence[BaseAction]  # To be closed.
    sources: str  # A fingerprint of the documents, tables and web search.


def open_session(options: ConversationOptions, command: str) -> Session:
    """A session over documents, tables and the web, answered by a model or, without one, by extraction."""
    thread = "default" if options.thread is None else thread_name(options.thread)
    found = open_sources(options, command)
    return Session(found.graph, found.context, thread, found.store, found.actions, found.sources)


def open_sources(options: ConversationOptions, command: str) -> Opened:
    """Open the documents, tables, web search and model, and build the graph over them.

    Everything that can fail fast is opened before the documents are encoded.
    """
    options.check(command)
    docs = documents_of(options.docs, named_index(options.docs, options.index))
    # A named thread is kept in the user's own store by default.
    basis = open_basis(options, default_store() if options.thread is not None and options.store is None else options.store)
    return basis.over(place_of(docs), open_documents(docs, options) if docs else None)


def open_basis(options: ConversationOptions, where: str | Path | None) -> Basis:
    """Open the store, the model, the tables and the web; errors in them are raised here."""
    store = open_store(where)
    store.check()
    from langgraph_convcoa.context import ConvCoAContext

    model = search = None
    if options.model:
        from langgraph_convcoa.reasoning.models import load_chat_model

        model = load_chat_model(options.model, base_url=options.base_url)
    tables: list[BaseAction] = []
    if options.data:
        from langgraph_convcoa.actions.tables.action import DataAnalysis

        tables.append(DataAnalysis(options.data))
    if options.web:
        from langgraph_convcoa.actions.web.search import as_search, check_packages

        check_packages()
        search = as_search(options.search or "ddgs")
    context = ConvCoAContext(k=options.k, threshold=options.threshold, approve=options.approve or [])
    return Basis(options, store, context, model, tables, search)


def open_documents(docs: str, options: ConversationOptions) -> HopfieldRetriever:
    """Open the documents or the index at a path, with a progress bar for the encoding."""
    cache = not options.no_cache
    retriever = open_retriever(docs, graph=options.graph, max_mb=options.max_mb, cache=cache, progress=True)
    # An encoder that does not fit is refused now. It is also loaded now, so that the first look-up is fast.
    retriever.check_encoder()
    return retriever
