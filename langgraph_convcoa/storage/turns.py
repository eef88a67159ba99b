"""Turns of threads in an open store: run one at a time, resumed after a kill, pruned when they are finished."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_OID, uuid5

from langgraph_convcoa.errors import InputError, StoreError
from langgraph_convcoa.storage import FORMAT, TURN_WAIT_SECONDS, ConversationStore, later_format
from langgraph_convcoa.text.clean import clean

if TYPE_CHECKING:
    from langchain_core.messages import AnyMessage
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import CheckpointTuple
    from langgraph.graph.state import CompiledStateGraph
    from langgraph.types import StateSnapshot

    from langgraph_convcoa.context import ConvCoAContext
    from langgraph_convcoa.memory.knowledge_set import Round

# Fields of the graph's output.
OUTPUT_FIELDS = ("answer", "clarification", "citations", "unsupported", "chain", "knowledge_set", "usage")
INTERRUPT = "__interrupt__"  # The key of the output under which LangGraph puts interrupts.
SOURCES_KEY = "convcoa_sources"  # Metadata of every checkpoint: a fingerprint of documents, tables and web search.
_FORMAT_KEY = "convcoa_format"
_PARTS = ("channel_values", "channel_versions", "versions_seen")  # Parts that LangGraph expects in every checkpoint.
_NEXT = "branch:to:"  # Prefix of LangGraph's channel for a node that runs next.
_MODES = ("messages", "custom", "values")
_LOGGER = logging.getLogger(__name__)

See = Callable[[str, Any], None]  # A listener. It is called with the stream mode and the part, as LangGraph streams them.


def config_of(thread: str, sources: str = "") -> RunnableConfig:
    """The configuration of a thread's runs, with the format and the sources in the metadata."""
    return {"configurable": {"thread_id": thread}, "metadata": {_FORMAT_KEY: FORMAT, SOURCES_KEY: sources}}


def rounds_of(values: Mapping[str, Any]) -> list[Round]:
    """The rounds in a thread's state, oldest first."""
    from langgraph_convcoa.memory.knowledge_set import ContextualKnowledgeSet

    return ContextualKnowledgeSet.load(values.get("knowledge_set")).rounds


def _output_of(found: Round | None) -> dict[str, Any]:
    """The part of the graph's output that a round keeps. `usage` is empty."""
    from langgraph_convcoa.memory.knowledge_set import asks_back

    extra: Mapping[str, Any] = (found.get("convcoa") if found else None) or {}
    kept = {name: extra.get(name, []) for name in ("citations", "unsupported", "chain")}
    answer = found["answer"] if found else ""
    return {"answer": answer, "clarification": answer if found and asks_back(found) else "", **kept, "usage": {}}


def unfinished_question(snapshot: StateSnapshot) -> str:
    """The question of an interrupted turn, or ""."""
    values = snapshot.values
    if values.get("asked_message_id"):
        return str(values.get("asked") or "")
    if not snapshot.next:
        return ""
    # The turn was interrupted before `recall` had read the question.
    return question_of(values)


def before_last(snapshot: StateSnapshot) -> str:
    """The id of the state before the last turn, from which a run may fork; "" if the last turn is not finished.

    Only the last checkpoint is stored, so the state before the turn is computed when it is needed. The id is made from the id
    of the last message, so it stays the same if an answer is rated.
    """
    messages = snapshot.values.get("messages")
    if not messages or snapshot.next or unfinished_question(snapshot):
        return ""
    return str(uuid5(NAMESPACE_OID, f"before {messages[-1].id}"))


def without_last_turn(values: Mapping[str, Any]) -> dict[str, Any]:
    """The lasting state of a thread without its last turn and the evidence that the turn found."""
    from langgraph_convcoa.memory.knowledge_set import ContextualKnowledgeSet

    rounds, messages = rounds_of(values), [*values["messages"]]
    # Several messages in a row are one question.
    for asked in (False, True):
        while messages and (messages[-1].type == "human") == asked:
            messages.pop()
    number = rounds[-1]["round"] if rounds else 0
    return {
        **_output_of(rounds[-2] if len(rounds) > 1 else None),
        "knowledge_set": ContextualKnowledgeSet(rounds[:-1]).export(),
        "messages": messages,
        "evidence_memory": [entry for entry in values.get("evidence_memory") or () if entry["round"] != number],
    }


def question_of(given: Mapping[str, Any]) -> str:
    """The question in an input of the graph, or the user's last message."""
    if question := given.get("question"):
        return str(question)
    messages: Sequence[Any] = given.get("messages") or ()
    return str(messages[-1].text) if messages and messages[-1].type == "human" else ""


def _open_turn(stored: CheckpointTuple) -> bool:
    """True if a checkpoint may belong to a turn that is not finished."""
    values = stored.checkpoint["channel_values"]
    asked = values.get("asked_message_id") or any(name.startswith(_NEXT) for name in values)
    return bool(stored.pending_writes or asked or stored.metadata.get(_FORMAT_KEY) != FORMAT)


def _answered(stored: CheckpointTuple, given: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The values of the turn that answered the same message (id and text), or None."""
    from langgraph_convcoa.memory.knowledge_set import is_question_back

    asked, kept, place = _asked_before(stored, given)
    if place is None or (kept[place].type, kept[place].text) != ("human", asked.text):
        return None
    values, after = stored.checkpoint["channel_values"], kept[place + 1 :]
    if not _open_turn(stored) and all(message.type != "human" for message in after):
        return values
    if not after or after[0].type != "ai":
        return None
    question = clean(asked.text).strip()
    for one in reversed(rounds_of(values)):
        # Several messages in a row are one question.
        if one["answer"] == after[0].text and one["original_question"].endswith(question):
            return {**values, **_output_of(one)}
    # The round of a clarifying question is replaced by the next round.
    back = after[0].text if is_question_back(after[0]) else ""
    return {**values, **_output_of(None), "answer": back, "clarification": back} if back else None


def _asked_anew(stored: CheckpointTuple, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The input for an edited message. It puts the message last, and removes its old version and old answers."""
    # LangGraph would replace the old message in its place, before the old answer, and no question would come last.
    _, kept, place = _asked_before(stored, given)
    if place is None or all(message.type == "human" for message in kept[place:]):
        return given
    from langchain_core.messages import RemoveMessage
    from langgraph.graph.message import REMOVE_ALL_MESSAGES

    end = next((n for n, message in enumerate(kept) if n > place and message.type == "human"), len(kept))
    again = {message.id for message in given["messages"]}
    left = [message for message in (*kept[:place], *kept[end:]) if message.id not in again]
    return {**given, "messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *left, *given["messages"]]}


def _asked_before(stored: CheckpointTuple, given: Mapping[str, Any]) -> tuple[AnyMessage, Sequence[AnyMessage], int | None]:
    """The message with an input's question, the thread's messages, and the index of the thread's message of the same id."""
    from langchain_core.messages import HumanMessage

    messages, kept = given.get("messages") or (), stored.checkpoint["channel_values"].get("messages") or ()
    # If the input has a `question`, its messages are not read. A `question` has no id.
    asked = HumanMessage(question_of(given)) if given.get("question") or not messages else messages[-1]
    return asked, kept, next((n for n, message in enumerate(kept) if message.id and message.id == asked.id), None)


class Turns:
    """Runs turns of a compiled graph's threads, on the event loop on which the store was opened.

    Every step of a turn is stored before the next step begins, so that a killed turn is resumed where it stopped.
    `sources` is a fingerprint of documents, tables and web search: a turn that began with other sources is not resumed.
    """

    def __init__(
        self,
        graph: CompiledStateGraph[Any, Any, Any, Any],
        store: ConversationStore,
        context: ConvCoAContext | None = None,
        sources: str = "",
    ) -> None:
        self.graph, self.store = graph, store
        self.saver: Any = graph.checkpointer
        self._context, self._sources = context, sources

    async def snapshot(self, thread: str) -> StateSnapshot:
        """A thread's state. Raises StoreError if it is damaged, or written by a later release."""
        with self._readable(thread):
            snapshot = await self.graph.aget_state(config_of(thread))
        version = (snapshot.metadata or {}).get(_FORMAT_KEY, FORMAT)
        if isinstance(version, int) and version > FORMAT:
            raise StoreError(later_format(f"the thread {thread!r} of {self.store.label}", version))
        return snapshot

    def resumable(self, snapshot: StateSnapshot) -> str:
        """The question of the interrupted turn if it can be resumed (it began with the same sources), else ""."""
        return unfinished_question(snapshot) if (snapshot.metadata or {}).get(SOURCES_KEY, "") == self._sources else ""

    async def run(
        self,
        thread: str,
        given: Mapping[str, Any] | None,  # The graph's input. None, or the question of an interrupted turn, resumes that turn.
        see: See | None = None,
        *,
        decisions: Any = None,  # Decisions that resume a turn that waits for approval.
        context: ConvCoAContext | None = None,  # Settings in place of those of this object.
        user: str | None = None,  # The authenticated user of a server.
        modes: Sequence[str] = _MODES,  # The stream modes for the listener.
        wait: float = TURN_WAIT_SECONDS,  # Seconds to wait for another program's turn of the thread; then ThreadBusyError.
        begun: Callable[[], None] = lambda: None,  # Called when the turn has the thread's lock.
        before: str = "",  # The id from `before_last`: the new turn replaces the last turn.
    ) -> dict[str, Any]:
        """Run one turn, or resume an interrupted one without repeating stored model calls.

        A message with an id may be sent again: its turn is resumed, or its answer is returned again. If its text differs, it
        is a new question: the old message and its answer are removed from the messages. The knowledge set keeps the old round.

        With `before` and without an input, the last question is asked again. If the new turn fails or is stopped, the old turn
        is kept.

        Returns `OUTPUT_FIELDS`, and under `__interrupt__` the interrupts if the turn waits. Raises InputError if there is no
        interrupted turn to resume. After any error, the finished rounds are unchanged.
        """
        config = config_of(thread, self._sources)
        if user is not None:
            config["configurable"]["langgraph_auth_user_id"] = user
        streamed = partial(self._streamed, config=config, see=see, context=context, modes=modes)
        question = None if given is None else question_of(given)
        async with self.store.turn(thread, wait):
            begun()
            try:
                if before:
                    return await self._replaced(thread, given, before, config, streamed)
                unfinished = ""
                answered: Mapping[str, Any] | None = None
                stored = await self._stored(thread)
                # The whole state is read only if there may be a turn to resume: reading it takes time in long conversations.
                if stored is not None and (start := stored.checkpoint["channel_values"].get("__start__")) is not None:
                    # The turn was killed before its first step. Its snapshot looks finished if that step's result is stored.
                    unfinished = question_of(start) if stored.metadata.get(SOURCES_KEY, "") == self._sources else ""
                elif stored is not None and _open_turn(stored):
                    settled = await self._settled(thread, config)
                    if settled is not None:
                        stored = await self._stored(thread)
                    if stored is not None and settled is not None and settled == question:
                        answered = stored.checkpoint["channel_values"]
                    else:
                        unfinished = self.resumable(await self.snapshot(thread))
                if answered is None and stored is not None and given is not None:
                    answered = _answered(stored, given)
                if answered is not None:
                    if see is not None and "values" in modes:
                        see("values", answered)
                    return {name: answered[name] for name in OUTPUT_FIELDS if name in answered}
                if question is None and not unfinished:
                    raise InputError("there is no interrupted turn to resume: ask a question")
                again = unfinished and question in (None, unfinished)
                taken: Any = None if again else given
                if taken and stored is not None:
                    taken = _asked_anew(stored, taken)
                if decisions is not None:
                    from langgraph.types import Command

                    taken = Command(resume=decisions)
                output = await streamed(taken)
                if INTERRUPT not in output:
                    await self._prune(thread)
            except asyncio.CancelledError:
                await self.store.settle(self.saver)
                raise
            return output

    async def head(self, thread: str) -> str:
        """The id of the thread's last checkpoint; "" if it has none."""
        stored = await self._stored(thread)
        return "" if stored is None else str(stored.config["configurable"].get("checkpoint_id", ""))

    async def _replaced(
        self,
        thread: str,
        given: Mapping[str, Any] | None,
        before: str,
        config: RunnableConfig,
        streamed: Callable[[Any], Awaitable[dict[str, Any]]],
    ) -> dict[str, Any]:
        """Run a turn from the state before the last turn."""
        from langchain_core.messages import RemoveMessage
        from langgraph.graph.message import REMOVE_ALL_MESSAGES

        snapshot = await self.snapshot(thread)
        if before_last(snapshot) != before:
            raise InputError("the conversation has gone on since: only its last question can be asked again")
        left = without_last_turn(snapshot.values)
        if not given:
            asked = [message for message in snapshot.values["messages"] if message.type == "human"]
            given = {"question": asked[-1].text}
        last: RunnableConfig = {**config, "configurable": {**config["configurable"], **snapshot.config["configurable"]}}
        update = {**left, "messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *left["messages"]]}
        await self.graph.aupdate_state(last, update, as_node="remember")
        try:
            output = await streamed(given)
        except BaseException:
            await self.store.settle(self.saver)
            # A copy of the old checkpoint becomes the thread's last checkpoint.
            await self.graph.aupdate_state(last, {}, as_node="remember")
            await self._prune(thread)
            raise
        if INTERRUPT not in output:
            await self._prune(thread)
        return output

    async def rate(self, thread: str, number: int, rating: str) -> None:
        """Store a person's rating of the answer of a round: "up", "down", or "" for no rating.

        Raises InputError if there is no such round or the last turn is not finished, ThreadBusyError if a turn runs.
        """
        from langgraph_convcoa.memory.knowledge_set import ContextualKnowledgeSet

        async with self.store.turn(thread, wait=0.5):
            snapshot = await self.snapshot(thread)
            if snapshot.next or unfinished_question(snapshot):
                raise InputError("the last question is not answered to the end: resume it first")
            knowledge = ContextualKnowledgeSet.load(snapshot.values.get("knowledge_set"))
            knowledge.rate(number, rating)
            update = {"knowledge_set": knowledge.export()}
            await self.graph.aupdate_state(config_of(thread, self._sources), update, as_node="remember")
            await self._prune(thread)

    async def rounds(self, thread: str) -> list[Round]:
        """The rounds of a thread, oldest first; faster than `snapshot`."""
        stored = await self._stored(thread)
        return rounds_of(stored.checkpoint["channel_values"] if stored else {})

    async def _stored(self, thread: str) -> CheckpointTuple | None:
        """A thread's last checkpoint; faster than `snapshot`."""
        with self._readable(thread):
            found: CheckpointTuple | None = await self.saver.aget_tuple(config_of(thread))
            if found is not None:
                for part in _PARTS:
                    if not isinstance(found.checkpoint.get(part), Mapping):
                        raise KeyError(part)
            return found

    async def _settled(self, thread: str, config: RunnableConfig) -> str | None:
        """Store the last checkpoint of an answered turn if a kill prevented it. Returns the turn's question, or None."""
        # The turn is answered, but LangGraph would drop its last step when a new input comes.
        snapshot = await self.snapshot(thread)
        stored = await self.saver.aget_tuple(config)
        if snapshot.next or unfinished_question(snapshot) or stored is None or not stored.pending_writes:
            return None
        await self._streamed(None, config)
        await self._prune(thread)
        return str(snapshot.values.get("asked") or "")

    async def _streamed(
        self,
        given: Any,
        config: RunnableConfig,
        see: See | None = None,
        context: ConvCoAContext | None = None,
        modes: Sequence[str] = _MODES,
    ) -> dict[str, Any]:
        output: Mapping[str, Any] = {}
        # LangGraph's types assume one mode. With a list of modes, the items are pairs of mode and part.
        kinds: Any = list(modes)
        stream: Any = self.graph.astream(given, config, context=context or self._context, stream_mode=kinds, durability="sync")
        # If the turn is cancelled, the stream is closed at once, not at garbage collection.
        async with aclosing(stream) as parts:
            async for mode, part in parts:
                if mode == "values":
                    output = part
                if see is not None:
                    see(mode, part)
        return {name: output[name] for name in (*OUTPUT_FIELDS, INTERRUPT) if name in output}

    async def _prune(self, thread: str) -> None:
        try:
            await self.store.prune(self.saver, thread)
        except Exception as error:
            # The turn is stored; the next one prunes again.
            if self.store.error(error) is None:
                raise
            _LOGGER.debug("The thread %r was not pruned: %s", thread, type(error).__name__)

    @contextmanager
    def _readable(self, thread: str) -> Iterator[None]:
        """Report an error as a damaged thread, unless it is an error of the store's driver."""
        try:
            yield
        except Exception as error:
            if self.store.error(error) is not None:
                raise
            raise StoreError(
                f"the thread {thread!r} of {self.store.label} is damaged ({type(error).__name__}): "
                "import it from an export, or delete it; other threads are not affected"
            ) from error
