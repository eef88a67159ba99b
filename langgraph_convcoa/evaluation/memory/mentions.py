"""Recall of an early round at round 60 by the history memory, a plain similarity search and the last rounds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from langgraph_convcoa.datasets.queries import Dataset
from langgraph_convcoa.evaluation.memory.dialogs import Turn, conversations, knowledge_of
from langgraph_convcoa.memory.conversation_memory import ConversationMemory
from langgraph_convcoa.retrieval.progress import Progress, track

_ROUNDS = 59
"""Rounds before the probe, which is asked at round 60."""
_LATEST = 40
"""The probed round is one of the first so many."""
_K = 5


@dataclass(frozen=True)
class MentionRow:
    """One method over the probes of one part; shares of probes whose round is among the five found."""

    part: str
    method: str
    probes: int
    recall: float


def evaluate_mentions(
    datasets: Sequence[Dataset], memory: ConversationMemory, *, probes: int = 200, seed: int = 0, progress: Progress = False
) -> list[MentionRow]:
    """Find the round where something was asked from another wording of the question, 20 to 59 rounds later.

    A probe is the rewrite of a question that differs from it; the early mention is the question as it was put, with its answer
    and without the rewrite. Conversations are made of whole dialogs. The weights of the history memory were chosen on
    half of the same dialogs, joined in another order, so that some of them are in the "report" half too.

    Returns:
        For each part the history memory, similarity of question and answer (a plain vector search), and the last five rounds.
    """
    every = conversations(datasets, _ROUNDS, seed)
    half = len(every) // 2
    rows: list[MentionRow] = []
    chosen = {}
    for part, group in (("tuning", every[:half]), ("report", every[half:])):
        candidates = [(turns, place) for turns in group for place in _probed(turns)]
        random.Random(seed).shuffle(candidates)  # noqa: S311 - a choice of data
        chosen[part] = candidates[:probes]
    with track(progress, sum(len(found) for found in chosen.values()), "Probing") as advance:
        for part, found in chosen.items():
            hits: dict[str, list[bool]] = {"history memory": [], "similarity": [], "last rounds": []}
            for turns, place in found:
                knowledge, probe = knowledge_of(turns), turns[place].rewrite
                keys = [recalled.triple.key for recalled in memory.relevant(knowledge, probe, _K)]
                hits["history memory"].append(place + 1 in keys)
                *rounds, asked = memory.vectors([*(f"{t.question} {t.answer[:300]}".strip() for t in turns), probe])
                hits["similarity"].append(place in np.argsort(-(np.stack(rounds) @ asked), kind="stable")[:_K])
                hits["last rounds"].append(place >= len(turns) - _K)
                advance(1)
            rows += [MentionRow(part, name, len(h), float(np.mean(h)) if h else 0.0) for name, h in hits.items()]
    return rows


def _probed(turns: Sequence[Turn]) -> list[int]:
    return [
        place
        for place, turn in enumerate(turns[:_LATEST])
        if turn.rewrite and _plain(turn.rewrite) != _plain(turn.question) and turn.answer
    ]


def _plain(text: str) -> str:
    return text.strip().lower().rstrip("?. ")
