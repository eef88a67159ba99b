"""The interface of an action, a named way of looking something up, and the request that it gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

from langgraph_convcoa.errors import InputError

if TYPE_CHECKING:
    from langchain_core.documents import Document


Recognition: TypeAlias = Literal["", "beside", "alone"]
"""Whether a question has the form that an action is for: not, or it is to be asked too, or it and no other."""


class ActionInputError(InputError):
    """An action cannot use the `action_input` that the planner wrote; the message says what is wrong with it.

    Raised from `retrieve`, it makes the graph ask the model once for another input: one call for all of a turn's.
    """


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
        neighbours: How many parts of the same document are wanted on either side of each piece, from what can give them.
        depth: 1 for the first look, 2 for the deeper one (only for actions with `deepens = True`).
        settings: The run's settings of this action: the fields of `ConvCoAContext.<name of the action>` that are set.
    """

    question: str
    sub_question: str
    guess_answer: str = ""
    action_input: str = ""
    history: tuple[tuple[str, str], ...] = ()
    k: int = 5
    neighbours: int = 0
    depth: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def query(self) -> str:
        """The text that evidence is searched for: Sub|guess (Pan et al. 2024a, section 2.2.2)."""
        return f"{self.sub_question} {self.guess_answer}".strip()


@runtime_checkable
class Action(Protocol):
    """A way of looking something up. Any object with these members is one.

    `description` is what the planner reads; a callable is asked again in every turn, for what changes (a table's schema).
    Further attributes say what the graph may do with the action:

    - `looks_first = True`: it is asked for the question as it stands before anything is planned. For what costs no money and
      less than a second: a retriever over one's own documents, not the web.
    - `recognises(question, history) -> Recognition`: it is for questions of one form, which it knows by their words, at once
      and at no cost. With `looks_first` it is asked before the plan for those alone, and without a model for no others.
    - `deepens = True`: it is asked once more, with depth 2, about what its evidence does not support.
    - `repairs = True`: where `retrieve` raises `ActionInputError` the model is asked for another `action_input`.
    - `always_fresh = True`: its answers are never recalled from the knowledge set, but looked up again.
    - `settings`: a pydantic model of its run-time settings, a field of the run's `ConvCoAContext` under the action's name. Of
      these the graph itself reads `k` and `use_history`, where the model has them.
    """

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str | Callable[[], str]: ...

    async def retrieve(self, request: ActionRequest) -> list[Document]:
        """Evidence for the request, best first, each with an id and `source`, `score` and `quote` in its metadata."""
        ...
