"""What an evaluated method is asked, what it gives back, and the record that is kept of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from langgraph_convcoa.chain import ChainItem


@dataclass(frozen=True)
class Turn:
    """A question of a conversation, as a method sees it: nothing in it tells the right answer.

    Attributes:
        id: The question's id.
        conversation: The id of its conversation.
        question: As it was put.
        history: Earlier pairs of question and answer, oldest first; the answers are the method's own, or the gold ones.
    """

    id: str
    conversation: str
    question: str
    history: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What a method made of a question.

    Attributes:
        answer: As it would be shown to a user.
        passages: Ids of what was retrieved, in the order of retrieval, each once.
        chain: The solved sub-questions, of methods that verify guesses.
        malformed: Replies of the model that could not be read as the method asks for them.
    """

    answer: str
    passages: tuple[str, ...] = ()
    chain: tuple[ChainItem, ...] = ()
    malformed: int = 0


@dataclass(frozen=True)
class Costs:
    """What a question cost: every request counts, answered from the cache of an earlier run or not.

    Attributes:
        calls: Requests to the model.
        input_tokens, output_tokens: As the model reports them, else counted approximately.
        retrievals: Searches.
        seconds: Wall time.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    retrievals: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Answered:
    """One question, answered by one method; a line of a run's results.

    Attributes:
        method: The method's name.
        id, conversation, question: Those of the question.
        round: Its place in its conversation, from 1.
        references: The answers that count as right; empty where none is known.
        gold: Ids of the passages that answer it.
        answer, passages, chain, malformed: The outcome.
        costs: What it cost.
        error: Why there is no answer, in one line; empty where there is one.
        metrics: Measures of the answer by name, such as "em" and "f1".
    """

    method: str
    id: str
    conversation: str
    question: str
    round: int
    references: tuple[str, ...]
    gold: tuple[str, ...] = ()
    answer: str = ""
    passages: tuple[str, ...] = ()
    chain: tuple[ChainItem, ...] = ()
    malformed: int = 0
    costs: Costs = field(default_factory=Costs)
    error: str = ""
    metrics: dict[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Answered:
        """The record of what `to_dict` gave, after JSON.

        Example:
            >>> record = Answered("ours", "q1", "c1", "Who?", 1, ("Ada",), answer="Ada [1].", costs=Costs(calls=1))
            >>> Answered.from_dict(record.to_dict()) == record
            True
        """
        sequences = {name: tuple(data[name]) for name in ("references", "gold", "passages", "chain")}
        return cls(**{**data, **sequences, "costs": Costs(**data["costs"])})
