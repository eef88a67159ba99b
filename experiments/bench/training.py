"""Comparison of trainings on the same data: the quality that each training reaches, and after how long."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import TrainerCallback

from experiments.bench.dual_encoder import DualEncoder, DualLoss, encode_ids
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.reports import Report, Table, shown
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.encoders.embeddings import as_encoder
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.retrieval.query.conversation_state import mixed_states
from langgraph_convcoa.retrieval.query.query_encoder_module import QueryEncoderModule
from langgraph_convcoa.retrieval.query.query_text import Reading
from langgraph_convcoa.retrieval.scoring.topk import search
from langgraph_convcoa.training.data import EncodedData, QueryItem, TrainingData, encode_examples, query_items
from langgraph_convcoa.training.head import HEAD_RATES, HeadLoss, HeadSettings, HopfieldHead
from langgraph_convcoa.training.losses import Ranked
from langgraph_convcoa.training.query_encoder import QueryEncoderLoss
from langgraph_convcoa.training.trainer import TrainingSettings, train

METHODS = ("head", "query-encoder", "dual-question", "dual")
"""head: trains the conversation state, on frozen vectors. query-encoder: trains a query encoder, with the DPR loss of the
retriever's scores. dual-question: a plain dual encoder with dot products of single vectors; trains its question encoder. dual:
trains both of its encoders."""

_RATES = {"head": 5e-4, "query-encoder": 1e-4, "dual-question": 1e-4, "dual": 1e-4}


@dataclass(frozen=True)
class MethodCost:
    """One training: MRR before and the best MRR, seconds without evaluations and the encoding of frozen texts, seconds until
    the target was first reached, peak memory (MB) of the process so far (None if the system does not report it), and (step,
    seconds, MRR) of each evaluation.
    """

    start: float
    best: float
    seconds: float
    to_target: float
    parameters: int
    peak_mb: float | None
    evaluations: Sequence[tuple[int, float, float]]


@dataclass(frozen=True)
class TrainingCostReport(Report):
    """Trainings of one encoder, with the numbers of examples, questions and passages.

    `target` is the MRR whose time is given: the lowest of the best MRRs of the methods.
    """

    examples: int
    questions: int
    passages: int
    steps: int
    batch_size: int
    target: float
    methods: dict[str, MethodCost]

    def tables(self) -> Sequence[Table]:
        trained = f"{self.examples} examples, {self.steps} steps of {self.batch_size}"
        rows = []
        for name, cost in self.methods.items():
            times = (shown(cost.seconds, 0), shown(cost.to_target, 1), shown(cost.peak_mb, 0))
            rows.append((name, f"{cost.parameters:,}", shown(cost.start), shown(cost.best), *times))
        names = ("training", "parameters", "MRR before", "best MRR", "seconds", f"s to MRR {self.target:.3f}", "peak MB")
        return [Table(f"{trained}; {self.questions} questions over {self.passages} passages", names, rows)]


def training_cost(
    data: TrainingData,
    dev: TrainingData,
    *,
    methods: Sequence[str] = ("head", "dual-question"),
    encoder: SentenceTransformerEncoder | str | None = None,
    steps: int = 200,
    batch_size: int = 32,
    evaluations: int = 10,
    questions: int | None = 500,
    seed: int = 0,
    cache: PatternCache | None = None,
    progress: Progress = False,
) -> TrainingCostReport:
    """Train by several methods and measure each on the way (Pan et al. 2024b, table 3).

    All methods start from one encoder and have the same examples in the same order, the DPR loss and the same number of steps.
    Each has its own scale of the scores. The head has two hard negatives for a question in a batch, the others have three.
    Every method is measured on the passages and some questions of `dev`, by its own scores, without BM25. The peak memory of a
    method includes that of the methods before it.

    Raises:
        InputError: A method is unknown, a number is out of range, or there is nothing to train on or to measure with.
        RetrievalError: The encoder cannot be used.
    """
    unknown = [name for name in methods if name not in METHODS]
    if unknown or not methods:
        raise InputError(f"Unknown training {', '.join(map(repr, unknown)) or '(none)'}; known: {', '.join(METHODS)}.")
    if evaluations < 1 or evaluations > steps:
        raise InputError(f"evaluations must be from 1 to the number of steps, {steps}, not {evaluations}.")
    kept = as_encoder(encoder)
    if not isinstance(kept, SentenceTransformerEncoder):
        raise InputError(f"Trainings are compared with a sentence-transformers model, not with {kept!r}.")
    settings = TrainingSettings(steps=steps, batch_size=batch_size, seed=seed)
    found, measured = (
        encode_examples(part, kept, cache=cache, progress=progress) for part in (data, _drawn(dev, questions, seed))
    )
    usable, asked = (sum(example.positive >= 0 for example in part.examples) for part in (found, measured))
    if not usable or not asked:
        raise InputError("No example has a gold passage; there is nothing to train on or to measure with.")
    run = _Comparison(kept.model_name, found, measured, settings, max(1, steps // evaluations), progress)
    costs = {name: run.of(name) for name in dict.fromkeys(methods)}
    target = min(cost.best for cost in costs.values())
    for name, cost in costs.items():
        reached = (seconds for _, seconds, score in cost.evaluations if score >= target)
        costs[name] = replace(cost, to_target=0.0 if cost.start >= target else next(reached))
    return TrainingCostReport(usable, asked, len(measured.memory), steps, batch_size, target, costs)


@dataclass(frozen=True)
class _Comparison:
    base: str
    found: EncodedData
    measured: EncodedData
    settings: TrainingSettings
    every: int
    progress: Progress

    def of(self, name: str) -> MethodCost:
        if name == "head":
            head, chosen = HopfieldHead(self.found.memory.patterns.d), HeadSettings()
            learned = [example for example in self.found.examples if example.positive >= 0]
            head_loss = HeadLoss(self.found, 0.0, chosen.identity, chosen.negatives)
            return self._cost(name, head, head_loss, learned, partial(self._rank_of_head, head), HEAD_RATES)
        if name == "query-encoder":
            module = QueryEncoderModule.of(self.base, Reading(), device="cpu")
            items, asked = (query_items(module.text, part) for part in (self.found, self.measured))
            loss = QueryEncoderLoss(self.found.texts[:0], self.found, negatives=3)
            return self._cost(name, module, loss, items, partial(self._rank, module, asked))
        dual = DualEncoder(self.base, both=name == "dual")
        items, asked = (query_items(dual.question.text, part) for part in (self.found, self.measured))
        rank = partial(DualLoss(self.measured).reciprocal_rank, dual, asked)
        return self._cost(name, dual, DualLoss(self.found), items, rank)

    def _rank_of_head(self, head: HopfieldHead) -> float:
        asked = [example for example in self.measured.examples if example.positive >= 0]
        with torch.no_grad():
            return self._reciprocal_rank(HeadLoss(self.measured).states(head, asked).cpu().numpy(), asked)

    def _rank(self, module: QueryEncoderModule, asked: Sequence[QueryItem]) -> float:
        encoded, states = encode_ids(module, [item.ids for item in asked]), self.measured.states[[q.state for q in asked]]
        return self._reciprocal_rank(mixed_states(encoded, encoded, states, 1.0, 0.0), asked)

    def _reciprocal_rank(self, states: Vectors, items: Sequence[Ranked]) -> float:
        """The mean reciprocal rank of the best gold memory set; 0 beyond the hundredth."""
        found = search(self.measured.memory.patterns, states, k=100)
        ranks = [np.flatnonzero(np.isin(ranking.indices, item.gold)) for ranking, item in zip(found, items, strict=True)]
        return float(np.mean([1 / (1 + rank[0]) if len(rank) else 0.0 for rank in ranks]))

    def _cost(
        self,
        name: str,
        module: nn.Module,
        loss: Any,
        items: Sequence[Any],
        measure: Callable[[], float],
        rates: dict[str, float] | None = None,
    ) -> MethodCost:
        start, clock = measure(), _Clock(module, measure, self.every)
        settings = replace(self.settings, learning_rate=_RATES[name])
        train(module, loss, items, settings, rates=rates, callbacks=[clock], progress=self.progress)
        best = max(start, *(score for *_, score in clock.evaluations))
        parameters = sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)
        return MethodCost(start, best, clock.seconds, 0.0, parameters, _peak_mb(), clock.evaluations)


class _Clock(TrainerCallback):
    """Measures a module during its training, and counts only the seconds of the steps."""

    def __init__(self, module: nn.Module, measure: Callable[[], float], every: int) -> None:
        self.module, self.measure, self.every = module, measure, every
        self.seconds = self.begin = 0.0
        self.evaluations: list[tuple[int, float, float]] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.begin = perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.seconds += perf_counter() - self.begin
        if state.global_step % self.every == 0 or state.global_step == state.max_steps:
            self.module.eval()
            self.evaluations.append((state.global_step, self.seconds, self.measure()))
            self.module.train()


def _drawn(dev: TrainingData, questions: int | None, seed: int) -> TrainingData:
    if questions is None or len(dev.examples) <= questions:
        return dev
    order = np.random.default_rng(seed).permutation(len(dev.examples))[:questions]
    return TrainingData(tuple(dev.examples[row] for row in sorted(order.tolist())), dev.passages)


def _peak_mb() -> float | None:
    try:
        import resource
    except ImportError:
        # Windows has no such module.
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # In bytes on macOS, in KiB elsewhere.
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
