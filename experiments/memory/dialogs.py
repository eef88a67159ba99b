"""Long synthetic conversations: real dialogs of data folders, one after another."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from langgraph_convcoa.datasets.queries import Dataset, Query


@dataclass(frozen=True)
class Turn:
    """One turn of a real dialog: the question as it was put, its answer, and the gold passages.

    `rewrite` is a form of the question that stands alone, or "". `alone` is the rewrite, or the question if it opens a dialog.
    """

    question: str
    answer: str
    rewrite: str
    alone: str
    gold: tuple[str, ...]
    dialog: str


def dialogs(datasets: Iterable[Dataset]) -> list[list[Turn]]:
    """The dialogs of data sets whose rows have a history, each turn once, in order."""
    found = []
    for dataset in datasets:
        rows: defaultdict[str, list[Query]] = defaultdict(list)
        for query in dataset.queries:
            if name := query.conversation:
                rows[name].append(query)
        for name, queries in rows.items():
            longest = max(queries, key=lambda query: len(query.history))
            if longest.history:
                found.append(_turns(f"{dataset.name}/{name}", longest, queries))
    return found


def _turns(name: str, longest: Query, queries: Sequence[Query]) -> list[Turn]:
    known = {(len(query.history), query.question): query for query in queries}
    turns = []
    for place, (question, answer) in enumerate([*longest.history, (longest.question, longest.answer)]):
        query = known.get((place, question), Query("", question))
        alone = query.rewrite or (question if place == 0 else "")
        turns.append(Turn(question, query.answer or answer, query.rewrite, alone, query.gold, name))
    return turns


def conversations(datasets: Sequence[Dataset], length: int, seed: int, count: int | None = None) -> list[list[Turn]]:
    """Conversations of exactly `length` turns, made of whole dialogs in a random order; the last dialog may be cut."""
    pool = dialogs(datasets)
    random.Random(seed).shuffle(pool)
    found: list[list[Turn]] = []
    present: list[Turn] = []
    for dialog in pool:
        present += dialog
        if len(present) >= length:
            found.append(present[:length])
            present = []
        if count is not None and len(found) == count:
            break
    return found
