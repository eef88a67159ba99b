"""Runs: turns that continue without a listener, their requests, and their events, in the wire format of LangGraph's server."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
import uuid
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from pydantic import BaseModel, ValidationError

from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.errors import ConvCoAError, InputError, ThreadBusyError
from langgraph_convcoa.text.clean import clean

PING_SECONDS = 15.0  # Seconds without an event after which a comment is sent, so that proxies keep the connection open.
_MOST_BYTES = 8_000_000  # Maximum number of bytes of the events of one run. The oldest events are dropped.
_KEPT_BYTES, _KEPT_RUNS = 16_000_000, 200  # Most bytes and most ended runs that are kept.
GRAPH = "convcoa"  # The name of the graph, and of the assistant for the first collection.
MODES = {"values": "values", "messages": "messages", "messages-tuple": "messages", "custom": "custom", "updates": "updates"}
"""Stream modes of a client -> stream modes of the graph. Other modes are ignored."""
SETTINGS = ("model", "k", "threshold", "language", "recall_answers", "max_sub_questions", "max_corrections", "approve")
"""Settings of a run that a client may set. The server decides which models, limits and shared knowledge there are."""
_STRATEGIES = ("reject", "interrupt", "rollback", "enqueue")
_ROLES = {"human": "human", "user": "human", "ai": "ai", "assistant": "ai"}
_LOGGER = logging.getLogger(__name__)


def now() -> str:
    """The time as LangGraph's server writes it."""
    return datetime.now(UTC).isoformat()


def to_json(value: Any) -> bytes:
    """A value as ASCII JSON; messages, documents and interrupts as objects of their fields."""
    try:
        return json.dumps(value, default=_plain, allow_nan=False, separators=(",", ":")).encode("ascii")
    except ValueError:
        loose = json.dumps(value, default=_plain, separators=(",", ":"))
        return to_json(json.loads(loose, parse_constant=lambda _: None))


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump()
    if hasattr(value, "value") and hasattr(value, "id"):
        return {"value": value.value, "id": value.id}
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    return str(value)


def event(name: str, data: bytes, number: int) -> bytes:
    """A server-sent event with its number."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (number, name.encode("ascii"), data)


@dataclass(frozen=True)
class RunRequest:
    """A run that a client asks for.

    `given` is the graph's input, None to resume a turn. `decisions` resume a turn that waits for approval. If the run replaces
    the last turn, `before` is the id of the state before that turn.
    """

    given: dict[str, Any] | None = None
    decisions: Any = None
    modes: frozenset[str] = frozenset({"values"})
    assistant: str = GRAPH
    strategy: str = "reject"
    cancel_on_disconnect: bool = False
    create: bool = False
    before: str = ""
    settings: dict[str, Any] = field(default_factory=dict)

    def context(self, own: ConvCoAContext, models: Sequence[str] = ()) -> ConvCoAContext:
        """The server's settings, with the run's settings applied. A run cannot remove the server's approvals."""
        if not self.settings:
            return own
        model = self.settings.get("model") or None
        if model is not None and model not in models:
            raise InputError(f"the model of a run must be one of the server's: {', '.join(models) or 'it has none'}")
        approve = [*dict.fromkeys((*own.approve, *self.settings.get("approve", ())))]
        # The first model is the graph's own, which is loaded already.
        chosen = {**self.settings, "approve": approve, "model": None if models and model == models[0] else model}
        try:
            return type(own).model_validate({**own.model_dump(), **chosen})
        except ValidationError as error:
            first = error.errors()[0]
            raise InputError(f"the setting {'.'.join(map(str, first['loc']))!r}: {first['msg']}") from None


def read_run(body: Mapping[str, Any]) -> RunRequest:
    """The request in the body of a run. Raises InputError if it cannot be used."""
    command = body.get("command") or {}
    if not isinstance(command, Mapping) or command.keys() - {"resume"}:
        raise InputError('the command of a run must be {"resume": ...}')
    decisions = command.get("resume")
    modes = body.get("stream_mode") or ["values"]
    wanted = [modes] if isinstance(modes, str) else modes
    if not isinstance(wanted, Sequence) or not all(isinstance(mode, str) for mode in wanted):
        raise InputError(f"stream_mode must be a list of {', '.join(MODES)}")
    strategy = body.get("multitask_strategy") or "reject"
    if strategy not in _STRATEGIES:
        raise InputError(f"multitask_strategy must be one of {', '.join(_STRATEGIES)}")
    settings = body.get("context") or {}
    if not isinstance(settings, Mapping):
        raise InputError("the context of a run must be an object of settings")
    if unknown := [str(name) for name in settings if name not in SETTINGS]:
        raise InputError(f"the setting {unknown[0]!r} is not one that a run may set: these are {', '.join(SETTINGS)}")
    approve = settings.get("approve", [])
    if not isinstance(approve, list) or not all(isinstance(name, str) for name in approve):
        raise InputError("the setting 'approve' must be a list of names")
    forked = body.get("checkpoint") or {}
    before = body.get("checkpoint_id") or (forked.get("checkpoint_id") if isinstance(forked, Mapping) else None)
    return RunRequest(
        given=None if decisions is not None else read_input(body.get("input")),
        decisions=decisions,
        modes=frozenset(MODES[mode] for mode in wanted if mode in MODES),
        assistant=str(body.get("assistant_id") or GRAPH),
        strategy=strategy,
        cancel_on_disconnect=body.get("on_disconnect") == "cancel",
        create=body.get("if_not_exists") == "create",
        before=str(before or "") if decisions is None else "",
        settings=dict(settings),
    )


def read_input(given: Any) -> dict[str, Any] | None:
    """The graph's input: a question or messages, or None to resume a turn. Raises InputError for anything else."""
    if given is None or given == {}:
        return None
    if isinstance(given, Mapping):
        if isinstance(question := given.get("question"), str) and question.strip():
            return {"question": clean(question)}
        if isinstance(messages := given.get("messages"), Mapping | str):
            messages = [messages]
        if isinstance(messages, list) and messages and len(messages) <= 1_000:
            read = [message for one in messages if (message := _message(one)) is not None]
            if read and read[-1].type == "human":
                return {"messages": read}
    raise InputError('the input must be {"question": "..."}, or {"messages": [...]} whose last one is the user\'s')


def _message(given: Any) -> BaseMessage | None:
    """A message with plain text; None for messages of tools, which are ignored."""
    if isinstance(given, str):
        return HumanMessage(clean(given))
    if not isinstance(given, Mapping):
        raise InputError("a message must be an object with a role and its content")
    role = str(given.get("role") or given.get("type"))
    if role not in _ROLES:
        return None
    content = given.get("content")
    if isinstance(content, list):
        content = "\n".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    if not isinstance(content, str):
        raise InputError("the content of a message must be text")
    kind = HumanMessage if _ROLES[role] == "human" else AIMessage
    identity = given.get("id")
    return kind(clean(content), id=clean(identity)[:200] if isinstance(identity, str) and identity else None)


class Run:
    """A turn that runs or has run, and its events."""

    def __init__(self, thread: str, assistant: str, question: str = "", strategy: str = "reject") -> None:
        self.id = str(uuid.uuid4())
        self.thread, self.assistant, self.question, self.strategy = thread, assistant, question, strategy
        self.created = self.updated = now()
        self.status = "pending"
        self.output: dict[str, Any] = {}
        self.task: asyncio.Task[None] | None = None
        self.begun = asyncio.Event()  # Set when the run has its thread's lock, or the lock was refused.
        self.refused: ThreadBusyError | None = None
        self.ended = False
        self.stopping = False
        self.size = 0
        self._events: deque[tuple[int, bytes]] = deque()
        self._count = 0
        self._news = asyncio.Event()

    def publish(self, name: str, data: Any) -> None:
        self._count += 1
        written = event(name, to_json(data), self._count)
        self._events.append((self._count, written))
        self.size += len(written)
        while self.size > _MOST_BYTES and len(self._events) > 1:
            self.size -= len(self._events.popleft()[1])
        news, self._news = self._news, asyncio.Event()
        news.set()

    def end(self) -> None:
        self.ended = True
        self.publish("end", {"run_id": self.id, "status": self.status})

    async def follow(self, after: int = 0) -> AsyncIterator[bytes]:
        """The events after this number, including events that are still to come, until the run ends."""
        while True:
            news = self._news
            # The events are copied first, since events are added and dropped while an event is sent.
            fresh = [*islice(reversed(self._events), max(self._count - after, 0))]
            for number, written in reversed(fresh):
                after = number
                yield written
            if fresh:
                continue
            if self.ended:
                return
            try:
                await asyncio.wait_for(news.wait(), PING_SECONDS)
            except TimeoutError:
                yield b": still running\n\n"

    def as_json(self) -> dict[str, Any]:
        """A run as LangGraph's server describes it."""
        return {
            "run_id": self.id,
            "thread_id": self.thread,
            "assistant_id": self.assistant,
            "created_at": self.created,
            "updated_at": self.updated,
            "status": self.status,
            "metadata": {},
            "multitask_strategy": self.strategy,
        }


