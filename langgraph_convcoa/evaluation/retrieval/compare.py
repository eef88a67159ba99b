"""Comparison of retrieval methods on the same questions: `convcoa evaluate retrieval`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

from langgraph_convcoa.datasets.queries import Dataset
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.retrieval.methods import PLAIN, check_retrieval_methods, retrieval_kind
from langgraph_convcoa.evaluation.retrieval.rankers import (
    Pool,
    Ranker,
    Rankers,
    hopfield_ranker,
    index_pool,
    passage_pool,
    retriever_ranker,
)
from langgraph_convcoa.evaluation.retrieval.report import METRICS, Measured, RetrievalReport, SourcesReport, results_of
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.encoders.choice import as_encoder
from langgraph_convcoa.retrieval.index.index import Index
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.retrieval.query.model import RetrieverModel, model_for, opened_model
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

_BATCH = 64


def default_methods(model: RetrieverModel | None, *, index: bool = False) -> tuple[str, ...]:
    """The methods that are compared unless others are named: with a trained model our methods before and after training."""
    ours = ("untrained-dense", "untrained", "trained-dense", "trained") if model else ("dense", "hybrid")
    return ours if index else (*PLAIN, *ours)


@dataclass(frozen=True, kw_only=True)
class RetrievalOptions:
    """How retrieval methods are compared: the options of `evaluate_retrieval` and `evaluate_sources`."""

    methods: Sequence[str] | None = None  # Names; `default_methods` and those of `further` when None.
    further: Mapping[str, BaseRetriever | Ranker] = field(default_factory=dict)  # Your own methods by name.
    baseline: str | None = None  # Method to test the others against; `untrained` if it is measured, else the first.
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

    Raises:
        InputError: A method or the baseline is unknown, a method needs a model or rewrites that are missing, or no query
            has a gold passage in the pool.
    """
    (report,) = _reports([dataset], [part], RetrievalOptions(**options))
    return report


def evaluate_sources(datasets: Sequence[Dataset], *, parts: Sequence[str] | None = None, **options: Any) -> SourcesReport:
    """`evaluate_retrieval` for several data sets, each with its own pool, and the means of the methods that they share.

    Raises InputError if there is no data set or two have the same name, and as `evaluate_retrieval`.
    """
    if not datasets:
        raise InputError("There is no data to measure on; name at least one folder or file.")
    names = [dataset.name for dataset in datasets]
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise InputError(f"Two data sets are named {double}; rename one.")
    chosen = RetrievalOptions(**options)
    reports = _reports(datasets, parts or [""] * len(datasets), chosen)
    shared = [name for name in reports[0].methods if all(name in report.methods for report in reports)]
    seconds = {name: sum(report.methods[name].seconds for report in reports) for name in shared}
    sources = [{name: report.measured[name] for name in shared} for report in reports]
    macro = results_of(sources, seconds, reports[0].baseline, chosen.seed)
    return SourcesReport(tuple(reports), macro, reports[0].baseline)


def _reports(datasets: Sequence[Dataset], parts: Sequence[str], options: RetrievalOptions) -> list[RetrievalReport]:
    """The reports of several data sets; all methods are checked before anything is encoded."""
    encoder, has_index = as_encoder(options.encoder), options.index is not None
    model, distractors = model_for(opened_model(options.model), encoder), list(options.distractors)
    chosen = [_methods_of(dataset, options, model) for dataset in datasets]
    reference = options.baseline or ("untrained" if "untrained" in chosen[0] else chosen[0][0])
    lacking = next((names for names in chosen if reference not in names), None)
    if lacking is not None:
        raise InputError(f"The baseline {reference!r} is not measured; name one of {', '.join(lacking)}.")
    if has_index and distractors:
        raise InputError("An index is searched as it is; leave the distractors out, or add them to the index.")
    is_trained = any(retrieval_kind(method) == "trained" for names in chosen for method in names)
    if model is not None and is_trained:
        model.check_encoder(encoder)
    reports = []
    for dataset, part, names in zip(datasets, parts, chosen, strict=True):
        pool = passage_pool(dataset, distractors) if options.index is None else index_pool(dataset, Index(options.index))
        rankers = Rankers(
            pool, encoder, model=model, cache=options.cache, progress=options.progress, settings=options.settings
        )
        measured, seconds = {}, {}
        for method in names:
            further = options.further.get(method)
            ranker = rankers.of(method) if further is None else _ranker(further)
            begin = perf_counter()
            measured[method] = _measure(ranker, method, pool, options.progress)
            seconds[method] = perf_counter() - begin
        results = results_of([measured], seconds, reference, options.seed)
        counts = pool.documents, len(pool.queries), pool.left_out
        reports.append(RetrievalReport(pool.name, *counts, results, reference, part, measured))
    return reports


def _methods_of(dataset: Dataset, options: RetrievalOptions, model: RetrieverModel | None) -> tuple[str, ...]:
    """The methods of one data set, each once."""
    has_index, rewrites = options.index is not None, any(query.rewrite for query in dataset.queries)
    if options.methods is not None:
        names = tuple(dict.fromkeys(options.methods))
    else:
        named = default_methods(model, index=has_index)
        names = (*(method for method in named if rewrites or method != "rewrite"), *options.further)
    check_retrieval_methods(names, options.further, index=has_index, model=model is not None, rewrites=rewrites)
    return names


def _ranker(method: BaseRetriever | Ranker) -> Ranker:
    if isinstance(method, HopfieldRetriever):
        return hopfield_ranker(method)
    return retriever_ranker(method) if isinstance(method, BaseRetriever) else method


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
    return Measured(np.array(rows, dtype=np.int64), values, tuple(query.conversation_id for query in asked))
