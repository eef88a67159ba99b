"""The conversation memory, measured: what long conversations cost, what is found again, what is recalled and what not."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from langgraph_convcoa.datasets.read import load_dataset
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.memory.costs import RoundCost, around, evaluate_costs, ratio
from langgraph_convcoa.evaluation.memory.dialogs import dialogs
from langgraph_convcoa.evaluation.memory.mentions import MentionRow, evaluate_mentions
from langgraph_convcoa.evaluation.memory.recall import RecallRow, RecallSummary, evaluate_recall
from langgraph_convcoa.memory.conversation_memory import ConversationMemory
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.encoders.choice import as_encoder
from langgraph_convcoa.retrieval.progress import Progress

PARTS = ("costs", "mentions", "recall")
"""A long conversation round by round; recall@5 of an early round; the decision to recall an answer."""
_SHOWN = (10, 30, 50, 70, 95)
_FIELDS = ("prompt_tokens", "seconds", "state_kb")


@dataclass(frozen=True)
class MemoryReport:
    """Figures of a run; what was not measured is empty.

    Attributes:
        costs: Every round of one long conversation.
        mentions: Recall@5 of an early round, by part and method.
        recall: What would be recalled, by part and kind of pair.
        summaries: Precision and recall of that, by part.
    """

    costs: tuple[RoundCost, ...] = ()
    mentions: tuple[MentionRow, ...] = ()
    recall: tuple[RecallRow, ...] = ()
    summaries: tuple[RecallSummary, ...] = ()

    def ratios(self) -> dict[str, float | None]:
        """Median cost around round 50 over that around round 10."""
        return {name: ratio(self.costs, name) for name in _FIELDS}

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON data."""
        found: dict[str, Any] = {}
        if self.costs:
            found["costs"] = {
                "ratio_50_to_10": self.ratios(),
                "retrievals": sum(cost.retrievals for cost in self.costs),
                "retrievals_saved": sum(cost.recalled for cost in self.costs),
                "rounds": [cost.to_dict() for cost in self.costs],
            }
        if self.mentions:
            found["mentions"] = [row.to_dict() for row in self.mentions]
        if self.recall:
            found["recall"] = [row.to_dict() for row in self.recall]
            found["recall_summary"] = [row.to_dict() for row in self.summaries]
        return found

    def __rich__(self) -> RenderableType:
        tables: list[RenderableType] = []
        if self.costs:
            tables.append(self._costs())
        if self.mentions:
            table = Table("part", "method", "probes", "recall@5", title="An early round found again at round 60")
            for row in self.mentions:
                table.add_row(row.part, row.method, str(row.probes), f"{row.recall:.3f}")
            tables.append(table)
        if self.recall:
            tables.append(self._recall())
        return Group(*tables)

    def _costs(self) -> Table:
        table = Table("around round", "prompt tokens", "ms outside the model", "state, KB", title="Cost of a turn, medians")
        for number in _SHOWN:
            if window := around(self.costs, number):
                tokens, seconds, size = (statistics.median(getattr(c, name) for c in window) for name in _FIELDS)
                table.add_row(str(number), f"{tokens:,.0f}", f"{1000 * seconds:.0f}", f"{size:.0f}")
        ratios = [f"{value:.2f}" if value is not None else "-" for value in self.ratios().values()]
        table.add_row("50 to 10", *ratios, style="bold")
        made, saved = sum(c.retrievals for c in self.costs), sum(c.recalled for c in self.costs)
        table.caption = f"{len(self.costs)} rounds, {made} retrievals, {saved} saved by recalling"
        return table

    def _recall(self) -> Table:
        table = Table("part", "pairs", "asking the same", "number", "recalled", title="Answers that would be recalled")
        for row in self.recall:
            table.add_row(row.part, row.kind, "yes" if row.same else "no", str(row.pairs), str(row.recalled))
        lines = [
            f"{s.part}: precision {s.precision:.3f}, recall {s.recall:.3f} "
            f"({s.near_misses} near misses, {s.paraphrases} paraphrases; passage pairs apart)"
            for s in self.summaries
        ]
        table.caption = "\n".join(lines)
        return table


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

    Args:
        folders: Data folders; those whose rows have a history give the dialogs, all of them the pairs of questions.
        parts: Some of `PARTS`.
        rounds: Of the long conversation.
        probes: Of each half.
        seed: Which dialogs, probes and pairs.
        cache: Of encoded passages.
        progress: A bar, a callback or nothing.

    Raises:
        InputError: A part is unknown, a folder cannot be read, or the data holds no dialogs where they are needed.
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
    costs: list[RoundCost] = []
    mentions: list[MentionRow] = []
    recall: list[RecallRow] = []
    summaries: list[RecallSummary] = []
    if "costs" in parts:
        costs = evaluate_costs(talking, encoder, rounds=rounds, seed=seed, cache=cache, progress=progress)
    if "mentions" in parts:
        mentions = evaluate_mentions(talking, memory, probes=probes, seed=seed, progress=progress)
    if "recall" in parts:
        recall, summaries = evaluate_recall(datasets, memory, seed=seed, progress=progress)
    return MemoryReport(tuple(costs), tuple(mentions), tuple(recall), tuple(summaries))


def plot(report: MemoryReport, path: str | Path) -> None:
    """Draw prompt tokens and seconds against the round.

    Raises:
        InputError: There are no rounds to draw, matplotlib is not installed, or the picture cannot be written.
    """
    if not report.costs:
        raise InputError("There is nothing to draw without the part costs; add it, or leave out --plot.")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("matplotlib is not installed; pip install matplotlib, or leave out --plot.") from None
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    numbers = [cost.round for cost in report.costs]
    for place, (name, label, scale) in enumerate(
        [("prompt_tokens", "prompt tokens", 1), ("seconds", "ms outside the model", 1000)], start=1
    ):
        axes = figure.add_subplot(1, 2, place)
        axes.plot(numbers, [scale * getattr(cost, name) for cost in report.costs], ".", markersize=3)
        medians = [scale * statistics.median(getattr(c, name) for c in around(report.costs, n)) for n in numbers]
        axes.plot(numbers, medians, linewidth=2)
        axes.set(xlabel="round", ylabel=label, ylim=(0, None))
        axes.grid(visible=True, alpha=0.3)
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise InputError(f"The picture cannot be written to {path}: {error}.") from None
