"""The decision to recall an answer, measured on pairs of questions: precision on near misses, recall on paraphrases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from langgraph_convcoa.datasets.queries import Dataset
from langgraph_convcoa.evaluation.memory.pairs import Pair, make_pairs
from langgraph_convcoa.memory.conversation_memory import ConversationMemory
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.text.same_question import asks_the_same

PER_KIND = 200
"""Pairs of each kind at most, half of them for tuning."""
MADE = ("year", "number", "name", "rewrite", "rephrased")
"""The kinds of the stated precision and recall; "passage" pairs, whose labels are noisy, stand beside them."""


@dataclass(frozen=True)
class RecallRow:
    """One kind of pairs of one part: how many there are, and for how many of them the answer would be recalled."""

    part: str
    kind: str
    same: bool
    pairs: int
    recalled: int

    def to_dict(self) -> dict[str, Any]:
        """The row as JSON data."""
        return asdict(self)


@dataclass(frozen=True)
class RecallSummary:
    """Over the kinds of `MADE` of one part: precision over all its pairs, recall over those that ask the same."""

    part: str
    near_misses: int
    paraphrases: int
    precision: float
    recall: float

    def to_dict(self) -> dict[str, Any]:
        """The summary as JSON data."""
        return asdict(self)


def evaluate_recall(
    datasets: Sequence[Dataset],
    memory: ConversationMemory,
    *,
    per_kind: int = PER_KIND,
    seed: int = 0,
    progress: Progress = False,
) -> tuple[list[RecallRow], list[RecallSummary]]:
    """Count what would be recalled; every second pair of a kind is for tuning, the others are reported."""
    pairs = make_pairs(datasets, per_kind, seed)
    parts: dict[str, list[Pair]] = {"tuning": [], "report": []}
    for kind in dict.fromkeys((pair.kind, pair.same) for pair in pairs):
        own = [pair for pair in pairs if (pair.kind, pair.same) == kind]
        parts["tuning"] += own[::2]
        parts["report"] += own[1::2]
    rows: list[RecallRow] = []
    summaries = []
    with track(progress, len(pairs), "Comparing") as advance:
        for part, own in parts.items():
            counts: dict[tuple[str, bool], list[bool]] = {}
            for start in range(0, len(own), 64):
                block = own[start : start + 64]
                vectors = memory.vectors([text for pair in block for text in (pair.first, pair.second)])
                for n, pair in enumerate(block):
                    similarity = float(vectors[2 * n] @ vectors[2 * n + 1])
                    found = asks_the_same(pair.first, pair.second, similarity)
                    counts.setdefault((pair.kind, pair.same), []).append(found)
                advance(len(block))
            rows += [RecallRow(part, kind, same, len(found), sum(found)) for (kind, same), found in counts.items()]
            summaries.append(_summary(part, counts))
    return rows, summaries


def _summary(part: str, counts: dict[tuple[str, bool], list[bool]]) -> RecallSummary:
    wrong = [found for (kind, same), each in counts.items() if not same and kind in MADE for found in each]
    right = [found for (kind, same), each in counts.items() if same and kind in MADE for found in each]
    recalled = sum(wrong) + sum(right)
    return RecallSummary(
        part,
        len(wrong),
        len(right),
        sum(right) / recalled if recalled else 1.0,
        sum(right) / len(right) if right else 0.0,
    )
