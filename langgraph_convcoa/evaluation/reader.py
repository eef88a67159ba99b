"""Answers of graph readers to the same questions over the same text, compared question by question."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from langgraph_convcoa.datasets.read import load_part
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.metrics.answers import answer_metrics
from langgraph_convcoa.evaluation.metrics.significance import Sample, bootstrap_interval, paired_test
from langgraph_convcoa.evaluation.reports.kit import Report, Table, percent
from langgraph_convcoa.reasoning.graph_reader.storage import load_reader
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.training.reader import reader_examples

MEASURES = ("em", "f1")
_AT_ONCE = 8


@dataclass(frozen=True)
class ReaderRow:
    """Figures of one reader; `p` of the paired test against the first reader, nothing for that itself."""

    reader: str
    graph: bool
    em: float
    f1: float
    em_interval: tuple[float, float]
    f1_interval: tuple[float, float]
    em_p: float | None
    f1_p: float | None
    seconds: float  # mean seconds a question


@dataclass(frozen=True)
class ReaderReport(Report):
    """Exact match and F1 of readers, with 95% bootstrap intervals and a paired randomisation test against the first."""

    data: str
    split: str
    questions: int
    rows: tuple[ReaderRow, ...]
    answers: tuple[dict[str, Any], ...]  # of each question its id, the gold answer, and "readers": what each of them wrote

    def tables(self) -> list[Table]:
        rows = [
            (
                row.reader,
                "yes" if row.graph else "no",
                _with(row.em, row.em_interval),
                "" if row.em_p is None else f"{row.em_p:.4f}",
                _with(row.f1, row.f1_interval),
                "" if row.f1_p is None else f"{row.f1_p:.4f}",
                f"{row.seconds:.2f}",
            )
            for row in self.rows
        ]
        title = f"{self.questions:,} questions of {self.data} ({self.split})"
        return [Table(title, ("reader", "graph", "EM", "p", "F1", "p", "seconds"), rows, left=2)]


def evaluate_readers(
    data: str | Path,
    readers: Sequence[str | Path],
    *,
    split: str | None = "dev",
    sample: int = 300,
    passages: int = 4,
    seed: int = 0,
    device: str | None = None,
    progress: Progress = True,
) -> ReaderReport:
    """Measure readers apart from retrieval: they are given the gold passages and neighbours of these, as in training.

    Args:
        data: A data set with answers.
        readers: Folders of readers; the others are tested against the first.
        split: As for `load_part`; "dev" is what training leaves out.
        sample: Questions, drawn.
        passages: Passages to read at least.
        seed: Of the draw, the intervals and the tests.
        device: "cpu", "cuda", ...
        progress: A bar, a callback or nothing.

    Raises:
        InputError: No reader is named or one twice, or the data has no question with a short answer in its passages.
        ModelError: A reader cannot be loaded.
    """
    if not readers:
        raise InputError("name a reader's folder, or several to compare")
    places = [Path(folder).resolve() for folder in readers]
    twice = next((str(folder) for n, folder in enumerate(readers) if places[n] in places[:n]), None)
    if twice is not None:
        raise InputError(f"the reader {twice} is named twice: name each folder once")
    # A missing package is reported before minutes of reading.
    answer_metrics("a", ["a"])
    dataset, part = load_part(data, split)
    examples = reader_examples(dataset, passages=passages, sample=sample, seed=seed)
    conversations = [example.query.conversation_id for example in examples]
    rows: list[ReaderRow] = []
    answers: list[dict[str, Any]] = [
        {"id": example.query.id, "question": example.query.question, "gold": example.answer, "readers": {}}
        for example in examples
    ]
    first: np.ndarray | None = None
    for folder in readers:
        model = load_reader(folder, device=device)
        texts = [example.text(model.text, target=False) for example in examples]
        # Alike in length at once: less padding is computed.
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        scores = np.zeros((len(texts), len(MEASURES)))
        start = time.perf_counter()
        with track(progress, len(texts), f"Reading with {Path(folder).name}") as advance:
            for at in range(0, len(order), _AT_ONCE):
                numbers = order[at : at + _AT_ONCE]
                for number, told in zip(numbers, model.answers([texts[number] for number in numbers]), strict=True):
                    found = answer_metrics(told, examples[number].query.references)
                    scores[number] = [found[name] for name in MEASURES]
                    answers[number]["readers"][str(folder)] = told
                advance(len(numbers))
        seconds = (time.perf_counter() - start) / len(texts)
        low, high = bootstrap_interval([Sample(scores, conversations)], seed=seed)
        p = None if first is None else paired_test([Sample(scores - first, conversations)], seed=seed)
        first = scores if first is None else first
        em, f1 = scores.mean(axis=0).tolist()
        rows.append(
            ReaderRow(
                str(folder),
                model.settings.graph,
                em,
                f1,
                (float(low[0]), float(high[0])),
                (float(low[1]), float(high[1])),
                None if p is None else float(p[0]),
                None if p is None else float(p[1]),
                seconds,
            )
        )
    return ReaderReport(dataset.name, part or "all", len(examples), tuple(rows), tuple(answers))


def _with(value: float, interval: tuple[float, float]) -> str:
    return f"{percent(value)} ({percent(interval[0])} to {percent(interval[1])})"
