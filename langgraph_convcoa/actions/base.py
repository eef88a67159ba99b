"""The interface of actions (named ways of looking something up), its base class, and the request that an action gets."""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from langchain_core.documents import Document
from pydantic import BaseModel

from langgraph_convcoa.errors import InputError


class ActionInputError(InputError):
    """An action cannot use the `action_input` that the planner wrote; the message says why.

    If the action `repairs`, the graph asks the model to rewrite the input. One call a turn covers all refused inputs.
    """


@dataclass(frozen=True)
class ActionRequest:
    """One look-up of one sub-question."""

    question: str  #: The user's question.
    sub_question: str  #: The question to look up; self-contained unless `history` is given.
    guess_answer: str = ""  #: The planner's guess, or "".
    action_input: str = ""  #: The planner's text for this action, such as SQL or search keywords, or "".
    history: tuple[tuple[str, str], ...] = ()  #: Earlier pairs of question and answer, oldest first.
    k: int = 5  #: Number of pieces of evidence.
    neighbours: int = 0  #: Number of parts of the same document on either side of each piece.
    depth: int = 1  #: 1 for the first look-up, more for later ones; an action that `deepens` then looks deeper.
    #: The run's settings of this action: the fields of `ConvCoAContext.<name of the action>` that are set.
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def query(self) -> str:
        """The text of the search: Sub|guess (Pan et al. 2024a, section 2.2.2)."""
        return f"{self.sub_question} {self.guess_answer}".strip()


@runtime_checkable
class Action(Protocol):
    """A way of looking something up. Any object with these three members can be given; `BaseAction` has further options.

    The planner reads `description`. If it is a function, it is called in every turn, since a table's schema may change.
    """

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str | Callable[[], str]: ...

    async def retrieve(self, request: ActionRequest) -> Sequence[Document | str]:
        """Evidence for the request, best first: documents with `source`, `score` and `quote` in their metadata, or texts."""
        ...


class BaseAction(ABC):
    """Base class of actions, with the defaults of all options.

    Example:
        >>> class Glossary(BaseAction):
        ...     name = "glossary"
        ...     description = "explains abbreviations"
        ...     looks_first = True
        ...     async def retrieve(self, request: ActionRequest) -> list[str]:
        ...         return ["CKS stands for contextual knowledge set."]
        >>> Glossary().looks_first, Glossary().deepens
        (True, False)
    """

    name: str
    description: Any  # A text, or a method that returns a text.
    settings: type[BaseModel] | None = None
    """Class of the action's run-time settings. The run's `ConvCoAContext` has them in a field with the action's name. The
    graph reads the settings `k` and `use_history`."""
    looks_first: bool = False
    """Ask this action about the whole question before the plan. Set it if a look-up is free and takes less than a second."""
    deepens: bool = False  # Ask this action again, with depth 2, if its evidence supports no answer.
    repairs: bool = False  # If `retrieve` raises `ActionInputError`, ask the model for another `action_input`.
    always_fresh: bool = False  # Always look up with this action; never recall its earlier answers from the knowledge set.

    @abstractmethod
    async def retrieve(self, request: ActionRequest) -> Sequence[Document | str]:
        """Evidence for the request, best first."""

    @property
    def encoder(self) -> Any:
        """The encoder of the action's retriever, or None. The graph uses it for the conversation memory."""
        return None

    def recognises(self, question: str, history: Sequence[tuple[str, str]]) -> bool | None:
        """True: only this action is needed. False: the question is not for it. None: the action takes any question."""
        return None

    def close(self) -> None:  # noqa: B027 - most actions hold nothing
        """Free the resources of the action."""


class GivenAction(BaseAction):
    """A user's object as an action. Options that the object lacks have the defaults of `BaseAction`."""

    def __init__(self, given: Action) -> None:
        self.given = given
        for option in ("name", "settings", "looks_first", "deepens", "repairs", "always_fresh"):
            setattr(self, option, getattr(given, option, getattr(BaseAction, option, None)))

    @property
    def description(self) -> str | Callable[[], str]:
        return self.given.description

    async def retrieve(self, request: ActionRequest) -> Sequence[Document | str]:
        return await self.given.retrieve(request)


def as_action(given: Action | BaseAction) -> BaseAction:
    """Wrap an object with `name`, `description` and `async retrieve` as a `BaseAction`.

    Raises InputError if one of these is missing, or the name is not a letter followed by letters, digits, _ or -.
    """
    if not isinstance(given, Action):
        raise InputError(f"{type(given).__name__} is not an action: it needs name, description and async retrieve(request)")
    if not inspect.iscoroutinefunction(given.retrieve):
        raise InputError(f"the action {given.name!r} needs an async retrieve: write `async def retrieve(self, request)`")
    if not re.fullmatch(r"[A-Za-z][\w-]{0,63}", given.name):
        raise InputError(f"the action name {given.name!r} must be a letter, then letters, digits, _ or -")
    return given if isinstance(given, BaseAction) else GivenAction(given)
