"""The work of the server for its users: threads, runs and collections over one open store."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from langgraph.graph import StateGraph
from langgraph.types import StateSnapshot

from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.errors import ConvCoAError, InputError, StoreError, ThreadBusyError
from langgraph_convcoa.memory.sharing import aforget_thread
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.server.collections import Collection, Collections
from langgraph_convcoa.server.runs import GRAPH, Run, RunRequest, Runs, now
from langgraph_convcoa.server.thread_book import MOST_THREADS, ThreadBook, checked_id, checked_metadata, key_of
from langgraph_convcoa.server.uploads import Jobs
from langgraph_convcoa.storage import TURN_WAIT_SECONDS, ConversationStore
from langgraph_convcoa.storage.turns import INTERRUPT, OUTPUT_FIELDS, Turns, before_last, question_of, rounds_of

MOST_RUNS = 200  # Maximum number of runs at the same time, over all users. A further run is refused.
_TURN_THREADS, _OWN_THREADS = 2 * MOST_RUNS, 16
"""Threads for turns (a synchronous model, action or retriever occupies one while it works), and for the server itself."""
_REFUSE_SECONDS = 0.5  # A question waits this long while another server runs a turn of its thread; then it is refused.
_TITLE_CHARACTERS = 80
MOST_SEARCHED, _MOST_FOUND, _SEARCH_SECONDS, _MOST_WORDS = 1_000, 50, 3.0, 20
"""Limits of a search: conversations read (the newest), conversations found, seconds, and words."""
_EXCERPT = 80  # Characters before and after the word that was found.
VALUES = (*OUTPUT_FIELDS, "messages")
_LOGGER = logging.getLogger(__name__)
Result = TypeVar("Result")


class Missing(ConvCoAError):
    """The thread, run, collection or document does not exist, or belongs to another user."""


class Busy(ConvCoAError):
    """The server or the thread is in use, or the name of the thread is taken."""


@dataclass
class Settings:
    """Settings of a server. `make_graph` builds the graph over a retriever, or without documents."""

    store: ConversationStore
    make_graph: Callable[[HopfieldRetriever | None], StateGraph[Any, Any, Any, Any]]
    context: ConvCoAContext
    folder: Path  # The folder of the collections that users make.
    new_retriever: Callable[[Path], HopfieldRetriever]  # Opens the index in a folder, or makes an empty one.
    collections: list[Collection] = field(default_factory=list)  # The collections of the command line.
    sources: str = ""  # A fingerprint of the tables and the web search.
    models: Sequence[str] = ()  # The models that a run may choose, the default first; empty without a model.
    actions: Sequence[str] = ()  # The names of the actions, for the page.


class Service:
    """Threads, runs and collections of all users; open within `async with`."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.store = settings, settings.store
        self.runs = Runs()
        self.jobs = Jobs(settings.folder / "uploads")
        self._open = AsyncExitStack()
        self._compiling = threading.Lock()

    async def __aenter__(self) -> Service:
        # LangChain runs synchronous code in the loop's threads. The server has others, which a slow model cannot occupy.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_TURN_THREADS, "convcoa turns"))
        self._threads = self._open.enter_context(ThreadPoolExecutor(_OWN_THREADS, "convcoa server"))
        self._open.enter_context(self.jobs)
        self._saver = await self._open.enter_async_context(self.store.opened())
        self.book = ThreadBook(await self._open.enter_async_context(self.store.book()), self.store.entry)
        given = self.settings
        self._shared = None
        if given.context.share_knowledge:
            self._shared = await self._open.enter_async_context(self.store.shared())
        self.collections = Collections(given.collections, given.folder, given.new_retriever, given.sources)
        # Graphs are compiled now, so that the first question does not wait for this.
        for collection in given.collections:
            self._turns_over(collection)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.runs.close()
        await self._open.aclose()

    async def threaded(self, function: Callable[..., Result], *given: Any) -> Result:
        """Call a function in one of the server's own threads, since it reads files or a database."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(function, *given))

    async def create(self, user: str, thread: str | None, metadata: Any, if_exists: str = "raise") -> dict[str, Any]:
        """Make a thread. Raises Busy if it exists; with `if_exists="do_nothing"`, return that thread."""
        given = checked_metadata(metadata)
        name = checked_id(str(uuid.uuid4()) if thread is None else thread)
        if (entry := await self.book.get(user, name)) is None:
            if len(await self.book.all(user)) >= MOST_THREADS:
                raise InputError(f"there are {MOST_THREADS:,} conversations already: delete some first")
            collection = await self.collection(user, str(given.get("collection") or GRAPH))
            known = {"graph_id": GRAPH, "assistant_id": collection.id, "collection": collection.id}
            async with self.book.changing(user, name):
                # Another server may have made it meanwhile.
                if (entry := await self.book.get(user, name)) is None:
                    return await self.book.create(user, name, {**known, **given, "collection": collection.id})
        if if_exists != "do_nothing":
            raise Busy(f"there is a thread {name!r} already")
        return entry

    async def entry(self, user: str, thread: str) -> dict[str, Any]:
        """The entry of a user's thread. Raises Missing if there is none."""
        found = await self.book.get(user, thread)
        if found is None:
            raise Missing(f"there is no conversation {thread[:100]!r}: it was deleted, or never begun")
        return (await self._told_busy(user, [found]))[0]

    async def entries(self, user: str) -> list[dict[str, Any]]:
        """The entries of a user's threads, newest first."""
        return await self._told_busy(user, await self.book.all(user))

    async def _told_busy(self, user: str, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Correct the status of entries: a thread is interrupted if the server of its turn was killed."""
        busy = {key_of(user, str(entry["thread_id"])): entry for entry in entries if entry["status"] == "busy"}
        elsewhere = busy.keys() - self.runs.active.keys()
        for key in elsewhere - await self.store.taken(elsewhere):
            busy[key]["status"] = "interrupted"
        return entries

    async def search(self, user: str, text: str) -> dict[str, Any]:
        """The user's threads whose title, questions and answers have all words of a text, newest first, with an excerpt.

        `complete` is False if not all of the user's threads were searched.
        """
        words = [re.compile(re.escape(word), re.IGNORECASE) for word in text.split()[:_MOST_WORDS]]
        entries, found, searched = await self.entries(user), list[dict[str, Any]](), 0
        turns, end = await self.turns_of(user, {"metadata": {}}), time.monotonic() + _SEARCH_SECONDS
        for entry in entries[:MOST_SEARCHED] if words else []:
            if len(found) == _MOST_FOUND or time.monotonic() > end:
                break
            searched += 1
            rounds = list[Any]()
            # A damaged thread must not hide the others.
            with suppress(StoreError, InputError):
                rounds = await turns.rounds(key_of(user, str(entry["thread_id"])))
            said = "\n".join(f"{one['original_question']}\n{one['answer']}" for one in rounds)
            title = str(entry["metadata"].get("title") or "")
            if all(word.search(said) or word.search(title) for word in words):
                place = next((match.start() for word in words if (match := word.search(said))), 0)
                found.append({**entry, "excerpt": said[max(0, place - _EXCERPT) : place + _EXCERPT]})
        return {"threads": found, "complete": not words or searched == len(entries)}

    async def rate(self, user: str, thread: str, number: int, rating: str) -> None:
        """Store the user's rating of an answer."""
        entry = await self.entry(user, thread)
        _, turns = await self.snapshot(user, entry)
        try:
            await turns.rate(key_of(user, thread), number, rating)
        except ThreadBusyError as error:
            raise Busy("this conversation is answering a question: rate the answer when it is done") from error

    async def update(self, user: str, thread: str, metadata: Any) -> dict[str, Any]:
        """Change a thread's metadata. Its collection cannot be changed."""
        given = checked_metadata(metadata)
        # The entry is locked: if a turn ended between reading and writing, its thread would stay "busy".
        async with self.book.changing(user, thread):
            entry = await self.entry(user, thread)
            if given.get("collection", entry["metadata"].get("collection")) != entry["metadata"].get("collection"):
                raise InputError("a conversation stays with its collection: begin another one for other documents")
            entry["metadata"] = checked_metadata({**entry["metadata"], **given})
            await self.book.put(user, entry)
        return entry

    async def delete(self, user: str, thread: str) -> None:
        """Delete a thread and the rounds that it shared. Its running turn is stopped first."""
        await self.entry(user, thread)
        key = key_of(user, thread)
        await self.runs.stop(key)
        async with self.book.changing(user, thread):
            await self.book.delete(user, thread)
        await self._erase(key)

    async def _erase(self, key: str) -> None:
        async with self.store.turn(key, wait=5.0):
            if self._shared is not None:
                await aforget_thread(self._shared, key)
            await self.store.erase(self._saver, key)

    async def collection(self, user: str, name: str) -> Collection:
        """The collection of this id, if the user may ask it; "convcoa" names the first collection."""
        if name == GRAPH:
            return (await self.threaded(self.collections.of, user))[0]
        found = await self.threaded(self.collections.find, user, name)
        if found is None:
            raise Missing(f"there is no collection {name[:100]!r}: it was deleted, or is not served any more")
        return found

    def _turns_over(self, collection: Collection) -> Turns:
        """The turns of a collection's conversations. The graph is compiled once."""
        with self._compiling:
            if collection.turns is None:
                graph = self.settings.make_graph(collection.retriever).compile(checkpointer=self._saver, store=self._shared)
                collection.turns = Turns(graph, self.store, self.settings.context, collection.sources)
            return collection.turns

    async def turns_of(self, user: str, entry: Mapping[str, Any], assistant: str = GRAPH) -> Turns:
        """The turns of a thread, over its collection."""
        collection = await self.collection(user, str(entry["metadata"].get("collection") or assistant))
        return await self.threaded(self._turns_over, collection)

    async def snapshot(self, user: str, entry: Mapping[str, Any]) -> tuple[StateSnapshot, Turns]:
        """A thread's state, also if its collection was deleted."""
        try:
            turns = await self.turns_of(user, entry)
        except Missing:
            turns = await self.turns_of(user, {"metadata": {}})
        return await turns.snapshot(key_of(user, str(entry["thread_id"]))), turns

    async def start(self, user: str, thread: str | None, request: RunRequest) -> Run:
        """Start a run. A run without a thread gets a thread that is deleted when the run ends."""
        if len(self.runs.active) >= MOST_RUNS:
            raise Busy(f"{MOST_RUNS} questions are being answered at the moment: try again in a while")
        if thread is None:
            entry: dict[str, Any] = {"thread_id": f"run-{uuid.uuid4()}", "metadata": {}}
        else:
            try:
                entry = await self.entry(user, thread)
            except Missing:
                if not request.create:
                    raise
                entry = await self.create(user, thread, {"collection": request.assistant}, "do_nothing")
        turns = await self.turns_of(user, entry, request.assistant)
        key = key_of(user, str(entry["thread_id"]))
        context = request.context(self.settings.context, self.settings.models)
        while (running := self.runs.active.get(key)) is not None:
            if request.strategy == "reject":
                raise Busy("this conversation is answering a question: wait for the answer, or stop it")
            if request.strategy == "enqueue" and running.task is not None:
                await asyncio.wait([running.task])
            else:
                await self.runs.stop(key)
            entry = entry if thread is None else await self.entry(user, thread)
        question = question_of(request.given) if request.given else ""
        run = Run(str(entry["thread_id"]), request.assistant, question, request.strategy)

        async def work(run: Run) -> Mapping[str, Any]:
            with self.store.errors():
                return await self._turn(user, key, entry, turns, context, request, run)

        self.runs.start(key, run, work)
        await run.begun.wait()
        if run.refused is not None:
            raise Busy(
                "this conversation is answering a question on another server: wait for the answer, then ask again"
            ) from run.refused
        return run

    async def _turn(
        self, user: str, key: str, entry: dict[str, Any], turns: Turns, context: ConvCoAContext, request: RunRequest, run: Run
    ) -> Mapping[str, Any]:
        kept = "status" in entry  # The entry of a run without a thread has no status, and is not stored.
        # LangGraph's clients send the thread's last checkpoint with each question. Only an earlier checkpoint replaces a turn.
        before = request.before if request.before and request.before != await turns.head(key) else ""
        # If the last turn cannot be replaced, the thread keeps its status.
        kept_status = str(entry.get("status", "")) if before else ""
        status, output = kept_status or "error", dict[str, Any]()
        modes = ["messages", "custom", "values", *(["updates"] if "updates" in request.modes else [])]
        if run.question and not entry["metadata"].get("title"):
            entry["metadata"]["title"] = " ".join(run.question.split())[:_TITLE_CHARACTERS]
        entry["question"] = entry.get("question") or run.question
        noting: list[asyncio.Task[bool]] = []

        def begun() -> None:
            run.begun.set()
            if kept:
                # The status is stored in the background, so that the turn does not wait for it.
                noting.append(asyncio.create_task(self._note(user, entry, "busy")))

        try:
            output = await turns.run(
                key,
                request.given,
                _seen(run, request.modes),
                decisions=request.decisions,
                context=context,
                user=user or None,
                modes=modes,
                wait=TURN_WAIT_SECONDS if request.strategy == "enqueue" else _REFUSE_SECONDS,
                begun=begun,
                before=before,
            )
            status = "interrupted" if INTERRUPT in output else "idle"
            if before and len(rounds_of(output)) == 1:
                entry["question"] = run.question
        except asyncio.CancelledError:
            status = kept_status or "interrupted"
            raise
        except ThreadBusyError as error:
            run.refused = error
            raise
        finally:
            if noting:
                await asyncio.wait(noting)
                try:
                    if not await self._note(user, entry, status):
                        # The thread was deleted when the turn began.
                        await self._erase(key)
                    noting[0].result()
                except ThreadBusyError as error:
                    # The answer of the turn is stored nevertheless.
                    _LOGGER.warning("The status of the thread %s was not kept: %s", entry["thread_id"], error)
            elif not kept:
                with suppress(StoreError), self.store.errors():
                    await self._erase(key)
        return output

    async def _note(self, user: str, entry: dict[str, Any], status: str) -> bool:
        """Store the status of a thread, which may have been renamed meanwhile. Returns False if it was deleted."""
        thread = str(entry["thread_id"])
        async with self.book.changing(user, thread):
            known = await self.book.get(user, thread)
            if known is not None:
                metadata = {**entry["metadata"], **known["metadata"]}
                if not known["metadata"].get("title"):
                    metadata["title"] = entry["metadata"].get("title", "")
                question = entry.get("question") or known.get("question", "")
                changed = {"metadata": metadata, "status": status, "updated_at": now(), "question": question}
                await self.book.put(user, {**known, **changed})
        return known is not None

    def status(self, user: str, entry: Mapping[str, Any]) -> str:
        return "busy" if key_of(user, str(entry["thread_id"])) in self.runs.active else str(entry["status"])

    async def conversation(self, user: str, thread: str, last: int) -> dict[str, Any]:
        """A thread with its last rounds, as the page shows it."""
        entry = await self.entry(user, thread)
        snapshot, turns = await self.snapshot(user, entry)
        run = self.runs.active.get(key_of(user, thread))
        rounds = list[dict[str, Any]]()
        for found in rounds_of(snapshot.values)[-last:] if last else []:
            extra: Mapping[str, Any] = found.get("convcoa") or {}
            said = {"number": found["round"], "question": found["original_question"], "answer": found["answer"], "usage": {}}
            lists = {name: extra.get(name, []) for name in ("citations", "unsupported", "chain", "evidence")}
            rounds.append({**said, **lists, **{name: extra.get(name, "") for name in ("rating", "time")}})
        if rounds:
            rounds[-1]["usage"] = snapshot.values.get("usage") or {}
        waiting = [interrupt.value for task in snapshot.tasks for interrupt in task.interrupts]
        return {
            "thread_id": thread,
            "title": entry["metadata"].get("title", ""),
            "collection": entry["metadata"].get("collection", ""),
            "status": self.status(user, entry),
            "run_id": None if run is None else run.id,
            "before": before_last(snapshot) if run is None else "",
            "unfinished": (run.question if run else "") or turns.resumable(snapshot),
            "waiting": waiting[0] if waiting and run is None else None,
            "rounds": rounds,
        }


def _seen(run: Run, modes: frozenset[str]) -> Callable[[str, Any], None]:
    """A function that publishes a turn's stream as events of its run."""
    last: dict[str, Any] = {}

    def see(mode: str, part: Any) -> None:
        nonlocal last
        if mode not in modes:
            return
        if mode == "messages":
            chunk, about = part
            if chunk.type in ("ai", "AIMessageChunk") and chunk.text:
                metadata = {"langgraph_node": about.get("langgraph_node"), "run_id": run.id, "thread_id": run.thread}
                run.publish("messages", [chunk, metadata])
        elif mode == "values":
            values = {name: part[name] for name in (*VALUES, INTERRUPT) if name in part}
            # Most steps do not change the output. It grows with the conversation, so it is sent only after a change.
            if values.keys() != last.keys() or any(value is not last[name] for name, value in values.items()):
                last = values
                run.publish("values", values)
        else:
            run.publish(mode, part)

    return see
