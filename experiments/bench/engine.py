"""Comparison of an engine with the exact search over the same passages: how many candidates give the same ranking."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.documents import Document

from langgraph_convcoa.datasets.queries import Dataset, Query
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.metrics import reciprocal_rank
from langgraph_convcoa.evaluation.reports import Report, Table, shown
from langgraph_convcoa.evaluation.retrieval.rankers import passage_pool
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.engine.base import Engine
from langgraph_convcoa.retrieval.engine.corpus import EngineCorpus
from langgraph_convcoa.retrieval.engine.load import load_into
from langgraph_convcoa.retrieval.memory_corpus import MemoryCorpus
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

_K = 10
Hits = list[tuple[str, float]]


@dataclass(frozen=True)
class EngineRow:
    """The engine with a number of candidates on one data set: the share of the exact search's first ten that it finds, the
    share of questions with the same ten in the same order, MRR@10 of both, and ms a question.
    """

    data: str
    questions: int
    passages: int
    candidates: int
    recall: float
    same: float
    mrr: float
    exact_mrr: float
    ms: float


@dataclass(frozen=True)
class EngineReport(Report):
    """The comparison of an engine with the exact search."""

    rows: tuple[EngineRow, ...]

    def tables(self) -> tuple[Table, ...]:
        columns = ("data", "questions", "passages", "candidates", "recall@10", "same ten", "MRR@10", "exact", "ms")
        rows = [
            [
                row.data,
                str(row.questions),
                f"{row.passages:,}",
                str(row.candidates),
                *(shown(value, 4) for value in (row.recall, row.same, row.mrr, row.exact_mrr)),
                shown(row.ms, 1),
            ]
            for row in self.rows
        ]
        note = "recall@10 and same ten: of the exact ranking; ms: median of a question that was encoded before"
        return (Table("", columns, rows, note, left=1),)


def compare_engine(
    dataset: Dataset,
    engine: Engine,
    *,
    candidates: Sequence[int] = (25, 50, 100, 200),
    questions: int | None = None,
    distractors: Iterable[Document] = (),
    encoder: Encoder | str | None = None,
    cache: PatternCache | None = None,
    progress: Progress = False,
) -> EngineReport:
    """Ask an engine and the exact search the same questions, over a data set's passages, which are first added to the engine.

    Passages that the engine already holds under the tenant are searched too: give an empty collection or tenant.

    Raises:
        InputError: The data set has no passages or no questions with a gold passage, or a number is below 1.
        RetrievalError: The engine fails, or was encoded by another encoder.
    """
    if not candidates or min(candidates) < 1:
        raise InputError("The numbers of candidates must be at least 1.")
    pool = passage_pool(dataset, distractors)
    passages, asked = pool.passages, pool.queries[:questions]
    exact = HopfieldRetriever.from_documents(passages, encoder=encoder, cache=cache, progress=progress, k=_K, graph=None)
    load_into(engine, passages, exact.encoder, cache=cache)
    assert isinstance(exact.corpus, MemoryCorpus)
    owners = {str(p.id): str(p.metadata.get("document_id") or p.id) for p in exact.corpus.snapshot().passages}
    wanted = _rankings(exact, asked)
    rows = []
    with track(progress, len(candidates) * len(asked), "Asking") as advance:
        for count in candidates:
            retriever = exact.model_copy(update={"corpus": EngineCorpus(engine, candidates=count)})
            found, seconds = [], []
            for query in asked:
                start = time.perf_counter()
                found += _rankings(retriever, [query])
                seconds.append(time.perf_counter() - start)
                advance(1)
            rows.append(_row(dataset.name, len(exact.corpus), count, asked, found, wanted, owners, seconds))
    return EngineReport(tuple(rows))


def _rankings(retriever: HopfieldRetriever, asked: Sequence[Query]) -> list[Hits]:
    return retriever.search_batch([query.question for query in asked], [query.history for query in asked], _K)


def _row(
    name: str,
    passages: int,
    candidates: int,
    asked: Sequence[Query],
    found: Sequence[Hits],
    wanted: Sequence[Hits],
    owners: dict[str, str],
    seconds: Sequence[float],
) -> EngineRow:
    pairs = [([one for one, _ in mine], [one for one, _ in other]) for mine, other in zip(found, wanted, strict=True)]
    shares = [len({*mine} & {*other}) / max(len(other), 1) for mine, other in pairs]

    def mrr(rankings: Sequence[Any]) -> float:
        named = [[owners.get(one, one) for one in ranking] for ranking in rankings]
        return statistics.mean(
            reciprocal_rank([*dict.fromkeys(ranking)], query.gold) for ranking, query in zip(named, asked, strict=True)
        )

    return EngineRow(
        data=name,
        questions=len(asked),
        passages=passages,
        candidates=candidates,
        recall=statistics.mean(shares),
        same=statistics.mean(mine == other for mine, other in pairs),
        mrr=mrr([mine for mine, _ in pairs]),
        exact_mrr=mrr([other for _, other in pairs]),
        ms=1000 * statistics.median(seconds),
    )
