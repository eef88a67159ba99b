"""Benchmark of scoring, beside the bare product, FAISS and ANN indexes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.bench.scoring_methods import (
    APPROXIMATE,
    METHODS,
    SEARCHES,
    Method,
    check_methods,
    prepare,
    synthetic_memory,
)
from langgraph_convcoa.evaluation.reports.kit import Report, Table, new_figure, shown, style
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.retrieval.scoring.patterns import Patterns
from langgraph_convcoa.retrieval.scoring.topk import search

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_RECALL_AT = 10


@dataclass(frozen=True)
class BenchRow:
    """One method at one size; the median also over those of the bare product and of the float32 search.

    `recall` is the share of the float32 search's best 10 among the best 10 of a search.
    """

    patterns: int
    sets: int
    batch: int
    method: str
    median_ms: float
    fastest_ms: float
    to_product: float | None
    to_float32: float | None
    recall: float | None


@dataclass(frozen=True)
class BenchReport(Report):
    """Times of one run, the methods alternating; `k` passages a query, patterns of length `dimension`, torch's `threads`."""

    rows: tuple[BenchRow, ...]
    k: int
    dimension: int
    threads: int
    runs: int

    def tables(self) -> tuple[Table, ...]:
        rows = []
        for r in self.rows:
            times = (shown(r.median_ms, 1), shown(r.fastest_ms, 1), shown(r.to_product, 2), shown(r.to_float32, 2))
            rows.append([f"{r.patterns:,}", str(r.batch), r.method, *times, shown(r.recall)])
        columns = ("patterns", "batch", "method", "ms", "fastest", "to product", "to float32", f"recall@{_RECALL_AT}")
        note = f"k = {self.k}, {self.dimension} numbers a pattern, {self.threads} threads, {self.runs} alternating runs"
        return (Table("", columns, rows, note, left=3),)

    def figure(self) -> Figure:
        """Time a query against the number of patterns."""
        batches = sorted({row.batch for row in self.rows})
        figure = new_figure(5 * len(batches), 4)
        for place, batch in enumerate(batches):
            axes = figure.add_subplot(1, len(batches), place + 1)
            for method in dict.fromkeys(row.method for row in self.rows):
                of_method = [row for row in self.rows if (row.method, row.batch) == (method, batch)]
                points = sorted((row.patterns, row.median_ms / batch) for row in of_method)
                axes.loglog(*zip(*points, strict=True), marker="o", label=method)
            axes.set(title=f"batch {batch}, k = {self.k}", xlabel="patterns", ylabel="ms a query")
            style(axes)
            axes.legend()
        return figure


def bench_scoring(
    sizes: Sequence[int] = (400_000,),
    *,
    batches: Sequence[int] = (1, 32),
    methods: Sequence[str] = METHODS,
    k: int = 100,
    dimension: int = 384,
    runs: int = 7,
    seed: int = 0,
    progress: Progress = False,
) -> BenchReport:
    """Time scoring over memories of `synthetic_memory`: sets of about 8 windows around a whole-passage pattern, in 500 topics.

    Args:
        sizes: Numbers of patterns.
        batches: Numbers of queries at a time.
        methods: Some of `METHODS`, approximate and approximate-passages. Building is never timed.
        k: How many passages a query.
        dimension: Length of a pattern.
        runs: How often each is timed.
        seed: Of the memory and the queries.
        progress: A bar, a callback or nothing.

    Raises:
        InputError: A method is unknown or not installed, or a number is below 1.
    """
    check_methods(methods)
    if min([*sizes, *batches, k, dimension, runs], default=0) < 1 or not sizes or not batches:
        raise InputError("Sizes, batches, k, dimension and runs must be at least 1.")
    rows: list[BenchRow] = []
    for size in sizes:
        patterns, queries = synthetic_memory(size, dimension, max(batches), seed)
        stages = prepare(patterns, methods, k, progress)
        with track(progress, len(batches) * runs, f"Timing {size:,} patterns") as advance:
            for batch in batches:
                rows += _time(patterns, queries[:batch], stages, k, runs, advance)
        del stages
    return BenchReport(tuple(rows), k, dimension, torch.get_num_threads(), runs)


def _time(
    patterns: Patterns, queries: Vectors, stages: dict[str, Method], k: int, runs: int, advance: Callable[[int], None]
) -> list[BenchRow]:
    queries = np.ascontiguousarray(queries)
    best = [set(ranking.indices.tolist()) for ranking in search(patterns, queries, k=min(_RECALL_AT, k))]
    recalls: dict[str, float | None] = {}
    for name, stage in stages.items():
        found = stage(queries)
        recalls[name] = _recall(best, found) if name in SEARCHES or name in APPROXIMATE else None
    times: dict[str, list[float]] = {name: [] for name in stages}
    for _ in range(runs):
        for name, stage in stages.items():
            start = time.perf_counter()
            stage(queries)
            times[name].append(1000 * (time.perf_counter() - start))
        advance(1)
    medians = {name: float(np.median(values)) for name, values in times.items()}
    product, float32 = medians.get("product"), medians.get("float32")
    return [
        BenchRow(
            patterns=len(patterns.values),
            sets=patterns.n,
            batch=len(queries),
            method=name,
            median_ms=medians[name],
            fastest_ms=min(values),
            to_product=medians[name] / product if product else None,
            to_float32=medians[name] / float32 if float32 else None,
            recall=recalls[name],
        )
        for name, values in times.items()
    ]


def _recall(best: list[set[int]], found: object) -> float:
    assert isinstance(found, list)
    shares = [
        len(wanted & set(ranking.indices[:_RECALL_AT].tolist())) / len(wanted)
        for wanted, ranking in zip(best, found, strict=True)
    ]
    return float(np.mean(shares))
