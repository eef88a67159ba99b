"""Samples whole conversations for a run and builds the history of each question."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.records import History


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
    # From the end: if a question was asked twice, the order decides which one is meant.
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
