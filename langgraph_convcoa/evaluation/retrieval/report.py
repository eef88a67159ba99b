"""Report of a comparison of retrieval methods: measures, intervals and tests, for each source and over all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from langgraph_convcoa.evaluation.metrics.ranking import found_all, ndcg, recall, reciprocal_rank
from langgraph_convcoa.evaluation.metrics.significance import Sample, bootstrap_interval, paired_test
from langgraph_convcoa.evaluation.reports.kit import Report, Table, shown

METRICS: dict[str, Callable[[Sequence[str], Sequence[str]], float]] = {
    "MRR": reciprocal_rank,
    "Recall@1": lambda ranking, gold: recall(ranking, gold, 1),
    "Recall@5": lambda ranking, gold: recall(ranking, gold, 5),
    "Recall@10": lambda ranking, gold: recall(ranking, gold, 10),
    "Recall@100": lambda ranking, gold: recall(ranking, gold, 100),
    "All@5": lambda ranking, gold: found_all(ranking, gold, 5),
    "All@10": lambda ranking, gold: found_all(ranking, gold, 10),
    "nDCG@10": lambda ranking, gold: ndcg(ranking, gold, 10),
}
"""Functions of a ranking and the gold ids. All@k is the share of the questions with all gold passages among the first k; it
equals Recall@k if each question has one gold passage."""

_DECIMALS = 4
_RESAMPLES = 2000


@dataclass(frozen=True, eq=False)
class Measured:
    """Measures of the n queries that a method was asked: their indexes in ascending order, (n, m) values, n conversations."""

    rows: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]
    conversations: tuple[str, ...]

    def less(self, other: Measured) -> Sample:
        """The differences on the queries that both methods were asked."""
        shared, mine, others = np.intersect1d(self.rows, other.rows, return_indices=True)
        conversations = [self.conversations[i] for i in mine]
        return Sample(self.values[mine] - other.values[others], conversations if len(shared) else [])


@dataclass(frozen=True)
class MethodResult:
    """Figures of one method: the mean of each measure, its 95% interval, and p of a paired test against the baseline.

    Over several sources a measure is the mean of its means in the sources. Intervals and tests are over conversations.
    """

    queries: int
    metrics: dict[str, float]
    seconds: float
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    p_values: dict[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "queries": self.queries,
            **self.metrics,
            "intervals": {name: [round(end, _DECIMALS) for end in ends] for name, ends in self.intervals.items()},
            "p": {name: round(value, _DECIMALS) for name, value in self.p_values.items()},
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True)
class RetrievalReport(Report):
    """The measures of each method over one pool; MRR counts the first 100 documents.

    `left_out` counts the queries without a gold passage in the pool; `part` is the part of the data set, empty for all.
    """

    dataset: str
    documents: int
    queries: int
    left_out: int
    methods: dict[str, MethodResult]
    baseline: str = ""
    part: str = ""
    measured: dict[str, Measured] = field(default_factory=dict, repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        names = ("dataset", "part", "documents", "queries", "left_out", "baseline")
        methods = {name: result.to_dict() for name, result in self.methods.items()}
        return {**{name: getattr(self, name) for name in names}, "methods": methods}

    def tables(self) -> tuple[Table, ...]:
        part = f" ({self.part})" if self.part else ""
        left_out = f", {self.left_out} left out (no gold passage in the pool)" if self.left_out else ""
        title = f"{self.dataset}{part}: {self.queries} queries, {self.documents} documents{left_out}"
        return (_table(title, self.methods, self.baseline),)


@dataclass(frozen=True)
class SourcesReport(Report):
    """A report for each of several sources, and the mean over them; each source has the same weight."""

    sources: tuple[RetrievalReport, ...]
    macro: dict[str, MethodResult]
    baseline: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {
            "sources": [report.to_dict() for report in self.sources],
            "baseline": self.baseline,
            "macro": {name: result.to_dict() for name, result in self.macro.items()},
        }

    def tables(self) -> tuple[Table, ...]:
        own = [table for report in self.sources for table in report.tables()]
        return (*own, _table(f"macro: mean over {len(self.sources)} sources", self.macro, self.baseline))


def results_of(
    sources: Sequence[Mapping[str, Measured]], seconds: Mapping[str, float], baseline: str, seed: int
) -> dict[str, MethodResult]:
    """Means, intervals and paired tests of each method, from its measures in every source."""
    results = {}
    for method in sources[0]:
        measured = [source[method] for source in sources]
        if not all(len(part.rows) for part in measured):
            if len(sources) == 1:
                results[method] = MethodResult(0, dict.fromkeys(METRICS, 0.0), seconds[method])
            continue
        means = np.mean([part.values.mean(axis=0) for part in measured], axis=0)
        samples = [Sample(part.values, part.conversations) for part in measured]
        low, high = bootstrap_interval(samples, resamples=_RESAMPLES, seed=seed)
        p_values = {}
        if method != baseline:
            differences = [part.less(source[baseline]) for part, source in zip(measured, sources, strict=True)]
            if all(len(sample.values) for sample in differences):
                tested = paired_test(differences, resamples=5 * _RESAMPLES, seed=seed)
                p_values = dict(zip(METRICS, tested.tolist(), strict=True))
        queries, figures = sum(len(part.rows) for part in measured), dict(zip(METRICS, means.tolist(), strict=True))
        intervals = dict(zip(METRICS, zip(low.tolist(), high.tolist(), strict=True), strict=True))
        results[method] = MethodResult(queries, figures, seconds[method], intervals, p_values)
    return results


def _table(title: str, methods: Mapping[str, MethodResult], baseline: str) -> Table:
    # All@k is shown if a question has several gold passages.
    same = [
        f"All@{k}"
        for k in (5, 10)
        if all(result.metrics[f"All@{k}"] == result.metrics[f"Recall@{k}"] for result in methods.values())
    ]
    first, *others = [name for name in METRICS if name not in same]
    rows = []
    for name, result in methods.items():
        low, high = result.intervals.get(first, (0.0, 0.0))
        measures = [shown(result.metrics[first]), f"{low:.3f}-{high:.3f}", *(shown(result.metrics[other]) for other in others)]
        rows.append([name, *measures, shown(result.p_values.get(first), 4), str(result.queries)])
    note = f"95% interval of MRR over conversations; p: MRR against {baseline}, paired randomisation"
    return Table(title, ("method", first, "95%", *others, "p", "queries"), rows, note)
