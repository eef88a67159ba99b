"""What training costs: the quality that several trainings reach on the same data, and how long each takes to reach it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from rich.table import Table
from torch import nn

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.encoders.choice import as_encoder
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.retrieval.scoring.topk import search
from langgraph_convcoa.training.data import TrainingData
from langgraph_convcoa.training.encoder.dual_encoder import DualEncoder, DualLoss, encode_ids, reciprocal_rank_of_dual
from langgraph_convcoa.training.head.data import HeadExample, HeadVectors, encode_examples
from langgraph_convcoa.training.head.model import HeadLoss, HopfieldHead
from langgraph_convcoa.training.head.training import HEAD_RATES, HeadSettings, reciprocal_rank_of
from langgraph_convcoa.training.loop.checkpoints import trained_parameters
from langgraph_convcoa.training.loop.settings import TrainingSettings
from langgraph_convcoa.training.loop.trainer import TrainingReport, train

METHODS = ("head", "tower", "dual-question", "dual")
"""head: the conversation state, and W_Q, W_K, W_V and beta, on frozen vectors. tower: a query encoder with the DPR loss
through the Hopfield layer and the conversation state. dual-question: a plain dual encoder whose query encoder is trained,
with dot products of single vectors; dual: the same with both towers trained."""

_RATES = {"head": 5e-4, "tower": 1e-4, "dual-question": 1e-4, "dual": 1e-4}


@dataclass(frozen=True)
class MethodCost:
    """What one training came to.

    Attributes:
        start: MRR before training.
        best: The best MRR on the way.
        seconds: Of training, evaluations and the encoding of what is frozen left out.
        to_target: Seconds until the target was first reached; None where it was not.
        parameters: How many numbers were trained.
        peak_mb: The most memory that the process had held by then, in MB; None where the system does not tell.
        evaluations: (step, seconds, MRR) of each.
    """

    start: float
    best: float
    seconds: float
    to_target: float | None
    parameters: int
    peak_mb: float | None
    evaluations: tuple[tuple[int, float, float], ...]


@dataclass(frozen=True)
class TrainingCostReport:
    """Trainings of one encoder with the same data, steps and batches.

    Attributes:
        examples: How many were trained on.
        questions: How many were measured with.
        passages: How many were searched.
        steps: Of each training.
        batch_size: Of each training.
        target: The MRR whose time is given: the best of the method that came least far, unless one was named.
        methods: By name.
    """

    examples: int
    questions: int
    passages: int
    steps: int
    batch_size: int
    target: float
    methods: dict[str, MethodCost]

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {**vars(self), "methods": {name: vars(cost) for name, cost in self.methods.items()}}

    def __rich__(self) -> Table:
        table = Table(
            title=f"{self.examples} examples, {self.steps} steps of {self.batch_size}; {self.questions} questions over "
            f"{self.passages} passages"
        )
        target = f"s to MRR {self.target:.3f}"
        for name in ("training", "parameters", "MRR before", "best MRR", "seconds", target, "peak MB"):
            table.add_column(name, justify="left" if name == "training" else "right")
        for name, cost in self.methods.items():
            table.add_row(
                name,
                f"{cost.parameters:,}",
                f"{cost.start:.3f}",
                f"{cost.best:.3f}",
                f"{cost.seconds:.0f}",
                "not reached" if cost.to_target is None else f"{cost.to_target:.1f}",
                "" if cost.peak_mb is None else f"{cost.peak_mb:.0f}",
            )
        return table


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
    target: float | None = None,
    seed: int = 0,
    cache: PatternCache | None = None,
    progress: Progress = False,
) -> TrainingCostReport:
    """Train by several methods and measure each on the way (Pan et al. 2024b, table 3).

    All start from one encoder, see the same examples in the same order, and have the DPR loss and as many steps, each with its
    own scale of the scores; of the hard negatives that were found the head has two a question in a batch and the others three.
    Every method is measured on the passages of `dev` by its own scores, without the lexical channel.

    Args:
        data: What is trained on.
        dev: What is measured with: other conversations.
        methods: Names out of `METHODS`; the memory of a method counts in that of those after it.
        encoder: A sentence-transformers model; all-MiniLM-L6-v2 when None.
        steps: Of each training.
        batch_size: Examples a step.
        evaluations: How often each is measured.
        questions: At most so many of dev, drawn; all when None.
        target: The MRR whose time is asked for.
        seed: Of the order of the data.
        cache: Where vectors are kept between runs.
        progress: A bar, a callback or nothing.

    Raises:
        InputError: A method is unknown, a number is out of range, or there is nothing to train on or to measure with.
        RetrievalError: The encoder cannot be used.
    """
    unknown = [name for name in methods if name not in METHODS]
    if unknown or not methods:
        raise InputError(f"Unknown training {', '.join(map(repr, unknown)) or '(none)'}; known: {', '.join(METHODS)}.")
    if evaluations < 1 or evaluations > steps:
        raise InputError(f"evaluations must be from 1 to the number of steps, {steps}, not {evaluations}.")
    settings = TrainingSettings(
        steps=steps, batch_size=batch_size, seed=seed, checkpoint_every=0, evaluate_every=max(1, steps // evaluations)
    )
    kept = as_encoder(encoder)
    if not isinstance(kept, SentenceTransformerEncoder):
        raise InputError(f"Trainings are compared with a sentence-transformers model, not with {kept!r}.")
    if "bfloat16" in kept.name.split("|"):
        settings = replace(settings, mixed_precision="bf16")
    found = encode_examples(data, kept, cache=cache, progress=progress)
    measured = encode_examples(_drawn(dev, questions, seed), kept, cache=cache, progress=progress)
    run = _Comparison(kept.model_name, data, _drawn(dev, questions, seed), found, measured, settings, progress)
    usable = sum(example.positive >= 0 for example in found[1])
    asked = sum(bool(example.gold) for example in measured[1])
    if not usable or not asked:
        raise InputError("No example has a gold passage; there is nothing to train on or to measure with.")
    costs = {name: run.of(name) for name in dict.fromkeys(methods)}
    wanted = min(cost.best for cost in costs.values()) if target is None else target
    costs = {name: replace(cost, to_target=_reached(cost, wanted)) for name, cost in costs.items()}
    return TrainingCostReport(usable, asked, len(measured[0].memory), steps, batch_size, wanted, costs)


@dataclass(frozen=True)
class _Comparison:
    """What the trainings have in common."""

    base: str
    data: TrainingData
    dev: TrainingData
    found: tuple[HeadVectors, list[HeadExample]]
    measured: tuple[HeadVectors, list[HeadExample]]
    settings: TrainingSettings
    progress: Progress

    def of(self, name: str) -> MethodCost:
        if name == "head":
            return self._head()
        if name == "tower":
            return self._query_encoder()
        return self._dual(name, both=name == "dual")

    def _head(self) -> MethodCost:
        vectors, examples = self.found
        chosen = HeadSettings()
        head = HopfieldHead(vectors.patterns.d)
        loss = HeadLoss(vectors, 0.0, chosen.identity, chosen.negatives)
        items = [example for example in examples if example.positive >= 0]
        return self._cost("head", head, loss, items, lambda: reciprocal_rank_of(head, *self.measured), HEAD_RATES)

    def _query_encoder(self) -> MethodCost:
        from langgraph_convcoa.retrieval.query.query_encoder_module import QueryEncoderModule, Reading
        from langgraph_convcoa.training.query_encoder.losses import QueryEncoderData, QueryEncoderLoss, QueryItem

        module = QueryEncoderModule.of(self.base, Reading(), device="cpu")

        def items_of(data: TrainingData, examples: Sequence[HeadExample]) -> list[QueryItem]:
            asked = module.text.ids([one.question.strip() for one in data.examples], [one.history for one in data.examples])
            return [
                QueryItem(tuple(ids), -1, row, example.gold, example.positive, example.hard)
                for row, (ids, example) in enumerate(zip(asked, examples, strict=True))
                if example.positive >= 0
            ]

        vectors, examples = self.found
        states = vectors.untrained_states(examples, 0.6, 1.0)
        loss = QueryEncoderLoss(
            QueryEncoderData(np.zeros((0, vectors.patterns.d), dtype=np.float32), states, vectors.patterns), negatives=3
        )
        dev_vectors, dev_examples = self.measured
        dev_items = items_of(self.dev, dev_examples)
        dev_states = dev_vectors.untrained_states(dev_examples, 0.6, 1.0)[[item.state for item in dev_items]]

        def measure() -> float:
            encoded = encode_ids(module, [item.ids for item in dev_items])
            mixed = encoded + np.float32(loss.state_weight) * dev_states
            mixed /= np.linalg.norm(mixed, axis=1, keepdims=True)
            return _reciprocal_rank(dev_vectors, mixed, dev_items)

        return self._cost("tower", module, loss, items_of(self.data, examples), measure)

    def _dual(self, name: str, *, both: bool) -> MethodCost:
        dual = DualEncoder(self.base, both=both)
        loss, dev_loss = DualLoss(self.found[0]), DualLoss(self.measured[0])
        dev_items = dual.items(self.dev, self.measured[1])
        items = dual.items(self.data, self.found[1])
        return self._cost(name, dual, loss, items, lambda: reciprocal_rank_of_dual(dual, dev_loss, dev_items))

    def _cost(
        self,
        name: str,
        module: nn.Module,
        loss: Any,
        items: Sequence[Any],
        measure: Callable[[], float],
        rates: dict[str, float] | None = None,
    ) -> MethodCost:
        start = measure()
        settings = replace(self.settings, learning_rate=_RATES[name])
        report: TrainingReport = train(
            module, loss, items, settings, rates=rates, evaluate=lambda _module: measure(), progress=self.progress
        )
        best = max(start, *(score for *_, score in report.evaluations))
        parameters = sum(parameter.numel() for parameter in trained_parameters(module).values())
        return MethodCost(start, best, report.seconds, None, parameters, _peak_mb(), report.evaluations)


def _reciprocal_rank(vectors: HeadVectors, states: Vectors, items: Sequence[Any], depth: int = 100) -> float:
    rankings = search(vectors.patterns, states, k=depth)
    ranks = [np.flatnonzero(np.isin(ranking.indices, item.gold)) for ranking, item in zip(rankings, items, strict=True)]
    return float(np.mean([1 / (1 + rank[0]) if len(rank) else 0.0 for rank in ranks]))


def _reached(cost: MethodCost, target: float) -> float | None:
    if cost.start >= target:
        return 0.0
    return next((seconds for _, seconds, score in cost.evaluations if score >= target), None)


def _drawn(dev: TrainingData, questions: int | None, seed: int) -> TrainingData:
    if questions is None or len(dev.examples) <= questions:
        return dev
    order = np.random.default_rng(seed).permutation(len(dev.examples))[:questions]
    return TrainingData(tuple(dev.examples[row] for row in sorted(order.tolist())), dev.passages)


def _peak_mb() -> float | None:
    try:
        import resource
    except ImportError:
        # Windows does not tell.
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # In bytes on macOS, in KiB elsewhere.
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
