"""Question answering without a model over a whole corpus, measured on the answers that a user would see.

Methods that ask a model are measured by `evaluate_methods`. An answer counts when the gold answer string occurs in it
("cover-EM"), after the normalisation of SQuAD: lower case, punctuation and articles dropped (Rajpurkar et al. 2016, the
official evaluation script). Citation marks are removed first. A plain refusal covers nothing, whatever its nearest passage
holds.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.datasets.read import load_part
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.metrics.significance import Sample, bootstrap_interval
from langgraph_convcoa.evaluation.records import found_gold
from langgraph_convcoa.evaluation.reports.kit import Report, Table, percent
from langgraph_convcoa.graph import build_graph
from langgraph_convcoa.nodes.act import EXTRACTIVE_K
from langgraph_convcoa.reasoning.extractive.coverage import NOTHING
from langgraph_convcoa.reasoning.extractive.reasoner import ExtractiveReasoner
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.encoders.choice import as_encoder
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.text.matching import covers, strip_citations


class Printed(NamedTuple):
    """The answer to a question as printed, and the ids of the passages retrieved, best first."""

    answer: str
    passages: Sequence[str]


@dataclass(frozen=True)
class QAReport(Report):
    """Figures of extracted answers; shares lie in [0, 1], the interval is a 95% bootstrap interval over the conversations."""

    data: str
    split: str
    model: str
    k: int
    seed: int
    passages: int
    questions: int
    cover: float  # share of answers that hold the gold answer after SQuAD's normalisation
    cover_interval: tuple[float, float]
    cover_strict: float  # share of answers that hold the gold answer as it is written, letter by letter
    hit_rate: float  # share of questions with a gold passage among those retrieved
    refused: float  # share of plain refusals
    words_mean: float  # mean words of the printed answers between white space, citation marks left out
    words_max: int
    seconds: float  # mean seconds a question, loading and encoding of the corpus left out

    def tables(self) -> list[Table]:
        low, high = self.cover_interval
        rows = (
            ("gold answer in the printed answer", f"{self.cover:.1%} ({low:.1%} to {high:.1%})"),
            ("the same, letter by letter", percent(self.cover_strict)),
            (f"gold passage among those retrieved (k = {self.k})", percent(self.hit_rate)),
            ("plain refusals", percent(self.refused)),
            ("words of an answer, mean / most", f"{self.words_mean:.1f} / {self.words_max}"),
            ("seconds a question", f"{self.seconds:.3f}"),
        )
        title = f"{self.questions:,} questions of {self.data} ({self.split}), {self.passages:,} passages, {self.model}"
        return [Table(title, ("", "figure"), rows)]


def evaluate_qa(
    data_folder: str | Path,
    *,
    split: str | None = "dev",
    sample: int = 1000,
    seed: int = 0,
    k: int | None = None,
    encoder: Encoder | str | None = None,
    cache: PatternCache | None = None,
    progress: Progress = True,
) -> QAReport:
    """Ask the graph, which extracts its answers, a random sample of a data set's questions over its whole corpus."""
    for name, value in (("sample", sample), ("k", k)):
        if value is not None and value < 1:
            raise InputError(f"{name} must be at least 1, not {value}.")
    dataset, part = load_part(data_folder, split)
    rows = sample_questions(dataset.queries, sample, seed)
    chosen = as_encoder(encoder)
    retriever = HopfieldRetriever.from_documents(dataset.corpus, encoder=chosen, cache=cache, progress=progress)
    graph = build_graph(retriever=retriever, reasoner=ExtractiveReasoner(chosen)).compile()
    printed = []
    start = time.perf_counter()
    with track(progress, len(rows), "Asking") as advance:
        for row in rows:
            out = graph.invoke({"question": row.question, "messages": messages_of(row)}, context=ConvCoAContext(k=k))
            printed.append(Printed(out["answer"], [id_ for item in out["chain"] for id_ in item["evidence"]]))
            advance(1)
    return QAReport(
        data=dataset.name,
        split=part or "all",
        model="extractive",
        k=k or EXTRACTIVE_K,
        seed=seed,
        passages=len(dataset.corpus),
        seconds=(time.perf_counter() - start) / len(rows),
        **score_answers(rows, printed),
    )


def messages_of(query: Query) -> list[AnyMessage]:
    """The turns before a question as messages."""
    return [message for question, answer in query.history for message in (HumanMessage(question), AIMessage(answer))]


def refuses(answer: str) -> bool:
    """Whether an answer says plainly that nothing was found; the nearest passage may follow.

    Example:
        >>> refuses("I found nothing about this in the documents. The nearest passage is “Oslo” [1]."), refuses("Oslo [1].")
        (True, False)
    """
    return answer.startswith(NOTHING)


def sample_questions(queries: Sequence[Query], sample: int, seed: int) -> list[Query]:
    """A random draw of the questions whose answer is known."""
    known = [query for query in queries if query.answer.strip()]
    if not known:
        raise InputError("The data hold no question with an answer, so there is nothing to compare with.")
    return random.Random(seed).sample(known, min(sample, len(known)))  # noqa: S311 - a draw, not a secret


def score_answers(rows: Sequence[Query], printed: Sequence[Printed]) -> dict[str, Any]:
    """The figures of QAReport that depend on the answers alone, one printed answer for each question."""
    pairs = list(zip(rows, printed, strict=True))
    covered = np.array([not refuses(got.answer) and covers(got.answer, row.answer) for row, got in pairs], dtype=float)
    low, high = bootstrap_interval([Sample(covered[:, None], [row.conversation_id for row in rows])])
    lengths = [len(strip_citations(got.answer).split()) for got in printed]
    return {
        "questions": len(rows),
        "cover": float(covered.mean()),
        "cover_interval": (float(low[0]), float(high[0])),
        "cover_strict": float(
            np.mean([not refuses(got.answer) and row.answer in strip_citations(got.answer) for row, got in pairs])
        ),
        "hit_rate": float(np.mean([found_gold(got.passages, row.gold) for row, got in pairs])),
        "refused": float(np.mean([refuses(got.answer) for got in printed])),
        "words_mean": float(np.mean(lengths)),
        "words_max": max(lengths),
    }
