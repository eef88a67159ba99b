"""The threads of a conversation store: listed, shown, exported as JSON or Markdown, imported and deleted."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, get_type_hints

from langgraph_convcoa.errors import InputError, StoreError
from langgraph_convcoa.storage import FORMAT, ConversationStore, later_format, open_store, storable, thread_name
from langgraph_convcoa.storage.turns import Turns, config_of, rounds_of, unfinished_question
from langgraph_convcoa.text.clean import clean_value, flat, json_text, printable

if TYPE_CHECKING:
    from langgraph.graph import StateGraph
    from langgraph.types import StateSnapshot
    from pydantic import TypeAdapter

    from langgraph_convcoa.context import ConvCoAContext
    from langgraph_convcoa.memory.knowledge_set import Round

KIND = "langgraph_convcoa thread"
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

        # This graph is never run. It reads and writes the threads of any graph, whatever its actions.
        super().__init__(build_graph(retriever=RunnableLambda(lambda _: [])), store)

    def summaries(self) -> list[ThreadSummary]:
        """All threads, newest first."""
        return self.run(self._summaries())

    async def _summaries(self) -> list[ThreadSummary]:
        try:
            # Newest first. In a store that was never pruned, a thread has several checkpoints.
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


@cache
def lasting_fields() -> dict[str, TypeAdapter[Any]]:
    """The fields of the state that outlast a turn, with their types."""
    from pydantic import TypeAdapter

    from langgraph_convcoa.state import ThreadState

    # `include_extras` keeps the annotation that selects the type of a message.
    return {name: TypeAdapter(hint) for name, hint in get_type_hints(ThreadState, include_extras=True).items()}


def thread_as_file(thread: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a thread's state as an object for JSON. Only `lasting_fields` are exported."""
    state = {
        name: adapter.dump_python(values[name], mode="json", warnings=False)
        for name, adapter in lasting_fields().items()
        if name in values
    }
    exported = datetime.now(UTC).isoformat(timespec="seconds")
    return {"kind": KIND, "format": FORMAT, "thread": thread, "exported": exported, "state": state}


def file_as_values(data: Any) -> dict[str, Any]:
    """The state that a file's object holds, for `graph.update_state(config, values, as_node="remember")`.

    The JSON of a contextual knowledge set alone is also accepted. Its rounds become the messages.
    """
    from langgraph_convcoa.memory.knowledge_set import ROOT, ContextualKnowledgeSet

    data = clean_value(data)
    if isinstance(data, dict) and ROOT in data:
        return _from_knowledge_set(data)
    if not isinstance(data, dict) or data.get("kind") != KIND or not isinstance(data.get("state"), dict):
        raise InputError("this is no exported thread: give a file that `convcoa threads export` wrote")
    if not isinstance(data.get("format"), int) or data["format"] > FORMAT:
        raise InputError(later_format("the thread", data.get("format")))
    values: dict[str, Any] = {}
    for name, adapter in lasting_fields().items():
        if name in data["state"]:
            try:
                values[name] = adapter.validate_python(data["state"][name])
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise InputError(f"the exported thread is damaged in {name!r}: export it again") from error
    ContextualKnowledgeSet.load(values.get("knowledge_set"))
    return _kept(values)


def _from_knowledge_set(data: dict[str, Any]) -> dict[str, Any]:
    from pydantic import ValidationError

    from langgraph_convcoa.memory.knowledge_set import ContextualKnowledgeSet

    adapters = lasting_fields()
    knowledge = ContextualKnowledgeSet.load(data)
    try:
        exported = adapters["knowledge_set"].validate_python(knowledge.export())
    except ValidationError as error:
        wrong = error.errors()[0]["loc"][-1]
        raise InputError(f"the contextual knowledge set is damaged: a round's {wrong!r} is missing or wrong") from error
    turns = list[dict[str, str]]()
    for number, entry in enumerate(knowledge.rounds, start=1):
        turns.append({"type": "human", "content": entry["original_question"], "id": f"round-{number}-question"})
        turns.append({"type": "ai", "content": entry["answer"], "id": f"round-{number}-answer"})
    return _kept({"knowledge_set": exported, "messages": adapters["messages"].validate_python(turns)})


def _kept(values: dict[str, Any]) -> dict[str, Any]:
    """Check that a store can hold the values: no number beyond 64 bits, no nesting that is too deep."""
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    try:
        JsonPlusSerializer().dumps_typed(values)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise InputError("the exported thread holds a number or text that no store can hold: export it again") from error
    return values


def read_thread_file(path: Path) -> Any:
    """Read the JSON of an exported thread, for `file_as_values`. Only the syntax is checked."""
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"{path} cannot be opened ({error.strerror}): give another file") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is no exported thread: give a file that `convcoa threads export` wrote") from error


def write_thread_file(data: Mapping[str, Any], path: Path) -> None:
    """Write an exported thread: as Markdown if the file's name ends in .md, otherwise as JSON."""
    text = thread_as_markdown(data) if path.suffix == ".md" else json_text(data, indent=2) + "\n"
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"{path} is there already: give another file") from None
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}): give another file") from error


def file_name(thread: str) -> str:
    """The file name for a thread. It never leads to another folder.

    Example:
        >>> file_name("../../etc/passwd")
        'etc-passwd.json'
    """
    plain = re.sub(r"[^\w.-]+", "-", thread).strip(".-")
    return f"{plain or 'thread'}.json"


def thread_as_markdown(data: Mapping[str, Any]) -> str:
    """An exported thread for reading: questions as headings, answers, and their citations."""
    from langgraph_convcoa.memory.knowledge_set import ContextualKnowledgeSet

    knowledge = ContextualKnowledgeSet.load(data["state"].get("knowledge_set"))
    parts = [f"# {flat(str(data['thread']))}"]
    for entry in knowledge.rounds:
        parts += [f"## {flat(entry['original_question'])}", entry["answer"].strip()]
        extra: Mapping[str, Any] = entry.get("convcoa") or {}
        cited = [(c.get("source") or c.get("id") or "", c.get("quote") or "") for c in extra.get("citations") or ()]
        lines = [flat(f"- [{n}] {source}: {quote}") for n, (source, quote) in enumerate(cited, start=1)]
        parts += ["\n".join(lines)] if lines else []
        parts += [f"Rated: {flat(str(extra['rating']))}"] if extra.get("rating") else []
    return printable("\n\n".join(parts)) + "\n"
