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
from langgraph_convcoa.evaluation.retrieval.rankers import (
    PLAIN,
    Pool,
    Ranker,
    Rankers,
    check_methods,
    index_pool,
    passage_pool,
)
from langgraph_convcoa.evaluation.retrieval.report import METRICS, Measured, RetrievalReport, SourcesReport, results_of
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.encoders.choice import as_encoder
from langgraph_convcoa.retrieval.index.index import Index
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.retrieval.query.model import RetrieverModel, model_for, opened_model

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
) -> RetrievalReport:
    """Rank the passages of a pool for each query by several methods of `METHODS` (`default_methods` when None).

    Where a passage is searched in parts, it ranks by its best part. Queries of which no gold passage is in the pool are left
    out and counted. A method that needs a rewrite ranks the queries that have one. The pool holds the passages of the data set
    and distractors, or the documents of a folder with an index, which only methods of the retriever can search. `settings` are
    those of the `HopfieldRetriever`, such as `beta`, for all of its methods; `part` names the part of the data set that its
    queries are, `baseline` the method that the others are tested against (`untrained` if that is measured, else the first).

    Raises:
        InputError: A method or the baseline is unknown, there is no trained model, or no query has a gold passage in the pool.
    """
    found = as_encoder(encoder)
    trained = model_for(opened_model(model), found)
    chosen = tuple(dict.fromkeys(default_methods(trained, index=index is not None) if methods is None else methods))
    check_methods(chosen, index=index is not None)
    if any(method.startswith("trained") for method in chosen):
        # Now rather than after minutes of encoding.
        if trained is None:
            raise InputError("There is no trained model to measure; name one that convcoa train made with --model.")
        if trained.encoder_folder is None:
            trained.check_encoder(found)
    reference = baseline or ("untrained" if "untrained" in chosen else chosen[0])
    if reference not in chosen:
        raise InputError(f"The baseline {reference!r} is not measured; name one of {', '.join(chosen)}.")
    if index is None:
        pool = passage_pool(dataset, distractors)
    elif distractors:
        raise InputError("An index is searched as it is; leave the distractors out, or add them to the index.")
    else:
        pool = index_pool(dataset, Index(index))
    rankers = Rankers(pool, found, model=trained, cache=cache, progress=progress, settings=settings)
    measured, seconds = {}, {}
    for method in chosen:
        ranker = rankers.of(method)
        begin = perf_counter()
        measured[method] = _measure(ranker, method, pool, progress)
        seconds[method] = perf_counter() - begin
    results = results_of([measured], seconds, reference, seed)
    return RetrievalReport(pool.name, pool.documents, len(pool.queries), pool.left_out, results, reference, part, measured)


def evaluate_sources(
    datasets: Sequence[Dataset], *, parts: Sequence[str] | None = None, seed: int = 0, **options: Any
) -> SourcesReport:
    """`evaluate_retrieval` with the same options for several data sets, each with its own pool, and the mean over them.

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
    stated = parts or [""] * len(datasets)
    reports = [
        evaluate_retrieval(dataset, part=part, seed=seed, **options) for dataset, part in zip(datasets, stated, strict=True)
    ]
    seconds = {name: sum(report.methods[name].seconds for report in reports) for name in reports[0].methods}
    sources = [report.measured for report in reports]
    macro = results_of(sources, seconds, reports[0].baseline, seed)
    return SourcesReport(tuple(reports), macro, reports[0].baseline)


def _measure(ranker: Ranker, method: str, pool: Pool, progress: Progress) -> Measured:
    rows = [row for row, query in enumerate(pool.queries) if method != "rewrite" or query.rewrite]
    asked: list[Query] = [pool.queries[row] for row in rows]
    values = np.zeros((len(asked), len(METRICS)))
    with track(progress, len(asked), f"{pool.name}: {method}") as advance:
        for start in range(0, len(asked), _BATCH):
            batch = asked[start : start + _BATCH]
            for row, (ranking, query) in enumerate(zip(ranker(batch), batch, strict=True), start):
                values[row] = [measure(ranking, query.gold) for measure in METRICS.values()]
            advance(len(batch))
    return Measured(np.array(rows, dtype=np.int64), values, tuple(query.conversation_id for query in asked))
