"""How long scoring a memory takes, beside the bare product, FAISS and LangChain's store in memory."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore
from rich.table import Table

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.base import Vectors
from langgraph_convcoa.retrieval.patterns import Patterns, PatternType, encode_patterns
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.retrieval.scoring import Ranking, search

METHODS = ("product", "float32", "int8", "faiss", "langchain")
"""The bare torch product over the same patterns; `search` over float32, int8, and, where named, float16 and bfloat16 patterns;
FAISS `IndexFlatIP` over the same patterns; LangChain's `InMemoryVectorStore` over the whole-passage patterns, one query at a
time."""

_TYPES: tuple[PatternType, ...] = ("float32", "float16", "bfloat16", "int8")
_SEARCHES: dict[str, PatternType] = {name: name for name in _TYPES}
_KNOWN = (*METHODS, "float16", "bfloat16")
# y_0 and 4 to 12 windows, so that a set has about 8.
_SMALLEST, _LARGEST = 5, 13
_TOPICS = 500
_WINDOW_NOISE = 0.8
_RECALL_AT = 10
_ROWS = 65_536
# LangChain's store keeps every number as a Python object and takes seconds a query.
_LANGCHAIN_RUNS = 3

Run = Callable[[], object]


@dataclass(frozen=True)
class BenchRow:
    """One method at one size; `recall` is the share of the float32 search's best 10 that a search finds."""

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
class BenchReport:
    """Times of one run, the methods alternating.

    Attributes:
        rows: Every size, batch and method, its median also over those of the bare product and the float32 search.
        k: How many passages a query.
        dimension: Length of a pattern.
        threads: Threads that torch used.
        runs: Timed repetitions of each.
    """

    rows: tuple[BenchRow, ...]
    k: int
    dimension: int
    threads: int
    runs: int

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON data."""
        return asdict(self)

    def __rich__(self) -> Table:
        caption = f"k = {self.k}, {self.dimension} numbers a pattern, {self.threads} threads, {self.runs} alternating runs"
        table = Table("patterns", "batch", "method", "ms", "fastest", "to product", "to float32", f"recall@{_RECALL_AT}")
        table.caption = caption
        for r in self.rows:
            times = (f"{r.median_ms:.1f}", f"{r.fastest_ms:.1f}", _number(r.to_product, 2), _number(r.to_float32, 2))
            table.add_row(f"{r.patterns:,}", str(r.batch), r.method, *times, _number(r.recall, 3))
        return table


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
    """Time scoring over made-up memories: sets of about 8 windows around a whole-passage pattern, in 500 topics.

    Args:
        sizes: Numbers of patterns.
        batches: Numbers of queries at a time.
        methods: Some of `METHODS`, float16 and bfloat16.
        k: How many passages a query.
        dimension: Length of a pattern.
        runs: How often each is timed.
        seed: Of the memory and the queries.
        progress: A bar, a callback or nothing.

    Raises:
        InputError: A method is unknown or not installed, or a number is below 1.
    """
    unknown = [name for name in methods if name not in _KNOWN]
    if unknown or not methods:
        raise InputError(f"There is no method {', '.join(unknown) or '(none named)'}; choose from {', '.join(_KNOWN)}.")
    if min([*sizes, *batches, k, dimension, runs], default=0) < 1 or not sizes or not batches:
        raise InputError("Sizes, batches, k, dimension and runs must be at least 1.")
    if "faiss" in methods and importlib.util.find_spec("faiss") is None:
        raise InputError("FAISS is not installed; pip install faiss-cpu, or leave it out: --methods product,float32,int8.")
    rows: list[BenchRow] = []
    with track(progress, len(sizes) * len(batches), "Timing") as advance:
        for size in sizes:
            patterns, queries = made_up_memory(size, dimension, max(batches), seed)
            stages = _prepare(patterns, methods, k)
            for batch in batches:
                rows += _time(patterns, queries[:batch], stages, k, runs)
                advance(1)
            del stages
    return BenchReport(tuple(rows), k, dimension, torch.get_num_threads(), runs)


def made_up_memory(size: int, dimension: int, queries: int, seed: int) -> tuple[Patterns, Vectors]:
    """About `size` unit patterns in sets, and unit queries (q, d), each near a passage.

    Example:
        >>> patterns, queries = made_up_memory(100, 16, 2, seed=0)
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


