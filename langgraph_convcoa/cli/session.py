"""A conversation of the command line: its turns are streamed and stored, and can be interrupted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langgraph_convcoa.cli.console import TurnView, consoles
from langgraph_convcoa.cli.documents import cache_folder, documents_of, open_retriever, place_of
from langgraph_convcoa.cli.options import ConversationOptions, named_index
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.storage import ConversationStore, default_store, open_store, thread_name
from langgraph_convcoa.storage.thread_export import thread_as_file
from langgraph_convcoa.storage.threads import StoredGraph
from langgraph_convcoa.storage.turns import INTERRUPT, OUTPUT_FIELDS, rounds_of
from langgraph_convcoa.text.clean import one_line

if TYPE_CHECKING:
    from langgraph.graph import StateGraph

    from langgraph_convcoa.actions.base import BaseAction
    from langgraph_convcoa.context import ConvCoAContext
    from langgraph_convcoa.memory.knowledge_set import Round
    from langgraph_convcoa.retrieval.retriever import HopfieldRetriever


class Session(StoredGraph):
    """A thread of a conversation graph, while its store is open. Leaving the session also closes the actions.

    Turns run on the session's own event loop, so that Ctrl-C cancels a turn at once, even inside a model's request.
    `sources` is a fingerprint of documents, tables and web search. A turn that began with other sources is not resumed.
    """

    def __init__(
        self,
        graph: StateGraph[Any, Any, Any, Any],
        context: ConvCoAContext,
        thread: str = "default",
        store: str | Path | ConversationStore | None = None,
        actions: Sequence[BaseAction] = (),
        sources: str = "",
        retriever: HopfieldRetriever | None = None,
    ) -> None:
        super().__init__(graph, store, context, sources)
        self.thread, self.retriever = thread_name(thread), retriever
        self._actions = actions

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        for action in self._actions:
            action.close()

    def ask(self, question: str | None, view: TurnView | None = None) -> dict[str, Any]:
        """Run one turn. None, or the question of an interrupted turn, resumes that turn without repeating its model calls.

        Returns `answer`, `citations`, `chain`, `knowledge_set` and `usage`. If it raises, the thread stays as it was. The view
        asks for approvals; no lock is held while a person decides. Raises InputError if there is no turn to resume.
        """

        def see(mode: str, part: Any) -> None:
            if view is not None and mode == "custom":
                view.progress(part)
            elif view is not None and mode == "messages":
                view.token(part[0].text)

        given = None if question is None else {"question": question}
        output = self.run(self.turns.run(self.thread, given, see))
        while waiting := output.pop(INTERRUPT, ()):
            if view is None:
                raise InputError("the turn waits for approval: run it at a terminal, without --json")
            output = self.run(self.turns.run(self.thread, None, see, decisions=view.decide(waiting[0].value)))
        return output

    def unfinished(self) -> str:
        """The question of the interrupted turn if it can be resumed (it began with the same sources), else ""."""
        return self.turns.resumable(self.run(self.turns.snapshot(self.thread)))

    def rounds(self) -> list[Round]:
        return rounds_of(self._values())

    def last(self) -> dict[str, Any]:
        """The output of the last turn that was answered; empty before the first."""
        values = self._values()
        return {name: values[name] for name in OUTPUT_FIELDS if name in values}

    def export(self) -> dict[str, Any]:
        """The thread as an object for JSON, which `convcoa threads import` takes."""
        return thread_as_file(self.thread, self._values())

    def _values(self) -> Any:
        return self.run(self.turns.snapshot(self.thread)).values


def run_turn(session: Session, question: str | None, *, goes_on: bool = True) -> dict[str, Any]:
    """Run one turn and show it at the terminal. Without a question, resume the interrupted turn. `goes_on`: see `finish`."""
    out, err = consoles()
    if question is not None and (unfinished := session.unfinished()):
        same = unfinished == question.strip()
        said = "resuming the interrupted turn" if same else f'the interrupted turn "{one_line(unfinished, 80)}" is discarded'
        err.print(said, style="dim")
    with TurnView(out, err) as view:
        output = session.ask(question, view)
        view.finish(output, goes_on=goes_on)
    return output


class Basis:
    """The store, model, tables and web search that conversations over different documents share.

    All are opened here, so that their errors are raised before documents are encoded.
    """

    def __init__(self, options: ConversationOptions, where: str | Path | None) -> None:
        self.options, self.store = options, open_store(where)
        self.store.check()
        from langgraph_convcoa.context import ConvCoAContext

        self.model = self.search = None
        if options.model:
            from langgraph_convcoa.reasoning.models import load_chat_model

            self.model = load_chat_model(options.model, base_url=options.base_url)
        self.tables: list[BaseAction] = []
        self.actions: list[BaseAction] = []  # All actions of the graphs, to be closed at the end.
        if options.data:
            from langgraph_convcoa.actions.tables.action import DataAnalysis

            self.tables.append(DataAnalysis(options.data))
        if options.web:
            from langgraph_convcoa.actions.web.search import as_search, check_packages

            check_packages()
            self.search = as_search(options.search or "ddgs")
        self.context = ConvCoAContext(k=options.k, threshold=options.threshold, approve=options.approve or [])

    def graph(self, retriever: HopfieldRetriever | None) -> StateGraph[Any, Any, Any, Any]:
        """Build the graph over a retriever."""
        from langgraph_convcoa.graph import build_graph

        actions = [*self.tables]
        # An overview needs the list of all documents, which an engine does not have.
        if retriever is not None and retriever.corpus.complete:
            from langgraph_convcoa.actions.overview import Overview

            actions.append(Overview(retriever))
        if self.search is not None:
            from langgraph_convcoa.actions.web.action import WebQuerying

            pages = None if self.options.no_cache else cache_folder() / "web.sqlite"
            encoder = None if retriever is None else retriever.encoder
            # The web comes after the tables: without a model, a question that fits no description goes to the first action.
            actions.append(WebQuerying(self.search, encoder=encoder, cache=pages))
        # The address of the model server also applies to a model that the context of a run names.
        url = self.options.base_url
        self.actions += [action for action in actions if action not in self.actions]
        return build_graph(model=self.model, base_url=url, retriever=retriever, actions=actions, context=self.context)

    def fingerprint(self, docs: str) -> str:
        """A fingerprint of the sources. It is a hash, because it is kept in the store."""
        web = (self.options.search or "ddgs") if self.options.web else None
        named = json.dumps([docs, self.options.data or [], web], default=str).encode("utf-8", "surrogatepass")
        return hashlib.sha256(named).hexdigest()[:16]


def open_session(options: ConversationOptions, command: str) -> Session:
    """Open a session over documents, tables and the web. Without a model, answers are extracted from the evidence."""
    thread = "default" if options.thread is None else thread_name(options.thread)
    options.check(command)
    docs = documents_of(options.docs, named_index(options.docs, options.index))
    # A named thread is kept in the user's own store by default.
    basis = Basis(options, default_store() if options.thread is not None and options.store is None else options.store)
    retriever = open_documents(docs, options) if docs else None
    graph, sources = basis.graph(retriever), basis.fingerprint(place_of(docs))
    return Session(graph, basis.context, thread, basis.store, basis.actions, sources, retriever)


def open_documents(docs: str, options: ConversationOptions) -> HopfieldRetriever:
    """Open the documents or the index at a path, with a progress bar for the encoding."""
    cache = not options.no_cache
    retriever = open_retriever(docs, graph=options.graph, max_mb=options.max_mb, cache=cache, progress=True)
    # Load the encoder now: a wrong encoder raises an error before the first question, and the first look-up is fast.
    retriever.check_encoder()
    return retriever
