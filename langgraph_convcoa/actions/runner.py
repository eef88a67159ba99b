"""The actions of a graph: retrievers and tools wrapped as actions, and their runner, which returns evidence in one form."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
import threading
import time
import weakref
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import httpx
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.vectorstores import VectorStore
from langgraph.errors import GraphBubbleUp
from pydantic_core import to_jsonable_python

from langgraph_convcoa.actions.base import Action, ActionRequest, BaseAction, as_action
from langgraph_convcoa.actions.knowledge import KnowledgeRetrieval, Retriever, inner
from langgraph_convcoa.actions.tool import ToolAction, action_name
from langgraph_convcoa.errors import ConvCoAError, InputError, first_line, secrets_of
from langgraph_convcoa.text.clean import clean, clean_value
from langgraph_convcoa.text.words import content_words, sentences

_T = TypeVar("_T")
_log = logging.getLogger(__name__)
_OWN_DOCUMENTS = "knowledge_retrieval"
_loops: dict[int, asyncio.AbstractEventLoop] = {}
_lock = threading.Lock()


class ActionError(ConvCoAError):
    """An action failed. The message is redacted: the graph stores it with the turn. If `transient`, a retry may help."""

    def __init__(self, message: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.transient = transient


class Look(NamedTuple):
    """The documents that an action found, or its error, and the seconds it took."""

    action: str
    documents: list[Document]
    error: str
    seconds: float


class ActionRunner(dict[str, BaseAction]):
    """The actions of one graph by name, with the methods that run them.

    Raises InputError if two actions have one name, or an object is not an action.
    """

    def __init__(self, actions: Sequence[Action]) -> None:
        for action in map(as_action, actions):
            if action.name in self:
                raise InputError(f"two actions are called {action.name!r}: give each its own name")
            self[action.name] = action
        self._slots: weakref.WeakValueDictionary[tuple[int, str], asyncio.Semaphore] = weakref.WeakValueDictionary()

    def descriptions(self) -> dict[str, str]:
        """Name -> current description. An action that cannot describe itself has its name as its description."""
        found = {}
        for name, action in self.items():
            try:
                found[name] = clean(action.description if isinstance(action.description, str) else str(action.description()))
            except Exception as error:  # noqa: BLE001 - one action that fails here must not stop the others
                _log.warning("the action %s cannot describe itself: %s", name, reason_of(error, secrets_of(action)))
                found[name] = name
        return found

    def recognised(self, question: str, history: Sequence[tuple[str, str]]) -> dict[str, bool]:
        """Action name -> whether the action recognises the question. Actions that take any question are left out."""
        found = {}
        for name, action in self.items():
            try:
                recognised = action.recognises(question, history)
            except Exception as error:  # noqa: BLE001 - one action that fails here must not stop the others
                _log.warning("the action %s cannot read the question: %s", name, reason_of(error, secrets_of(action)))
                recognised = False
            if recognised is not None:
                found[name] = recognised
        return found

    async def arun(self, name: str, request: ActionRequest, within: float, turn: str, limit: int) -> list[Document]:
        """Evidence from an action, or TimeoutError after `within` seconds. At most `limit` actions of a turn run at a time."""
        key = (id(asyncio.get_running_loop()), turn)
        slots = self._slots.get(key) or self._slots.setdefault(key, asyncio.Semaphore(limit))
        async with slots:
            try:
                found = await asyncio.wait_for(self[name].retrieve(request), within)
            except TimeoutError as error:
                raise TimeoutError(f"no result within {within:g} s") from error
            except GraphBubbleUp:
                # An interrupt that the action makes is not an error.
                raise
            except Exception as error:
                reason = reason_of(error, secrets_of(self[name]))
                if isinstance(error, ConvCoAError):
                    error.args = (reason, *error.args[1:])
                    raise
                raise ActionError(f"the action {name} failed: {reason}", transient=is_transient(error)) from error
        return await asyncio.to_thread(as_evidence, found, name, request)

    async def alook(self, requests: Mapping[str, ActionRequest], within: float, turn: str, limit: int) -> list[Look]:
        """Run several actions at the same time; the failure of one does not stop the others."""

        async def one(name: str, request: ActionRequest) -> Look:
            start = time.perf_counter()
            try:
                documents, error = await self.arun(name, request, within, turn, limit), ""
            except Exception as failure:  # noqa: BLE001 - an action may raise any error
                documents, error = [], reason_of(failure)
            return Look(name, documents, error, time.perf_counter() - start)

        return list(await asyncio.gather(*(one(name, request) for name, request in requests.items())))

    def look(self, requests: Mapping[str, ActionRequest], within: float, turn: str, limit: int) -> list[Look]:
        """Like `alook`, but blocks the calling thread."""
        return _run(self.alook(requests, within, turn, limit))

    def run(self, name: str, request: ActionRequest, within: float, turn: str, limit: int) -> list[Document]:
        """Like `arun`, but blocks the thread. All threads share one event loop, so an action's connections stay usable."""
        return _run(self.arun(name, request, within, turn, limit))


