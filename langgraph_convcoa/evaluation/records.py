"""The records of an evaluation: sampled conversations, question, outcome, costs and stored answer."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import TypeAdapter

from langgraph_convcoa.chain import ChainItem
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.errors import InputError

History = tuple[tuple[str, str], ...]  # Earlier pairs of question and answer, oldest first.


@dataclass(frozen=True)
class Turn:
    """A question of a conversation as a method sees it, without the right answer."""

    id: str
    conversation: str
    question: str
    history: History = ()  # with the method's own answers, or the gold answers


@dataclass(frozen=True)
class Outcome:
    """What a method returns for a question."""

    answer: str  # the answer that a user would see
    passages: tuple[str, ...] = ()  # ids of the retrieved passages in the order of retrieval, each once
    chain: tuple[ChainItem, ...] = ()  # the solved sub-questions, if the method verifies guesses
    malformed: int = 0  # number of the model's replies that are not in the form that the method asks for


@dataclass(frozen=True)
class Costs:
    """Costs of a question; a reply from the reply cache counts like any other."""

    calls: int = 0
    input_tokens: int = 0  # the model's figures, or estimated
    output_tokens: int = 0
    retrievals: int = 0  # searches
    seconds: float = 0.0  # wall time


@dataclass(frozen=True)
class Answered:
    """One question, answered by one method: a line of `answers.jsonl`."""

    method: str
    id: str
    conversation: str
    question: str
    round: int  # the place of the question in its conversation, from 1
    references: tuple[str, ...]  # the answers that count as right; empty if none is known
    gold: tuple[str, ...] = ()  # ids of the passages that answer the question
    answer: str = ""
    passages: tuple[str, ...] = ()
    chain: tuple[ChainItem, ...] = ()
    malformed: int = 0
    costs: Costs = field(default_factory=Costs)
    error: str = ""  # why there is no answer, in one line
    metrics: dict[str, float] = field(default_factory=dict)  # measures of the answer, such as "em" and "f1"


ANSWERED = TypeAdapter(Answered)  # Checks and reads a line of `answers.jsonl`.


def found_gold(passages: Collection[str], gold: Collection[str]) -> bool:
    """True if a gold passage, or a part of a gold passage, was retrieved.

    Example:
        >>> found_gold(["a#2", "c"], ["a"]), found_gold(["c"], ["a"])
        (True, False)
    """
    documents = {*passages, *(id_.rpartition("#")[0] for id_ in passages if "#" in id_)}
    return not documents.isdisjoint(gold)


@dataclass(frozen=True)
class Conversation:
    """Questions that belong together, in order."""

    id: str
    questions: tuple[Query, ...]


@dataclass(frozen=True)
class Questions:
    """The questions of a run."""

    conversations: tuple[Conversation, ...]  # in the order of the data
    left_out: int = 0  # questions of conversations without any known answer; they are not asked

    def __len__(self) -> int:
        return sum(len(conversation.questions) for conversation in self.conversations)

    def digest(self) -> str:
        """A digest of the questions with their histories, answers and passages."""
        rows = [(c.id, q.id, q.question, q.history, references_of(q), q.gold) for c in self.conversations for q in c.questions]
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def sample_conversations(queries: Sequence[Query], sample: int | None = None, seed: int = 0) -> Questions:
    """Draw whole conversations at random until they hold `sample` questions; all if `sample` is None.

    A question without a known answer is asked if others of its conversation have one. Raises InputError if no question has a
    known answer.
    """
    parts: dict[str, list[Query]] = {}
    for query in queries:
        parts.setdefault(query.conversation_id, []).append(query)
    known = {name: rows for name, rows in parts.items() if any(references_of(row) for row in rows)}
    if not known:
        raise InputError("The data hold no question with an answer, so there is nothing to compare with.")
    order = list(known)
    if sample is not None:
        random.Random(seed).shuffle(order)  # noqa: S311 - a draw, not a secret
    chosen, count = set(), 0
    for name in order:
        if sample is not None and count >= sample:
            break
        chosen.add(name)
        count += len(known[name])
    conversations = tuple(Conversation(name, _in_order(rows)) for name, rows in known.items() if name in chosen)
    return Questions(conversations, len(queries) - sum(len(rows) for rows in known.values()))


def references_of(query: Query) -> tuple[str, ...]:
    """The answers that count as right, each once; empty if none is known."""
    return tuple(dict.fromkeys(text for text in query.references if text.strip()))


def own_history(question: Query, earlier: Sequence[Query], answers: Mapping[str, str | None]) -> History:
    """The history with the method's own answers instead of those of the data.

    An earlier question that the method failed on is left out. A turn that was not asked in this run stays as it is.
    """
    pairs: list[tuple[str, str]] = []
    before = len(earlier)
    # The pairs are read from the last to the first, so that a repeated question gets the answer of the right turn.
    for asked, gold in reversed(question.history):
        place = next((n for n in range(before - 1, -1, -1) if _plain(earlier[n].question) == _plain(asked)), None)
        if place is None:
            pairs.append((asked, gold))
            continue
        before = place
        own = answers.get(earlier[place].id)
        if own is not None:
            pairs.append((asked, own))
    return tuple(reversed(pairs))


def _in_order(rows: list[Query]) -> tuple[Query, ...]:
    turns = [row.extra.get("turn") for row in rows]
    if all(isinstance(turn, int) for turn in turns):
        rows = sorted(rows, key=lambda row: int(row.extra["turn"]))
    return tuple(rows)


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()
