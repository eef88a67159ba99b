"""The conversations that a run asks: which are drawn, in what order their questions come, and what history each has."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.errors import InputError

History = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Asked:
    """A question of a run, with what is known of its answer.

    Attributes:
        id, question: Of the data.
        history: Earlier pairs of question and answer as the data have them, oldest first.
        references: The answers that count as right; empty where none is known.
        gold: Ids of the passages that answer it.
        round: How many rounds the data tell of before it, plus 1.
    """

    id: str
    question: str
    history: History
    references: tuple[str, ...]
    gold: tuple[str, ...]
    round: int


@dataclass(frozen=True)
class Conversation:
    """Questions that belong together, in order."""

    id: str
    questions: tuple[Asked, ...]


@dataclass(frozen=True)
class Drawn:
    """What a run asks.

    Attributes:
        conversations: In the order of the data.
        left_out: Questions of conversations that have no known answer at all; they are not asked.
    """

    conversations: tuple[Conversation, ...]
    left_out: int = 0

    @property
    def questions(self) -> int:
        """How many are asked."""
        return sum(len(conversation.questions) for conversation in self.conversations)

    def digest(self) -> str:
        """A digest of all that is asked and known, the same for the same questions."""
        digest = hashlib.sha256()
        for conversation in self.conversations:
            for one in conversation.questions:
                row = [conversation.id, one.id, one.question, one.history, one.references, one.gold]
                digest.update(json.dumps(row).encode() + b"\n")
        return digest.hexdigest()


def draw(queries: Sequence[Query], sample: int | None = None, seed: int = 0) -> Drawn:
    """Whole conversations, drawn at random until they hold `sample` questions: none is cut in the middle.

    A question without a known answer is asked where others of its conversation have one, since these may build on it.

    Args:
        queries: Of a data set; the questions of a conversation in order, or with a number `turn`.
        sample: About how many questions, at least this many where there are so many; None for all.
        seed: Of the draw.

    Raises:
        InputError: No question has a known answer.

    Example:
        >>> rows = [Query(f"{c}{n}", "?", answer="x", conversation=c) for c in "abc" for n in (1, 2)]
        >>> [conversation.id for conversation in draw(rows, 3, seed=0).conversations]
        ['a', 'c']
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
    conversations = tuple(_conversation(name, rows) for name, rows in known.items() if name in chosen)
    return Drawn(conversations, len(queries) - sum(len(rows) for rows in known.values()))


def references_of(query: Query) -> tuple[str, ...]:
    """The answers that count as right, each once; none where the data know none."""
    return tuple(dict.fromkeys(text for text in query.references if text.strip()))


def own_history(question: Asked, earlier: Sequence[Asked], answers: Mapping[str, str | None]) -> History:
    """The history with the method's own answers in place of those that the data give.

    Args:
        question: What is to be asked.
        earlier: The questions of its conversation that were asked before it in this run, in order.
        answers: What the method answered, by question id; None where it failed.

    Returns:
        The pairs of the data in their order. An earlier question that was asked in this run has the method's own answer, or
        is left out where the method failed; one that was not asked (a conversation whose beginning the data only tell) stays.

    Example:
        >>> first = Asked("1", "Who?", (), (), (), 1)
        >>> second = Asked("2", "When?", (("Hello?", "Hi."), ("Who?", "Ada")), (), (), 3)
        >>> own_history(second, [first], {"1": "Ada Lovelace."})
        (('Hello?', 'Hi.'), ('Who?', 'Ada Lovelace.'))
    """
    pairs: list[tuple[str, str]] = []
    before = len(earlier)
    # From the end, where the same words asked twice are told apart by their order.
    for asked, gold in reversed(question.history):
        place = next((n for n in range(before - 1, -1, -1) if _same(earlier[n].question, asked)), None)
        if place is None:
            pairs.append((asked, gold))
            continue
        before = place
        own = answers.get(earlier[place].id)
        if own is not None:
            pairs.append((asked, own))
    return tuple(reversed(pairs))


def _conversation(name: str, rows: list[Query]) -> Conversation:
    turns = [row.extra.get("turn") for row in rows]
    if all(isinstance(turn, int) for turn in turns):
        rows = [row for _, row in sorted(zip(turns, rows, strict=True), key=lambda pair: int(pair[0] or 0))]
    return Conversation(
        name,
        tuple(Asked(row.id, row.question, row.history, references_of(row), row.gold, len(row.history) + 1) for row in rows),
    )


def _same(one: str, other: str) -> bool:
    return " ".join(one.split()).casefold() == " ".join(other.split()).casefold()
