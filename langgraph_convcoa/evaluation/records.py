"""The records of an evaluation: question, outcome, costs and stored answer."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from pydantic import TypeAdapter

from langgraph_convcoa.chain import ChainItem

History = tuple[tuple[str, str], ...]
"""Earlier pairs of question and answer, oldest first."""


@dataclass(frozen=True)
class Turn:
    """A question of a conversation as a method sees it, without the right answer."""

    id: str
    conversation: str
    question: str
    history: History = ()  # with the method's own answers, or the gold ones


@dataclass(frozen=True)
class Outcome:
    """What a method returns for a question."""

    answer: str  # as a user would see it
    passages: tuple[str, ...] = ()  # ids of the retrieved passages in the order of retrieval, each once
    chain: tuple[ChainItem, ...] = ()  # the solved sub-questions, of methods that verify guesses
    malformed: int = 0  # replies of the model without the form that the method asks for


@dataclass(frozen=True)
class Costs:
    """Costs of a question; a reply from the reply cache counts like any other.

    Tokens are the model's figures, or estimated; retrievals are searches; seconds are wall time.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    retrievals: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Answered:
    """One question, answered by one method: a line of `answers.jsonl`."""

    method: str
    id: str
    conversation: str
    question: str
    round: int  # its place in its conversation, from 1
    references: tuple[str, ...]  # the answers that count as right; empty if none is known
    gold: tuple[str, ...] = ()  # ids of the passages that answer it
    answer: str = ""
    passages: tuple[str, ...] = ()
    chain: tuple[ChainItem, ...] = ()
    malformed: int = 0
    costs: Costs = field(default_factory=Costs)
    error: str = ""  # why there is no answer, in one line
    metrics: dict[str, float] = field(default_factory=dict)  # measures of the answer, such as "em" and "f1"


ANSWERED = TypeAdapter(Answered)
"""Checks and reads a line of `answers.jsonl`."""


def found_gold(passages: Collection[str], gold: Collection[str]) -> bool:
    """Whether a passage that answers the question, or a part of one, was retrieved.

    Example:
        >>> found_gold(["a#2", "c"], ["a"]), found_gold(["c"], ["a"])
        (True, False)
    """
    documents = {*passages, *(id_.rpartition("#")[0] for id_ in passages if "#" in id_)}
    return not documents.isdisjoint(gold)
