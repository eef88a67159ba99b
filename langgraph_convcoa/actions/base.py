"""What an action is: a named way of looking something up, and the request that it gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from langchain_core.documents import Document


@dataclass(frozen=True)
class ActionRequest:
    """One look-up of one sub-question.

    Attributes:
        question: The user's question as it was put.
        sub_question: What this action is to find out; self-contained unless `history` is given.
        guess_answer: The planner's guess, empty where it had none.
        action_input: What the planner wrote for this action in particular: SQL, search keywords, or nothing.
        history: Earlier pairs of question and answer, oldest first; empty when the sub-question stands alone.
        k: How many pieces of evidence are wanted.
        depth: 1 for the first look, 2 for the deeper one (only for actions with `deepens = True`).
    """

    question: str
    sub_question: str
    guess_answer: str = ""
    action_input: str = ""
    history: tuple[tuple[str, str], ...] = ()
    k: int = 5
    depth: int = 1

    @property
    def query(self) -> str:
        """The text that evidence is searched for: Sub|guess (papers/002 section 2.2.2)."""
        return f"{self.sub_question} {self.guess_answer}".strip()


@runtime_checkable
class Action(Protocol):
    """A way of looking something up. Any object with these members is one.

    `description` is what the planner reads; a callable is asked again in every turn, for what changes (a table's schema).
    """

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str | Callable[[], str]: ...

    async def retrieve(self, request: ActionRequest) -> list[Document]:
        """Evidence for the request, best first, each with an id and `source`, `score` and `quote` in its metadata."""
        ...
