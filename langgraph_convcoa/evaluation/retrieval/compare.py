"""Comparison of retrieval methods on the same questions: `convcoa evaluate retrieval`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from langchain_core.documents import Document

from langgraph_convcoa.datasets.queries import Dataset, Query
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.retrieval.methods import METHODS, PLAIN, base_of, chosen_methods
from langgraph_convcoa.evaluation.retrieval.rankers import (
    Pool,
    Ranker,
    Rankers,
    index_pool,
    passage_pool,
)
from langgraph_convcoa.evaluation.retrieval.report import METRICS, Measured, RetrievalReport, SourcesReport, results_of
from langgraph_convcoa.evaluation.retrieval.rewriting import Seq2Seq
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.encoders.choice import as_encoder
from langgraph_convcoa.retrieval.index.index import Index
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.retrieval.query.model import RetrieverModel, model_for, opened_model
from langgraph_convcoa.retrieval.query.query_encoder import QueryEncoder

_BATCH = 64


def default_methods(model: RetrieverModel | None, *, index: bool = False) -> tuple[str, ...]:
    """The methods that are compared unless others are named: with a trained model those before and after training."""
    ours = ("untrained-dense", "untrained", "trained-dense", "trained") if model else ("dense", "hybrid")
    return ours if index else (*PLAIN, *ours)


@dataclass(frozen=True, kw_only=True)
class RetrievalOptions:
    """How retrieval methods are compared: the options of `evaluate_retrieval` and `evaluate_sources`."""

    methods: Sequence[str] | None = None  # Of `methods.METHODS`; `default_methods` when None.
    baseline: str | None = None  # What the others are tested against; `untrained` if that is measured, else the first.
    model: RetrieverModel | str | Path | None = None  # What training gave, measured as `trained`.
    encoder: Encoder | str | None = None
    index: str | Path | None = None  # A folder with an index, whose documents are searched; by methods of the retriever only.
    distractors: Iterable[Document] = ()  # They join the passages of the data set in the pool.
    settings: Mapping[str, Any] | None = None  # Of the `HopfieldRetriever`, such as `beta`, for all of its methods.
    rewriter: Seq2Seq | str | Path | None = None  # A sequence-to-sequence model, for methods of other papers,
    answerer: Seq2Seq | str | Path | None = None  # likewise,
    dual: RetrieverModel | str | Path | None = None  # and the model of `training.dual_encoder.train_dual_question`.
    cache: PatternCache | None = None
    progress: Progress = False
    seed: int = 0  # Of the intervals and tests.


def evaluate_retrieval(dataset: Dataset, *, part: str = "", **options: Any) -> RetrievalReport:
    """Rank the passages of a pool for each query by several methods.

    Where a passage is searched in parts, it ranks by its best part. Queries of which no gold passage is in the pool are left
    out and counted. A method that needs a rewrite ranks the queries that have one.

    Args:
        dataset: The queries, and the passages of the pool unless there is an index.
        part: The part of the data set that its queries are.
        **options: The fields of `RetrievalOptions`.

    Raises:
        InputError: A method or the baseline is unknown, a method needs a model, rewrites or histories that are not there, or
            no query has a gold passage in the pool.
    """
    (report,) = _reports([dataset], [part], RetrievalOptions(**options))
    return report


def evaluate_sources(datasets: Sequence[Dataset], *, parts: Sequence[str] | None = None, **options: Any) -> SourcesReport:
    """`evaluate_retrieval` with the same options for several data sets, each with its own pool, and the mean over them.

    The mean is of the methods that all of them can be measured with.

    Raises:
        InputError: There is no data set, or two have the same name; and as `evaluate_retrieval`.
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
    """The reports of several data sets; what cannot be measured is told before anything is encoded."""
    found, has_index = as_encoder(options.encoder), options.index is not None
    trained, distractors = model_for(opened_model(options.model), found), list(options.distractors)
    offered = {"model": trained, "rewriter": options.rewriter, "answerer": options.answerer, "dual": options.dual}
    given = {name for name, one in offered.items() if one is not None}
    wanted = default_methods(trained, index=has_index) if options.methods is None else tuple(options.methods)
    chosen = []
    for dataset in datasets:
        # Of the methods by default a rewrite is measured where there is one.
        no_rewrite = options.methods is None and not any(query.rewrite for query in dataset.queries)
        named = [method for method in wanted if not (no_rewrite and method == "rewrite")]
        chosen.append(chosen_methods(named, given, dataset, index=has_index))
    reference = options.baseline or ("untrained" if "untrained" in chosen[0] else chosen[0][0])
    lacking = next((names for names in chosen if reference not in names), None)
    if lacking is not None:
        raise InputError(f"The baseline {reference!r} is not measured; name one of {', '.join(lacking)}.")
    if has_index and distractors:
        raise InputError("An index is searched as it is; leave the distractors out, or add them to the index.")
    needs = {need for names in chosen for method in names for need in METHODS[base_of(method)].needs}
    if trained is not None and trained.encoder_folder is None and "model" in needs:
        trained.check_encoder(found)
    loaded: dict[str, Any] = {}
    if "dual" in needs:
        loaded["dual"] = _question_encoder(options.dual, found)
    for name in {"rewriter", "answerer"} & needs:
        one = offered[name]
        loaded[name] = one if isinstance(one, Seq2Seq) else Seq2Seq(str(one))
    of_all: dict[str, Any] = {name: getattr(options, name) for name in ("cache", "progress", "settings")}
    reports = []
    for dataset, part, names in zip(datasets, parts, chosen, strict=True):
        pool = passage_pool(dataset, distractors) if options.index is None else index_pool(dataset, Index(options.index))
        rankers = Rankers(pool, found, model=trained, **loaded, **of_all)
        measured, seconds = {}, {}
        for method in names:
            ranker = rankers.of(method)
            begin = perf_counter()
            measured[method] = _measure(ranker, method, pool, options.progress)
            seconds[method] = perf_counter() - begin
        results = results_of([measured], seconds, reference, options.seed)
        counts = pool.documents, len(pool.queries), pool.left_out
        reports.append(RetrievalReport(pool.name, *counts, results, reference, part, measured))
    return reports


def _question_encoder(dual: RetrieverModel | str | Path | None, encoder: Encoder) -> QueryEncoder:
    model = model_for(opened_model(dual), encoder)
    if model is None or model.query_encoder is None:
        raise InputError(f"{dual} has no question encoder; make one: convcoa train DATA --dual-question --out DIR.")
    model.check_encoder(encoder)
    return model.query_encoder


def _measure(ranker: Ranker, method: str, pool: Pool, progress: Progress) -> Measured:
    rows = [row for row, query in enumerate(pool.queries) if base_of(method) != "rewrite" or query.rewrite]
    asked: list[Query] = [pool.queries[row] for row in rows]
    values = np.zeros((len(asked), len(METRICS)))
    with track(progress, len(asked), f"{pool.name}: {method}") as advance:
        for start in range(0, len(asked), _BATCH):
            batch = asked[start : start + _BATCH]
            for row, (ranking, query) in enumerate(zip(ranker(batch), batch, strict=True), start):
                values[row] = [measure(ranking, query.gold) for measure in METRICS.values()]
            advance(len(batch))
    return Measured(np.array(rows, dtype=np.int64), values, tuple(query.conversation_id for query in asked))
