"""Runner of actions: one event loop for plain callers, a time limit, bounded concurrency, evidence in one form."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import logging
import os
import re
import threading
import time
import weakref
from collections.abc import Collection, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from langchain_core.documents import Document
from langgraph.errors import GraphBubbleUp

from langgraph_convcoa.actions.base import Action, ActionRequest, Recognition
from langgraph_convcoa.errors import ConvCoAError, InputError
from langgraph_convcoa.errors.redaction import redact, secrets_of
from langgraph_convcoa.text.clean import clean
from langgraph_convcoa.text.words import content_words, sentences

_T = TypeVar("_T")
_log = logging.getLogger(__name__)
_DEEPEST = 5


class ActionError(ConvCoAError):
    """An action failed with an error of another library, whose text is kept redacted: the graph stores it with the turn.

    `transient`: trying again may help.
    """

    def __init__(self, message: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.transient = transient


class Look(NamedTuple):
    """What an action found, or why it failed, and how long it took."""

    action: str
    documents: list[Document]
    error: str
    seconds: float


class ActionRunner:
    """Runs the actions of one graph.

    Raises:
        InputError: No action, two of one name, or an object that is not an action.
    """

    def __init__(self, actions: Sequence[Action]) -> None:
        self.actions: dict[str, Action] = {}
        for action in actions:
            if not isinstance(action, Action):
                raise InputError(
                    f"{type(action).__name__} is not an action: it needs name, description and async retrieve(request)"
                )
            name = action.name
            if not inspect.iscoroutinefunction(action.retrieve):
                raise InputError(f"the action {name!r} needs an async retrieve: write `async def retrieve(self, request)`")
            if not re.fullmatch(r"[A-Za-z][\w-]{0,63}", name):
                raise InputError(f"the action name {name!r} must be a letter, then letters, digits, _ or -")
            if name in self.actions:
                raise InputError(f"two actions are called {name!r}: give each its own name")
            self.actions[name] = action
        self._loop = _LoopThread()
        self._slots: weakref.WeakValueDictionary[tuple[int, str], asyncio.Semaphore] = weakref.WeakValueDictionary()

    def descriptions(self) -> dict[str, str]:
        """Name -> description as it is now."""
        return {name: _description(action) for name, action in self.actions.items()}

    def repairs(self, name: str) -> bool:
        """Whether an action may ask for another input."""
        return bool(getattr(self.actions[name], "repairs", False))

    def looking(self, question: str, history: Sequence[tuple[str, str]], but: Collection[str] = ()) -> list[str]:
        """The actions that are asked for a question before anything is planned, without some."""
        names = [name for name, action in self.actions.items() if getattr(action, "looks_first", False) and name not in but]
        forms = self.recognised(question, history)
        alone = [name for name in names if forms.get(name) == "alone"]
        return alone or [name for name in names if forms.get(name, "beside")]

    def recognised(self, question: str, history: Sequence[tuple[str, str]]) -> dict[str, Recognition]:
        """Of the actions that are for questions of one form, whether this is one."""
        return {
            name: _recognition(action, question, history)
            for name, action in self.actions.items()
            if hasattr(action, "recognises")
        }

    def deepens(self, name: str) -> bool:
        """Whether an action can look deeper."""
        return bool(getattr(self.actions[name], "deepens", False))

    def always_fresh(self, name: str) -> bool:
        """Whether an action is asked again for what earlier turns have answered."""
        return bool(getattr(self.actions[name], "always_fresh", False))

    async def arun(self, name: str, request: ActionRequest, within: float, turn: str, limit: int) -> list[Document]:
        """Evidence from an action in at most `within` seconds (TimeoutError), at most `limit` actions of a turn at a time."""
        key = (id(asyncio.get_running_loop()), turn)
        slots = self._slots.get(key) or self._slots.setdefault(key, asyncio.Semaphore(limit))
        async with slots:
            try:
                found = await asyncio.wait_for(self.actions[name].retrieve(request), within)
            except TimeoutError as error:
                raise TimeoutError(f"no result within {within:g} s") from error
            except GraphBubbleUp:
                # Not an error: an interrupt that the action makes.
                raise
            except Exception as error:
                told = reason_of(error, secrets_of(self.actions[name]))
                if isinstance(error, ConvCoAError):
                    error.args = (told, *error.args[1:])
                    raise
                raise ActionError(told, transient=is_transient(error)) from error
        return await asyncio.to_thread(evidence_of, found, name, request)

    async def alook(self, requests: Mapping[str, ActionRequest], within: float, turn: str, limit: int) -> list[Look]:
        """What several actions find at the same time; one that fails leaves the others alone."""

        async def one(name: str, request: ActionRequest) -> Look:
            start = time.perf_counter()
            try:
                documents, error = await self.arun(name, request, within, turn, limit), ""
            except Exception as failure:  # noqa: BLE001 - whatever an action raises
                documents, error = [], reason_of(failure)
            return Look(name, documents, error, time.perf_counter() - start)

        return list(await asyncio.gather(*(one(name, request) for name, request in requests.items())))

    def look(self, requests: Mapping[str, ActionRequest], within: float, turn: str, limit: int) -> list[Look]:
        """As `alook`, from a thread."""
        return self._loop.run(self.alook(requests, within, turn, limit))

    def run(self, name: str, request: ActionRequest, within: float, turn: str, limit: int) -> list[Document]:
        """As `arun`, from a thread; all threads share one event loop, so that an action's connections stay usable."""
        return self._loop.run(self.arun(name, request, within, turn, limit))


def evidence_of(found: Sequence[Document], action: str, request: ActionRequest) -> list[Document]:
    """Evidence with an id, `source`, `score` and `quote`, whatever the action left out; without empty and repeated pieces."""
    evidence: dict[str, Document] = {}
    for rank, document in enumerate(found, 1):
        text = clean(document.page_content)
        if not text.strip():
            continue
        metadata = {clean(str(key)): _plain(value) for key, value in document.metadata.items()}
        id_ = (
            clean(document.id or "")
            or str(metadata.get("id") or "")
            or hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
        )
        metadata.setdefault("source", id_ if document.id else action)
        metadata.setdefault("score", 1.0 / rank)
        if not metadata.get("quote"):
            metadata["quote"] = _best_sentence(text, request.sub_question)
        evidence.setdefault(id_, Document(page_content=text, id=id_, metadata=metadata))
    return list(evidence.values())


def _plain(value: Any, depth: int = 0) -> Any:
    """A metadata value that every checkpoint can hold; anything else becomes its text."""
    if value is None or isinstance(value, bool | str) or (isinstance(value, int) and -(2**63) <= value < 2**64):
        return clean(value) if isinstance(value, str) else value
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Mapping) and depth < _DEEPEST:
        return {clean(str(key)): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset) and depth < _DEEPEST:
        return [_plain(item, depth + 1) for item in value]
    return clean(str(value))


def reason_of(error: BaseException, secrets: Collection[str] = ()) -> str:
    """Why an action failed, in one line, redacted; `secrets` are those that it was given."""
    lines = redact(str(error).strip(), secrets).splitlines()
    # Errors raised on purpose say what is wrong; of others the type tells more than the text.
    told = lines and isinstance(error, ConvCoAError)
    text = lines[0] if told else f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return clean(text[:300])


def is_transient(error: BaseException) -> bool:
    """Whether trying an action again may help: lost connections and servers' own failures, not refusals or time-outs."""
    import httpx

    if isinstance(error, ActionError):
        return error.transient
    if isinstance(error, TimeoutError):
        return False
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code == 429 or error.response.status_code >= 500
    return isinstance(error, (ConnectionError, httpx.TransportError))


def _best_sentence(text: str, question: str) -> str:
    wanted = set(content_words(question))
    found = sentences(text[:20_000])
    best: Mapping[str, int] = {s.text: len(wanted & set(content_words(s.text))) for s in found}
    return max(best, key=lambda sentence: best[sentence], default=text[:300])


def _recognition(action: Any, question: str, history: Sequence[tuple[str, str]]) -> Recognition:
    try:
        told: Recognition = action.recognises(question, history)
    except Exception as error:  # noqa: BLE001 - an action that fails to recognise a question must not stop the others
        _log.warning("the action %s cannot read the question: %s", action.name, reason_of(error, secrets_of(action)))
        return ""
    return told


def _description(action: Action) -> str:
    if isinstance(action.description, str):
        return clean(action.description)
    try:
        return clean(str(action.description()))
    except Exception as error:  # noqa: BLE001 - one action that cannot describe itself must not stop the others
        _log.warning("the action %s cannot describe itself: %s", action.name, reason_of(error, secrets_of(action)))
        return action.name


class _LoopThread:
    """An event loop in a daemon thread, started with the first use and stopped when its owner is gone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        future = asyncio.run_coroutine_threadsafe(work, self._running())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            # A forked child has the loop's memory and not its thread.
            if self._loop is None or self._process != os.getpid():
                loop = asyncio.new_event_loop()
                threading.Thread(target=_serve, args=(loop,), name="convcoa-actions", daemon=True).start()
                # Not when the program ends: what the thread frees then may abort it (torch's tensors do). It sleeps on.
                weakref.finalize(self, _stop, loop).atexit = False
                self._loop, self._process = loop, os.getpid()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


def _stop(loop: asyncio.AbstractEventLoop) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
