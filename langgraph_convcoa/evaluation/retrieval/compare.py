"""Comparison of retrieval methods on the same questions, and its report: `convcoa evaluate retrieval`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

from langgraph_convcoa.datasets.queries import Dataset
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.methods.registry import PLAIN, check_retrieval_methods, retrieval_kind
from langgraph_convcoa.evaluation.metrics import (
    Sample,
    bootstrap_interval,
    found_all,
    ndcg,
    paired_test,
    recall,
    reciprocal_rank,
)
from langgraph_convcoa.evaluation.reports import Report, Table, shown
from langgraph_convcoa.evaluation.retrieval.rankers import Pool, Ranker, Rankers, as_ranker, index_pool, passage_pool
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.encoders.embeddings import as_encoder
from langgraph_convcoa.retrieval.index.index import Index
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.retrieval.query.model import RetrieverModel, model_for, opened_model

METRICS: dict[str, Callable[[Sequence[str], Sequence[str]], float]] = {
    "MRR": reciprocal_rank,
    **{f"Recall@{k}": partial(recall, k=k) for k in (1, 5, 10, 100)},
    **{f"All@{k}": partial(found_all, k=k) for k in (5, 10)},
    "nDCG@10": partial(ndcg, k=10),
}
"""Functions of a ranking and the gold ids. All@k is the share of the questions with all gold passages among the first k; it
equals Recall@k if each question has one gold passage."""

_DECIMALS = 4
_RESAMPLES = 2000
_BATCH = 64


@dataclass(frozen=True, eq=False)
class Measured(Sample):
    """The m measures of one method for n queries; `rows` are the indexes of the queries, in ascending order."""

    rows: npt.NDArray[np.int64]

    def less(self, other: Measured) -> Sample:
        """This method's values minus the other's, for the queries that both methods were asked."""
        _, mine, others = np.intersect1d(self.rows, other.rows, return_indices=True)
        return Sample(self.values[mine] - other.values[others], [self.conversations[i] for i in mine])


@dataclass(frozen=True)
class MethodResult:
    """Figures of one method: the mean of each measure, its 95% interval, and p of a paired test against the baseline.

    Over several sources, a measure is the mean of its means in the sources. Intervals and tests are over conversations.
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
    """The measures of each method over one pool; MRR counts the first 100 documents."""

    dataset: str
    documents: int
    queries: int
    left_out: int  # Queries without a gold passage in the pool.
    methods: dict[str, MethodResult]
    baseline: str = ""
    part: str = ""  # Part of the data set; empty for all.
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
        low, high = bootstrap_interval(measured, resamples=_RESAMPLES, seed=seed)
        p_values = {}
        if method != baseline:
            differences = [part.less(source[baseline]) for part, source in zip(measured, sources, strict=True)]
            if all(len(sample.values) for sample in differences):
                tested = paired_test(differences, resamples=5 * _RESAMPLES, seed=seed)
                p_values = dict(zip(METRICS, tested.tolist(), strict=True))
        results[method] = MethodResult(
            queries=sum(len(part.rows) for part in measured),
            metrics=dict(zip(METRICS, means.tolist(), strict=True)),
            seconds=seconds[method],
            intervals=dict(zip(METRICS, zip(low.tolist(), high.tolist(), strict=True), strict=True)),
            p_values=p_values,
        )
    return results


def _table(title: str, methods: Mapping[str, MethodResult], baseline: str) -> Table:
    def is_shown(name: str) -> bool:
        # All@k is shown if a question has several gold passages.
        recall_name = name.replace("All", "Recall")
        return recall_name == name or any(one.metrics[name] != one.metrics[recall_name] for one in methods.values())

    first, *others = filter(is_shown, METRICS)
    rows = []
    for name, result in methods.items():
        low, high = result.intervals.get(first, (0.0, 0.0))
        measures = [shown(result.metrics[first]), f"{low:.3f}-{high:.3f}", *(shown(result.metrics[other]) for other in others)]
        rows.append([name, *measures, shown(result.p_values.get(first), 4), str(result.queries)])
    note = f"95% interval of MRR over conversations; p: MRR against {baseline}, paired randomisation"
    return Table(title, ("method", first, "95%", *others, "p", "queries"), rows, note)


def default_methods(model: RetrieverModel | None, *, index: bool = False) -> tuple[str, ...]:
    """The methods to compare by default. With a trained model, our methods are compared before and after training."""
    ours = ("untrained-dense", "untrained", "trained-dense", "trained") if model else ("dense", "hybrid")
    return ours if index else (*PLAIN, *ours)


@dataclass(frozen=True, kw_only=True)
class RetrievalOptions:
    """How retrieval methods are compared: the options of `evaluate_retrieval` and `evaluate_sources`."""

    methods: Sequence[str] | None = None  # Names. When None: `default_methods` and the names in `further`.
    further: Mapping[str, BaseRetriever | Ranker] = field(default_factory=dict)  # Your own methods by name.
    baseline: str | None = None  # Tests are against this method. When None: `untrained` if measured, else the first.
    model: RetrieverModel | str | Path | None = None  # A trained model, measured as `trained`.
    encoder: Encoder | str | None = None
    index: str | Path | None = None  # A folder with an index that is searched instead of the passages.
    distractors: Iterable[Document] = ()  # Passages that are searched besides those of the data set.
    settings: Mapping[str, Any] | None = None  # Settings of `HopfieldRetriever`, such as `beta`, for all methods with it.
    cache: PatternCache | None = None
    progress: Progress = False
    seed: int = 0  # Seed of the intervals and tests.


