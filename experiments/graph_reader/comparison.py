"""Exact match and F1 of readers that answer the same questions over the same text."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.graph_reader.model import GraphReaderModel
from experiments.graph_reader.training import ReaderExample
from langgraph_convcoa.evaluation.metrics import Sample, answer_metrics, bootstrap_interval, paired_test
from langgraph_convcoa.retrieval.progress import Progress, track

MEASURES = ("em", "f1")
_BATCH = 8


@dataclass(frozen=True)
class Answers:
    """Answers of a reader to n questions, and their scores (n, 2) by the two measures."""

    texts: tuple[str, ...]
    scores: NDArray[np.float64]
    seconds: float  # Mean time of a question.


def answer(model: GraphReaderModel, examples: Sequence[ReaderExample], progress: Progress = False) -> Answers:
    """Answer questions from their gold passages and the neighbours of these, so that no retrieval is measured."""
    texts = [example.text(model.text, target=False) for example in examples]
    # Texts of similar length share a batch, which saves padding.
    order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
    answers = [""] * len(texts)
    start = time.perf_counter()
    with track(progress, len(texts), "Reading") as advance:
        for at in range(0, len(order), _BATCH):
            numbers = order[at : at + _BATCH]
            for number, text in zip(numbers, model.answers([texts[number] for number in numbers]), strict=True):
                answers[number] = text
            advance(len(numbers))
    seconds = (time.perf_counter() - start) / len(texts)
    found = [answer_metrics(text, example.query.references) for text, example in zip(answers, examples, strict=True)]
    return Answers(tuple(answers), np.array([[one[name] for name in MEASURES] for one in found]), seconds)


def comparison(answers: Sequence[Answers], examples: Sequence[ReaderExample], seed: int = 0) -> list[list[str]]:
    """A row of figures for each reader: EM and F1 with 95% bootstrap intervals, and p against the first reader."""
    conversations = [example.query.conversation_id for example in examples]
    rows = []
    for one in answers:
        low, high = bootstrap_interval([Sample(one.scores, conversations)], seed=seed)
        p = paired_test([Sample(one.scores - answers[0].scores, conversations)], seed=seed)
        row = []
        for number, mean in enumerate(one.scores.mean(axis=0)):
            row.append(f"{mean:.1%} ({low[number]:.1%} to {high[number]:.1%})")
            row.append("" if one is answers[0] else f"{p[number]:.4f}")
        rows.append([*row, f"{one.seconds:.2f}"])
    return rows