def as_evidence(found: Any, action: str, request: ActionRequest) -> list[Document]:
    """Evidence with an id, `source`, `score` and `quote`, without empty and repeated pieces.

    `found` is what an action returned: a document, a text, or a list of them. Raises ActionError for anything else.
    """
    evidence: dict[str, Document] = {}
    listed = [found] if isinstance(found, str | Document) else found
    wanted = f"the action {action} failed: retrieve must return documents or texts, not"
    if not isinstance(listed, Iterable) or isinstance(listed, Mapping):
        raise ActionError(f"{wanted} {type(found).__name__}")
    for rank, piece in enumerate(listed, 1):
        if not isinstance(piece, str | Document):
            raise ActionError(f"{wanted} a list of {type(piece).__name__}")
        document = Document(piece) if isinstance(piece, str) else piece
        text = clean(document.page_content)
        if not text.strip():
            continue
        metadata = {clean(str(key)): _plain(value) for key, value in document.metadata.items()}
        of_text = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
        id_ = clean(document.id or "") or str(metadata.get("id") or "") or of_text
        metadata.setdefault("source", id_ if document.id else action)
        metadata.setdefault("score", 1.0 / rank)
        if not metadata.get("quote"):
            metadata["quote"] = _best_sentence(text, request.sub_question)
        evidence.setdefault(id_, Document(page_content=text, id=id_, metadata=metadata))
    return list(evidence.values())


def _plain(value: Any) -> Any:
    """A metadata value that every checkpoint can store; values that JSON lacks become text."""
    try:
        return clean_value(to_jsonable_python(value, fallback=str, inf_nan_mode="constants", bytes_mode="base64"))
    except ValueError:
        # The value contains itself.
        return clean(str(value))


def reason_of(error: BaseException, secrets: Collection[str] = ()) -> str:
    """The reason of a failure in one redacted line; `secrets` are texts that it must not show."""
    return clean(first_line(error, secrets, named=not isinstance(error, ConvCoAError)))


def is_transient(error: BaseException) -> bool:
    """True if a retry may help: after a lost connection or a server's failure, not after a refusal or our own time-out."""
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


def _run(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine on the event loop of this process. The loop runs in a daemon thread and is started at first use."""
    # The loop is never stopped: at the program's end its thread would free torch's tensors, which may abort the program.
    process = os.getpid()
    with _lock:
        # A forked child has the loop of its parent, but not its thread.
        if process not in _loops:
            _loops[process] = asyncio.new_event_loop()
            threading.Thread(target=_loops[process].run_forever, name="convcoa-actions", daemon=True).start()
    future = asyncio.run_coroutine_threadsafe(work, _loops[process])
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def as_actions(retriever: Retriever | None, given: Sequence[Action | BaseTool | BaseRetriever] | None) -> list[BaseAction]:
    """The actions of a graph: `retriever` first, then the given ones. Tools, retrievers and other objects are wrapped.

    The first retriever is called knowledge_retrieval. A further retriever is called by its `name`, or else by its class.
    Raises InputError if nothing is given, an object cannot be wrapped, or two retrievers would have the same name.
    """
    if given is not None and not isinstance(given, Sequence):
        raise InputError(f"actions must be a list of actions, not {type(given).__name__}")
    every: list[object] = [*([KnowledgeRetrieval(retriever)] if retriever is not None else []), *(given or [])]
    if not every:
        raise InputError("give a retriever, or at least one action, to look things up with")
    wrapped = [_wrapped(thing) for thing in every]
    taken = {action.name for action in wrapped if not isinstance(action, Runnable)}
    return [_named(action, taken) if isinstance(action, Runnable) else action for action in wrapped]


def _wrapped(given: object) -> BaseAction | Retriever:
    """An action, or a retriever that still needs its name."""
    if isinstance(given, BaseTool):
        return ToolAction(given)
    if inner(given) is not None:
        return given  # type: ignore[return-value]
    if isinstance(given, Action) and not isinstance(given, type):
        return as_action(given)
    raise InputError(_refusal(given))


def _named(retriever: Retriever, taken: set[str]) -> KnowledgeRetrieval:
    if _OWN_DOCUMENTS not in taken:
        taken.add(_OWN_DOCUMENTS)
        return KnowledgeRetrieval(retriever)
    about = (inner(retriever) or retriever).get_name()
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", about)
    name = action_name(words).lower()
    if name in taken:
        raise InputError(
            f"two retrievers would be called {name!r}: give each a name and say what it holds, KnowledgeRetrieval(retriever, "
            'name="wiki", description="searches the wiki")'
        )
    taken.add(name)
    return KnowledgeRetrieval(retriever, name=name, description=f"searches {about}; takes what is to be found out")


def _refusal(given: object) -> str:
    kind = type(given).__name__
    if isinstance(given, type):
        return f"an action is an object, not the class {given.__name__}: write {given.__name__}(...)"
    if isinstance(given, Runnable):
        how = 'KnowledgeRetrieval(chain, name="wiki", description="searches the wiki")'
        return f"a chain ({kind}) from a question to documents needs a name: wrap it yourself, as {how}"
    if isinstance(given, VectorStore):
        return f"a vector store ({kind}) is no action: give store.as_retriever()"
    if callable(given):
        name = getattr(given, "__name__", "function")
        return f"the function {name} is no action: make a tool of it, langchain_core.tools.tool({name}); it needs a docstring"
    if isinstance(given, dict):
        return "a tool's schema cannot be called: give the LangChain tool itself"
    return f"{kind} is not an action, a LangChain tool or a retriever: it needs name, description and async retrieve(request)"