def evaluate_retrieval(dataset: Dataset, *, part: str = "", **options: Any) -> RetrievalReport:
    """Rank the passages of a pool for each query by several methods.

    A passage that is searched in parts ranks by its best part. Queries without a gold passage in the pool are left out and
    counted. `part` says which part of the data set the queries are; `options` are the fields of `RetrievalOptions`.

    Raises InputError if a method or the baseline is unknown, a method needs a model or rewrites that are missing, or no query
    has a gold passage in the pool.
    """
    (report,) = _reports([dataset], [part], RetrievalOptions(**options))
    return report


def evaluate_sources(datasets: Sequence[Dataset], *, parts: Sequence[str] | None = None, **options: Any) -> SourcesReport:
    """`evaluate_retrieval` for several data sets, each with its own pool, and the mean over them for each shared method.

    Raises InputError if there is no data set or two have the same name, and for the reasons of `evaluate_retrieval`.
    """
    if not datasets:
        raise InputError("There is no data to measure on; name at least one folder or file.")
    [(name, count)] = Counter(dataset.name for dataset in datasets).most_common(1)
    if count > 1:
        raise InputError(f"Two data sets are named {name}; rename one.")
    chosen = RetrievalOptions(**options)
    reports = _reports(datasets, parts or [""] * len(datasets), chosen)
    shared = [name for name in reports[0].methods if all(name in report.methods for report in reports)]
    seconds = {name: sum(report.methods[name].seconds for report in reports) for name in shared}
    sources = [{name: report.measured[name] for name in shared} for report in reports]
    macro = results_of(sources, seconds, reports[0].baseline, chosen.seed)
    return SourcesReport(tuple(reports), macro, reports[0].baseline)


def _reports(datasets: Sequence[Dataset], parts: Sequence[str], options: RetrievalOptions) -> list[RetrievalReport]:
    """The reports of several data sets; all methods are checked before anything is encoded."""
    encoder, distractors = as_encoder(options.encoder), list(options.distractors)
    model = model_for(opened_model(options.model), encoder)
    chosen = [_methods_of(dataset, options, model) for dataset in datasets]
    reference = options.baseline or ("untrained" if "untrained" in chosen[0] else chosen[0][0])
    if lacking := next((names for names in chosen if reference not in names), None):
        raise InputError(f"The baseline {reference!r} is not measured; name one of {', '.join(lacking)}.")
    if options.index is not None and distractors:
        raise InputError("An index is searched as it is; leave the distractors out, or add them to the index.")
    if model is not None and any(retrieval_kind(method) == "trained" for names in chosen for method in names):
        model.check_encoder(encoder)
    reports = []
    for dataset, part, names in zip(datasets, parts, chosen, strict=True):
        pool = passage_pool(dataset, distractors) if options.index is None else index_pool(dataset, Index(options.index))
        rankers = Rankers(pool, encoder, model, options.cache, options.progress, options.settings or {})
        measured, seconds = {}, {}
        for method in names:
            ranker = as_ranker(options.further[method]) if method in options.further else rankers.of(method)
            begin = perf_counter()
            measured[method] = _measure(ranker, method, pool, options.progress)
            seconds[method] = perf_counter() - begin
        results = results_of([measured], seconds, reference, options.seed)
        counts = pool.documents, len(pool.queries), pool.left_out
        reports.append(RetrievalReport(pool.name, *counts, results, reference, part, measured))
    return reports


def _methods_of(dataset: Dataset, options: RetrievalOptions, model: RetrieverModel | None) -> tuple[str, ...]:
    has_index, rewrites = options.index is not None, any(query.rewrite for query in dataset.queries)
    names = tuple(dict.fromkeys(options.methods or ()))
    if options.methods is None:
        named = default_methods(model, index=has_index)
        names = (*(method for method in named if rewrites or method != "rewrite"), *options.further)
    check_retrieval_methods(names, options.further, index=has_index, model=model is not None, rewrites=rewrites)
    return names


def _measure(ranker: Ranker, method: str, pool: Pool, progress: Progress) -> Measured:
    rows = [row for row, query in enumerate(pool.queries) if method != "rewrite" or query.rewrite]
    asked = [pool.queries[row] for row in rows]
    values = np.zeros((len(asked), len(METRICS)))
    with track(progress, len(asked), f"{pool.name}: {method}") as advance:
        for start in range(0, len(asked), _BATCH):
            batch = asked[start : start + _BATCH]
            for row, (ranking, query) in enumerate(zip(ranker(batch), batch, strict=True), start):
                values[row] = [measure(ranking, query.gold) for measure in METRICS.values()]
            advance(len(batch))
    return Measured(values, tuple(query.conversation_id for query in asked), np.array(rows, dtype=np.int64))
