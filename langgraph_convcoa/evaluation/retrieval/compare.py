"""Comparison of retrieval methods on the same questions: `convcoa evaluate retrieval`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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


def evaluate_retrieval(
    dataset: Dataset,
    *,
    methods: Sequence[str] | None = None,
    model: RetrieverModel | str | Path | None = None,
    baseline: str | None = None,
    distractors: Iterable[Document] = (),
    index: str | Path | None = None,
    encoder: Encoder | str | None = None,
    cache: PatternCache | None = None,
    progress: Progress = False,
    settings: Mapping[str, Any] | None = None,
    part: str = "",
    seed: int = 0,
    rewriter: Seq2Seq | str | Path | None = None,
    answerer: Seq2Seq | str | Path | None = None,
    dual: RetrieverModel | str | Path | None = None,
) -> RetrievalReport:
    """Rank the passages of a pool for each query by several methods of `methods.METHODS` (`default_methods` when None).

    Where a passage is searched in parts, it ranks by its best part. Queries of which no gold passage is in the pool are left
    out and counted. A method that needs a rewrite ranks the queries that have one. The pool holds the passages of the data set
    and distractors, or the documents of a folder with an index, which only methods of the retriever can search. `settings` are
    those of the `HopfieldRetriever`, such as `beta`, for all of its methods; `part` names the part of the data set that its
    queries are, `baseline` the method that the others are tested against (`untrained` if that is measured, else the first).
    Methods of other papers need a sequence-to-sequence model (`rewriter`, `answerer`) or the model of
    `training.dual_encoder.train_dual_question` (`dual`).

    Raises:
        InputError: A method or the baseline is unknown, a method needs a model, rewrites or histories that are not there, or
            no query has a gold passage in the pool.
    """
    (report,) = _reports(
        [dataset],
        [part],
        methods=methods,
        model=model,
        baseline=baseline,
        distractors=list(distractors),
        index=index,
        encoder=encoder,
        seed=seed,
        rewriter=rewriter,
        answerer=answerer,
        dual=dual,
        cache=cache,
        progress=progress,
        settings=settings,
    )
    return report


def evaluate_sources(
    datasets: Sequence[Dataset], *, parts: Sequence[str] | None = None, seed: int = 0, **options: Any
) -> SourcesReport:
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
    options["distractors"] = list(options.get("distractors", ()))
    reports = _reports(datasets, parts or [""] * len(datasets), seed=seed, **options)
    shared = [name for name in reports[0].methods if all(name in report.methods for report in reports)]
    seconds = {name: sum(report.methods[name].seconds for report in reports) for name in shared}
    sources = [{name: report.measured[name] for name in shared} for report in reports]
    macro = results_of(sources, seconds, reports[0].baseline, seed)
    return SourcesReport(tuple(reports), macro, reports[0].baseline)


def _reports(
    datasets: Sequence[Dataset],
    parts: Sequence[str],
    *,
    methods: Sequence[str] | None = None,
    model: RetrieverModel | str | Path | None = None,
    baseline: str | None = None,
    distractors: Sequence[Document] = (),
    index: str | Path | None = None,
    encoder: Encoder | str | None = None,
    seed: int = 0,
    rewriter: Seq2Seq | str | Path | None = None,
    answerer: Seq2Seq | str | Path | None = None,
    dual: RetrieverModel | str | Path | None = None,
    **options: Any,
) -> list[RetrievalReport]:
    """The reports of several data sets; what cannot be measured is told before anything is encoded."""
    found = as_encoder(encoder)
    trained = model_for(opened_model(model), found)
    offered = {"model": trained, "rewriter": rewriter, "answerer": answerer, "dual": dual}
    given = {name for name, one in offered.items() if one is not None}
    wanted = default_methods(trained, index=index is not None) if methods is None else tuple(methods)
    chosen = []
    for dataset in datasets:
        # Of the methods by default a rewrite is measured where there is one.
        no_rewrite = methods is None and not any(query.rewrite for query in dataset.queries)
        named = [method for method in wanted if not (no_rewrite and method == "rewrite")]
        chosen.append(chosen_methods(named, given, dataset, index=index is not None))
    reference = baseline or ("untrained" if "untrained" in chosen[0] else chosen[0][0])
    lacking = next((names for names in chosen if reference not in names), None)
    if lacking is not None:
        raise InputError(f"The baseline {reference!r} is not measured; name one of {', '.join(lacking)}.")
    if index is not None and distractors:
        raise InputError("An index is searched as it is; leave the distractors out, or add them to the index.")
    needs = {need for names in chosen for method in names for need in METHODS[base_of(method)].needs}
    if trained is not None and trained.encoder_folder is None and "model" in needs:
        trained.check_encoder(found)
    if "dual" in needs:
        options["dual"] = _question_encoder(dual, found)
    for name in {"rewriter", "answerer"} & needs:
        one = offered[name]
        options[name] = one if isinstance(one, Seq2Seq) else Seq2Seq(str(one))
    reports = []
    for dataset, part, names in zip(datasets, parts, chosen, strict=True):
        pool = passage_pool(dataset, distractors) if index is None else index_pool(dataset, Index(index))
        rankers = Rankers(pool, found, model=trained, **options)
        measured, seconds = {}, {}
        for method in names:
            ranker = rankers.of(method)
            begin = perf_counter()
            measured[method] = _measure(ranker, method, pool, options.get("progress", False))
            seconds[method] = perf_counter() - begin
        results = results_of([measured], seconds, reference, seed)
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
