"""Measurement of the conversation memory: cost of long conversations, early rounds found again, answers recalled."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.memory.costs import RoundCost, around, evaluate_costs, ratio
from experiments.memory.dialogs import Turn, conversations, dialogs
from experiments.memory.recall import RecallRow, RecallSummary, evaluate_recall
from langgraph_convcoa.datasets.queries import Dataset
from langgraph_convcoa.datasets.read import load_dataset
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.reports import Report, Table, shown
from langgraph_convcoa.memory.conversation_memory import ConversationMemory
from langgraph_convcoa.memory.knowledge_set import ContextualKnowledgeSet
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.encoders.embeddings import as_encoder
from langgraph_convcoa.retrieval.progress import Progress, track

PARTS = ("costs", "mentions", "recall")
"""They measure cost of a long conversation by round; recall@5 of an early round; precision and recall of recalled answers."""
_SHOWN = (10, 30, 50, 70, 95)
_FIELDS = ("prompt_tokens", "seconds", "state_kb")
_ROUNDS, _LATEST, _K = 59, 40, 5
"""Rounds before a probe; the probed round is among the first 40 of them; five rounds are retrieved."""


@dataclass(frozen=True)
class MentionRow:
    """One method over the probes of one part: the shares of probes whose round is among the five that were found."""

    part: str
    method: str
    probes: int
    recall: float


@dataclass
class MemoryReport(Report):
    """Costs of every round, recall@5 of an early round, and recalled answers with their precision; empty if not measured."""

    costs: Sequence[RoundCost] = ()
    mentions: Sequence[MentionRow] = ()
    recall: Sequence[RecallRow] = ()
    summaries: Sequence[RecallSummary] = ()

    def _ratios(self) -> dict[str, float | None]:
        return {name: ratio(self.costs, name) for name in _FIELDS}

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.costs:
            found["costs"] = {
                "ratio_50_to_10": self._ratios(),
                "retrievals": sum(cost.retrievals for cost in self.costs),
                "retrievals_saved": sum(cost.recalled for cost in self.costs),
                "rounds": list(map(asdict, self.costs)),
            }
        if self.mentions:
            found["mentions"] = list(map(asdict, self.mentions))
        if self.recall:
            found["recall"], found["recall_summary"] = list(map(asdict, self.recall)), list(map(asdict, self.summaries))
        return found

    def tables(self) -> list[Table]:
        tables = [self._costs()] if self.costs else []
        if self.mentions:
            rows = [[row.part, row.method, str(row.probes), shown(row.recall)] for row in self.mentions]
            columns = ("part", "method", "probes", "recall@5")
            tables.append(Table("An early round found again at round 60", columns, rows, left=2))
        if self.recall:
            same = {True: "yes", False: "no"}
            rows = [[row.part, row.kind, same[row.same], str(row.pairs), str(row.recalled)] for row in self.recall]
            named = ("part", "pairs", "asking the same", "number", "recalled")
            lines = [
                f"{s.part}: precision {s.precision:.3f}, recall {s.recall:.3f} ({s.near_misses} near misses, "
                f"{s.paraphrases} paraphrases; without passage pairs)."
                for s in self.summaries
            ]
            tables.append(Table("Answers that would be recalled", named, rows, " ".join(lines), left=3))
        return tables

    def _costs(self) -> Table:
        rows = []
        for number in _SHOWN:
            if window := around(self.costs, number):
                tokens, seconds, size = (statistics.median(getattr(c, name) for c in window) for name in _FIELDS)
                rows.append([str(number), shown(tokens, 0), shown(1000 * seconds, 0), shown(size, 0)])
        rows.append(["50 to 10", *(shown(value, 2) or "-" for value in self._ratios().values())])
        made, saved = sum(c.retrievals for c in self.costs), sum(c.recalled for c in self.costs)
        note = f"{len(self.costs)} rounds, {made} retrievals, {saved} saved by recalling"
        columns = ("around round", "prompt tokens", "ms outside the model", "state, KB")
        return Table("Cost of a turn, medians", columns, rows, note)


def evaluate_memory(
    folders: Sequence[str | Path],
    *,
    parts: Sequence[str] = PARTS,
    rounds: int = 100,
    probes: int = 200,
    seed: int = 0,
    cache: PatternCache | None = None,
    progress: Progress = False,
) -> MemoryReport:
    """Measure the conversation memory on real questions.

    Dialogs come from the folders whose rows have a history, pairs of questions from all folders. `parts` are some of `PARTS`.
    `probes` is the number of probes of each half. `seed` draws the dialogs, probes and pairs.

    Raises:
        InputError: A part is unknown, a folder cannot be read, or a part needs dialogs and the data has none.
    """
    unknown = [part for part in parts if part not in PARTS]
    if unknown or not parts:
        raise InputError(f"There is no part {', '.join(unknown) or '(none named)'}; choose from {', '.join(PARTS)}.")
    if not folders:
        raise InputError("Name at least one folder of queries.jsonl(.gz) and corpus.jsonl(.gz).")
    datasets = [load_dataset(folder) for folder in folders]
    talking = [dataset for dataset in datasets if any(query.history for query in dataset.queries)]
    if not dialogs(talking) and {"costs", "mentions"} & set(parts):
        raise InputError("The data holds no dialogs: name a folder whose rows have a conversation_id and a history.")
    encoder = as_encoder(None)
    memory = ConversationMemory(encoder)
    report = MemoryReport()
    if "costs" in parts:
        report.costs = evaluate_costs(talking, encoder, rounds=rounds, seed=seed, cache=cache, progress=progress)
    if "mentions" in parts:
        report.mentions = evaluate_mentions(talking, memory, probes=probes, seed=seed, progress=progress)
    if "recall" in parts:
        report.recall, report.summaries = evaluate_recall(datasets, memory, seed=seed, progress=progress)
    return report


def evaluate_mentions(
    datasets: Sequence[Dataset], memory: ConversationMemory, *, probes: int = 200, seed: int = 0, progress: Progress = False
) -> list[MentionRow]:
    """Find the round of a question from another wording of the question, 20 to 59 rounds later.

    A probe is a rewrite that differs from its question. The early mention is the question as it was put, with its answer
    and without the rewrite. Conversations are made of whole dialogs. The weights of the history memory were chosen on
    half of the same dialogs, joined in another order, so that some of them are in the "report" half too.

    Three methods are measured: the history memory, a plain vector search over question and answer, and the last five rounds.
    """
    every = conversations(datasets, _ROUNDS, seed)
    half = len(every) // 2
    rows: list[MentionRow] = []
    chosen = {}
    for part, group in (("tuning", every[:half]), ("report", every[half:])):
        candidates = [(turns, place) for turns in group for place in _probed(turns)]
        random.Random(seed).shuffle(candidates)
        chosen[part] = candidates[:probes]
    with track(progress, sum(len(found) for found in chosen.values()), "Probing") as advance:
        for part, found in chosen.items():
            hits: dict[str, list[bool]] = {"history memory": [], "similarity": [], "last rounds": []}
            for turns, place in found:
                # The questions are not resolved: each round has the question as it was put, with its answer.
                knowledge, probe = ContextualKnowledgeSet(), turns[place].rewrite
                for turn in turns:
                    knowledge.add_round(turn.question, turn.question, [], turn.answer)
                keys = [recalled.triple.key for recalled in memory.relevant(knowledge, probe, _K)]
                hits["history memory"].append(place + 1 in keys)
                *rounds, asked = memory.vectors([*(f"{t.question} {t.answer[:300]}".strip() for t in turns), probe])
                hits["similarity"].append(place in np.argsort(-(np.stack(rounds) @ asked), kind="stable")[:_K])
                hits["last rounds"].append(place >= len(turns) - _K)
                advance(1)
            rows += [MentionRow(part, name, len(h), float(np.mean(h)) if h else 0.0) for name, h in hits.items()]
    return rows


def _probed(turns: Sequence[Turn]) -> Iterator[int]:
    for place, turn in enumerate(turns[:_LATEST]):
        rewrite, question = (text.strip().lower().rstrip("?. ") for text in (turn.rewrite, turn.question))
        if turn.rewrite and rewrite != question and turn.answer:
            yield place
