"""Wraps a user's retrievers and tools as actions. For any other object the error says how to wrap it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.vectorstores import VectorStore

from langgraph_convcoa.actions.base import Action, BaseAction, as_action
from langgraph_convcoa.actions.knowledge import KnowledgeRetrieval, Retriever, inner
from langgraph_convcoa.actions.tool import ToolAction, action_name
from langgraph_convcoa.errors import InputError

_OWN_DOCUMENTS = "knowledge_retrieval"


def as_actions(retriever: Retriever | None, given: Sequence[Action | BaseTool | BaseRetriever] | None) -> list[BaseAction]:
    """The actions of a graph: `retriever` first, then the given ones. Tools, retrievers and other objects are wrapped.

    The first retriever is called knowledge_retrieval. A further retriever is called by its `name`, or else by its class.

    Raises:
        InputError: Nothing is given, an object cannot be wrapped, or two retrievers would have the same name.
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
        return f"a chain ({kind}) from a question to documents is wrapped by you, which names it: {how}"
    if isinstance(given, VectorStore):
        return f"a vector store ({kind}) is no action: give store.as_retriever()"
    if callable(given):
        name = getattr(given, "__name__", "function")
        return f"the function {name} is no action: make a tool of it, langchain_core.tools.tool({name}); it needs a docstring"
    if isinstance(given, dict):
        return "a tool's schema cannot be called: give the LangChain tool itself"
    return f"{kind} is not an action, a LangChain tool or a retriever: it needs name, description and async retrieve(request)"