def plot(report: BenchReport, path: str | Path) -> None:
    """Draw time a query against the number of patterns.

    Raises:
        InputError: matplotlib is not installed, or the picture cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("matplotlib is not installed; pip install matplotlib, or leave out --plot.") from None
    batches = sorted({row.batch for row in report.rows})
    figure = Figure(figsize=(5 * len(batches), 4), layout="constrained")
    for place, batch in enumerate(batches):
        axes = figure.add_subplot(1, len(batches), place + 1)
        for method in dict.fromkeys(row.method for row in report.rows):
            points = sorted((r.patterns, r.median_ms / batch) for r in report.rows if (r.method, r.batch) == (method, batch))
            axes.loglog(*zip(*points, strict=True), marker="o", label=method)
        axes.set(title=f"batch {batch}, k = {report.k}", xlabel="patterns", ylabel="ms a query")
        axes.grid(visible=True, which="both", alpha=0.3)
        axes.legend()
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise InputError(f"The picture cannot be written to {path}: {error}.") from None


def _prepare(patterns: Patterns, methods: Sequence[str], k: int) -> dict[str, Callable[[Vectors], object]]:
    """What each method does with queries; all that can be made beforehand is."""
    stages: dict[str, Callable[[Vectors], object]] = {}
    for name in methods:
        if name == "product":
            stages[name] = lambda x: torch.from_numpy(x) @ patterns.tensor.T
        elif name == "faiss":
            stages[name] = _faiss(patterns, k)
        elif name == "langchain":
            stages[name] = _langchain(patterns, k)
        else:
            stages[name] = _searcher(patterns, _SEARCHES[name], k)
    return stages


def _searcher(patterns: Patterns, dtype: PatternType, k: int) -> Callable[[Vectors], list[Ranking]]:
    if dtype != patterns.dtype:
        parts = [encode_patterns(patterns.rows(a, a + _ROWS), dtype) for a in range(0, len(patterns.values), _ROWS)]
        values = np.concatenate([part[0] for part in parts])
        scales = np.concatenate([part[1] for part in parts]) if dtype == "int8" else None
        patterns = Patterns(values, patterns.offsets, scales, dtype)
    return lambda x: search(patterns, x, k=k)


def _faiss(patterns: Patterns, k: int) -> Callable[[Vectors], object]:
    import faiss

    faiss.omp_set_num_threads(torch.get_num_threads())
    index = faiss.IndexFlatIP(patterns.d)
    index.add(patterns.values)
    return lambda x: index.search(x, k)


def _langchain(patterns: Patterns, k: int) -> Callable[[Vectors], object]:
    store = InMemoryVectorStore(_Ready(patterns))
    store.add_texts([str(n) for n in range(patterns.n)])
    return lambda x: [store.similarity_search_by_vector(row.tolist(), k=k) for row in x]


class _Ready(Embeddings):
    """Hands out the whole-passage patterns by number."""

    def __init__(self, patterns: Patterns) -> None:
        self._patterns = patterns

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        vectors: list[list[float]] = self._patterns.take(self._patterns.offsets[[int(text) for text in texts]]).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


def _time(
    patterns: Patterns, queries: Vectors, stages: dict[str, Callable[[Vectors], object]], k: int, runs: int
) -> list[BenchRow]:
    queries = np.ascontiguousarray(queries)
    best = [set(ranking.indices.tolist()) for ranking in search(patterns, queries, k=min(_RECALL_AT, k))]
    # One query is enough of what takes seconds for each.
    given = {name: queries[:1] if name == "langchain" else queries for name in stages}
    recalls: dict[str, float | None] = {}
    for name, stage in stages.items():
        found = stage(given[name])
        recalls[name] = _recall(best, found) if name in _SEARCHES else None
    times: dict[str, list[float]] = {name: [] for name in stages}
    for number in range(runs):
        for name, stage in stages.items():
            if name == "langchain" and number >= _LANGCHAIN_RUNS:
                continue
            start = time.perf_counter()
            stage(given[name])
            times[name].append(1000 * (time.perf_counter() - start) * len(queries) / len(given[name]))
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


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _recall(best: list[set[int]], found: object) -> float:
    assert isinstance(found, list)
    shares = [
        len(wanted & set(ranking.indices[:_RECALL_AT].tolist())) / len(wanted)
        for wanted, ranking in zip(best, found, strict=True)
    ]
    return float(np.mean(shares))


def _unit(rng: np.random.Generator, shape: tuple[int, int]) -> Vectors:
    return _normalise(rng.standard_normal(shape, dtype=np.float32))


def _normalise(rows: Vectors) -> Vectors:
    unit: Vectors = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit
