"""Benchmark of scoring against a plain matrix product and FAISS."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.reports.kit import Report, Table, new_figure, shown, style
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.retrieval.scoring.patterns import Patterns, PatternType, encode_patterns
from langgraph_convcoa.retrieval.scoring.topk import search
from langgraph_convcoa.retrieval.threads import cores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_RECALL_AT = 10
METHODS = ("product", "float32", "int8", "faiss")
"""The bare torch product over the same patterns; `search` over float32 and int8 patterns; FAISS `IndexFlatIP` over the same
patterns."""

SEARCHES: tuple[PatternType, ...] = ("float32", "int8")
_ROWS = 65_536
# y_0 and 4 to 12 windows, so that a set has about 8.
_SMALLEST, _LARGEST = 5, 13
_TOPICS = 500
_WINDOW_NOISE = 0.8

Method = Callable[[Vectors], object]


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

    Measured are numbers of patterns, each with numbers of queries at a time, by some of `METHODS`; building is never timed.

    Raises:
        InputError: A method is unknown or not installed, or a number is below 1.
    """
    check_methods(methods)
    if min([*sizes, *batches, k, dimension, runs], default=0) < 1 or not sizes or not batches:
        raise InputError("Sizes, batches, k, dimension and runs must be at least 1.")
    rows: list[BenchRow] = []
    for size in sizes:
        patterns, queries = synthetic_memory(size, dimension, max(batches), seed)
        stages = prepare(patterns, methods, k)
        with track(progress, len(batches) * runs, f"Timing {size:,} patterns") as advance:
            for batch in batches:
                rows += _time(patterns, queries[:batch], stages, k, runs, advance)
        del stages
    return BenchReport(tuple(rows), k, dimension, cores(), runs)


def _time(
    patterns: Patterns, queries: Vectors, stages: dict[str, Method], k: int, runs: int, advance: Callable[[int], None]
) -> list[BenchRow]:
    queries = np.ascontiguousarray(queries)
    best = [set(ranking.indices.tolist()) for ranking in search(patterns, queries, k=min(_RECALL_AT, k))]
    recalls: dict[str, float | None] = {}
    for name, stage in stages.items():
        found = stage(queries)
        recalls[name] = _recall(best, found) if name in SEARCHES else None
    times: dict[str, list[float]] = {name: [] for name in stages}
    for _ in range(runs):
        for name, stage in stages.items():
            start = time.perf_counter()
            stage(queries)
            times[name].append(1000 * (time.perf_counter() - start))
        advance(1)
    medians = {name: float(np.median(values)) for name, values in times.items()}
    product, float32 = medians.get("product"), medians.get("float32")
    rows = []
    for name, values in times.items():
        over_product, over_float32 = (medians[name] / other if other else None for other in (product, float32))
        sizes = (len(patterns.values), patterns.n, len(queries))
        rows.append(BenchRow(*sizes, name, medians[name], min(values), over_product, over_float32, recalls[name]))
    return rows


def _recall(best: list[set[int]], found: object) -> float:
    assert isinstance(found, list)
    firsts = (set(ranking.indices[:_RECALL_AT].tolist()) for ranking in found)
    return float(np.mean([len(wanted & first) / len(wanted) for wanted, first in zip(best, firsts, strict=True)]))


def check_methods(methods: Sequence[str]) -> None:
    """Raise InputError for a method that is unknown or not installed."""
    unknown = [name for name in methods if name not in METHODS]
    if unknown or not methods:
        raise InputError(f"There is no method {', '.join(unknown) or '(none named)'}; choose from {', '.join(METHODS)}.")
    if "faiss" in methods and importlib.util.find_spec("faiss") is None:
        raise InputError("FAISS is not installed; pip install faiss-cpu, or leave it out: --methods product,float32,int8.")


def prepare(patterns: Patterns, methods: Sequence[str], k: int) -> dict[str, Method]:
    """What each method does with queries for the k best passages; everything that can be is built beforehand."""
    stages: dict[str, Method] = {}
    for name in methods:
        if name == "product":
            stages[name] = lambda x: torch.from_numpy(x) @ torch.from_numpy(patterns.values).T
        elif name == "faiss":
            stages[name] = _faiss(patterns, k)
        else:
            stages[name] = partial(search, patterns if name == "float32" else _int8(patterns), k=k)
    return stages


def _int8(patterns: Patterns) -> Patterns:
    parts = [encode_patterns(patterns.rows(a, a + _ROWS), "int8") for a in range(0, len(patterns.values), _ROWS)]
    values, scales = (np.concatenate([part[place] for part in parts]) for place in (0, 1))
    return Patterns(values, patterns.offsets, scales, "int8")


def _faiss(patterns: Patterns, k: int) -> Method:
    import faiss

    faiss.omp_set_num_threads(cores())
    index = faiss.IndexFlatIP(patterns.d)
    index.add(patterns.values)
    return lambda x: index.search(x, k)


def synthetic_memory(size: int, dimension: int, queries: int, seed: int) -> tuple[Patterns, Vectors]:
    """About `size` unit patterns in sets, and unit queries (q, d), each near a passage.

    Vectors of real text lie in clusters, and so do these; on vectors of evenly spread directions the recall of an approximate
    search would say nothing. Of 500 random directions, the topics, each passage takes one: y_0 is that plus a random unit
    vector, normalised (cosine about 0.5 between two passages of a topic, 0 else). A window is y_0 plus 0.8 times a random unit
    vector, normalised (cosine about 0.78 to it), and so is a query, of a passage taken at random.

    Example:
        >>> patterns, queries = synthetic_memory(100, 16, 2, seed=0)
        >>> len(patterns.values), patterns.n, queries.shape
        (100, 11, (2, 16))
    """
    rng = np.random.default_rng(seed)
    sizes = rng.integers(_SMALLEST, _LARGEST + 1, size // _SMALLEST + 1)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    # The last set ends at the size asked for, or a set is left out where it would have too few.
    offsets = offsets[: max(2, int(np.searchsorted(offsets, size - 1)))]
    offsets[-1] = max(size, 2)
    n = len(offsets) - 1
    topics = _unit(rng, (_TOPICS, dimension))
    whole = _normalise(topics[rng.integers(0, _TOPICS, n)] + _unit(rng, (n, dimension)))
    owners = np.repeat(np.arange(n), np.diff(offsets))
    values = np.empty((len(owners), dimension), dtype=np.float32)
    for start in range(0, len(values), _ROWS):
        part = owners[start : start + _ROWS]
        values[start : start + _ROWS] = _normalise(whole[part] + _WINDOW_NOISE * _unit(rng, (len(part), dimension)))
    values[offsets[:-1]] = whole
    near = whole[rng.integers(0, n, queries)]
    return Patterns(values, offsets), _normalise(near + _WINDOW_NOISE * _unit(rng, (queries, dimension)))


def _unit(rng: np.random.Generator, shape: tuple[int, int]) -> Vectors:
    return _normalise(rng.standard_normal(shape, dtype=np.float32))


def _normalise(rows: Vectors) -> Vectors:
    unit: Vectors = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit
