"""The records of an evaluation: question, outcome, costs and stored answer."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from langgraph_convcoa.chain import ChainItem

History = tuple[tuple[str, str], ...]
"""Earlier pairs of question and answer, oldest first."""


@dataclass(frozen=True)
class Turn:
    """A question of a conversation, as a method sees it, without the right answer."""

    id: str
    conversation: str
    question: str
    history: History = ()  # the answers in it are the method's own, or the gold ones


@dataclass(frozen=True)
class Outcome:
    """What a method made of a question."""

    answer: str  # as it would be shown to a user
    passages: tuple[str, ...] = ()  # ids of what was retrieved, in the order of retrieval, each once
    chain: tuple[ChainItem, ...] = ()  # the solved sub-questions, of methods that verify guesses
    malformed: int = 0  # replies of the model that could not be read as the method asks for them
    removed: int = 0  # citation marks that name no passage which the method was shown; they are taken out of the answer


@dataclass(frozen=True)
class Costs:
    """What a question cost: every model call counts, also one that is answered from the reply cache.

    Tokens are as the model reports them, else counted approximately; retrievals are searches, seconds wall time.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    retrievals: int = 0
    seconds: float = 0.0
    # Tokens by what they were spent on: instructions, conversation, evidence, reply; empty where that was not counted.
    parts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Answered:
    """One question, answered by one method; a line of a run's results."""

    method: str
    id: str
    conversation: str
    question: str
    round: int  # its place in its conversation, from 1
    references: tuple[str, ...]  # the answers that count as right; empty where none is known
    gold: tuple[str, ...] = ()  # ids of the passages that answer it
    answer: str = ""
    passages: tuple[str, ...] = ()
    chain: tuple[ChainItem, ...] = ()
    malformed: int = 0
    removed: int = 0
    costs: Costs = field(default_factory=Costs)
    error: str = ""  # why there is no answer, in one line; empty where there is one
    metrics: dict[str, float] = field(default_factory=dict)  # measures of the answer by name, such as "em" and "f1"

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Answered:
        """The record of what `to_dict` gave, after JSON; ValueError where it is none."""
        return _checked().validate_python(data)


@cache
def _checked() -> TypeAdapter[Answered]:
    return TypeAdapter(Answered)


def found_gold(passages: Collection[str], gold: Collection[str]) -> bool:
    """Whether a passage that answers the question is among those retrieved, or a part of one.

    Example:
        >>> found_gold(["a#2", "c"], ["a"]), found_gold(["c"], ["a"])
        (True, False)
    """
    documents = {*passages, *(id_.rpartition("#")[0] for id_ in passages if "#" in id_)}
    return not documents.isdisjoint(gold)