class Runs:
    """The runs of a server, one at a time for each thread. Keys are the threads' names in the store."""

    def __init__(self) -> None:
        self.active: dict[str, Run] = {}
        self._ended: OrderedDict[str, tuple[str, Run]] = OrderedDict()
        self.cut_short = False  # True if a run was cancelled because the server ended.

    def start(self, key: str, run: Run, work: Callable[[Run], Awaitable[Mapping[str, Any]]]) -> None:
        """Start a run. Its thread must have no other active run."""
        assert key not in self.active, "a thread has one run at a time"
        self.active[key] = run
        run.task = asyncio.create_task(self._run(run, work))
        # A callback ends the run, since a task that is cancelled before its first step runs none of its code.
        run.task.add_done_callback(lambda _: self._end(key, run))

    async def _run(self, run: Run, work: Callable[[Run], Awaitable[Mapping[str, Any]]]) -> None:
        run.status = "running"
        run.publish("metadata", {"run_id": run.id, "thread_id": run.thread, "attempt": 1})
        try:
            run.output = dict(await work(run))
            run.status = "interrupted" if "__interrupt__" in run.output else "success"
        except asyncio.CancelledError:
            run.status = "interrupted"
        except Exception as error:  # noqa: BLE001 - sent to the listeners
            run.status = "error"
            run.publish("error", error_json(error))

    def _end(self, key: str, run: Run) -> None:
        if run.status in ("pending", "running"):
            run.status = "interrupted"
        run.updated = now()
        if self.active.get(key) is run:
            del self.active[key]
        if run.refused is None:
            self._ended[run.id] = (key, run)
            held = sum(one.size for _, one in self._ended.values())
            while len(self._ended) > 1 and (held > _KEPT_BYTES or len(self._ended) > _KEPT_RUNS):
                held -= self._ended.popitem(last=False)[1][1].size
        run.end()
        run.begun.set()

    def of(self, key: str) -> list[Run]:
        """The known runs of a thread, newest first."""
        found = [run for own, run in self._ended.values() if own == key]
        return [*([self.active[key]] if key in self.active else []), *reversed(found)]

    def cancel(self, run: Run) -> None:
        """Cancel a run, once: a second cancellation would interrupt its clean-up. The turn can be resumed."""
        if run.task is not None and not run.stopping:
            run.stopping = True
            run.task.cancel()

    async def stop(self, key: str) -> None:
        """Cancel a thread's run and wait for its end."""
        if (run := self.active.get(key)) is not None:
            await self._stopped([run])

    async def close(self) -> None:
        if runs := list(self.active.values()):
            self.cut_short = True
            await self._stopped(runs)

    async def _stopped(self, runs: Sequence[Run]) -> None:
        for run in runs:
            self.cancel(run)
        await asyncio.wait([run.task for run in runs if run.task is not None])


def error_json(error: BaseException) -> dict[str, str]:
    """An error for clients. The library's own errors keep their text. Others are shown by type and place: no secrets."""
    if isinstance(error, ConvCoAError):
        return {"error": type(error).__name__, "message": str(error)}
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    message = f"internal error ({type(error).__name__}{place}): please report it"
    _LOGGER.warning("%s", message)
    return {"error": "InternalError", "message": message}
