"""What a query encoder is trained with: distillation from questions in full, and the DPR loss on real conversations.

The passages' patterns stay those of the frozen encoder. For a made conversation, or where people wrote a rewrite, the query
encoder learns the frozen encoder's vector of the question in full. Where only the passage is known that answers a question,
the DPR loss goes through the same state and the same score that retrieval uses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.query.query_encoder_module import QueryEncoderModule
from langgraph_convcoa.retrieval.scoring.patterns import Patterns
from langgraph_convcoa.training.loop.trainer import Batches
from langgraph_convcoa.training.losses import MemorySets, distillation_loss, dpr_loss, gated_states, memory_scores

_BUCKET = 16


@dataclass(frozen=True)
class QueryItem:
    """A question in conversation, as a query encoder learns from it.

    Attributes:
        ids: The token ids of question and turns.
        target: Row of the vector of the question in full, -1 where it is not known.
        state: Row of the untrained state, -1 where there is no gold passage.
        gold: Numbers of the memory sets that answer it.
        positive: One of them; -1 where there is none.
        hard: Numbers of the sets that the untrained retriever ranks best although they do not answer it.
    """

    ids: tuple[int, ...]
    target: int = -1
    state: int = -1
    gold: tuple[int, ...] = ()
    positive: int = -1
    hard: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class QueryEncoderData:
    """The vectors that the items of a training point into.

    Attributes:
        targets: (t, d), of questions in full, from the frozen encoder.
        states: (s, d), of questions in their conversations, from the untrained retriever.
        patterns: Memory sets that are searched; None where there are none.
        questions: (s, d), of the same questions by themselves, for the gate.
    """

    targets: Vectors
    states: Vectors
    patterns: Patterns | None = None
    questions: Vectors | None = None


@dataclass(frozen=True)
class QueryEncoderLoss:
    """Distillation where a question in full is known, and the DPR loss where a gold passage is.

    Attributes:
        data: What the items point into.
        state_weight: g of the state that the DPR loss is computed with (`gated_states`).
        gate: p of this state; with more than 0 the data needs the questions by themselves.
        beta: Inverse temperature of the association.
        passage_weight: w.
        distillation: Weight of one minus the cosine.
        contrast: Weight of the contrast with the other targets of the batch.
        dpr: Weight of the DPR loss.
        scale: Of the scores in the DPR loss; they are sums of two cosines.
        negatives: Hard negatives of each question that a batch is given, drawn anew every time.
    """

    data: QueryEncoderData
    state_weight: float = 1.0
    gate: float = 0.0
    beta: float = 10.0
    passage_weight: float = 1.0
    distillation: float = 3.0
    contrast: float = 0.1
    dpr: float = 1.0
    scale: float = 10.0
    negatives: int = 2

    def represent(self, module: nn.Module, items: Sequence[QueryItem]) -> tuple[Tensor, ...]:
        return (_query_encoder(module)([item.ids for item in items]),)

    def loss(self, module: nn.Module, vectors: tuple[Tensor, ...], items: Sequence[QueryItem]) -> Mapping[str, Tensor]:
        (found,) = vectors
        losses: dict[str, Tensor] = {}
        rows = [row for row, item in enumerate(items) if item.target >= 0]
        if rows:
            targets = torch.from_numpy(self.data.targets[[items[row].target for row in rows]]).to(found.device)
            parts = distillation_loss(found[rows], targets, contrast=self.contrast)
            losses |= {name: (self.distillation if name == "cosine" else 1.0) * part for name, part in parts.items()}
        rows = [row for row, item in enumerate(items) if item.positive >= 0]
        if rows and self.dpr and self.data.patterns is not None:
            losses["dpr"] = self.dpr * self._dpr(found[rows], [items[row] for row in rows], self.data.patterns)
        # A batch without either teaches nothing, but is no error.
        return losses or {"nothing": found.sum() * 0.0}

    def _dpr(self, found: Tensor, items: Sequence[QueryItem], patterns: Patterns) -> Tensor:
        rows = [item.state for item in items]
        states = torch.from_numpy(self.data.states[rows]).to(found.device)
        questions = None if self.data.questions is None else torch.from_numpy(self.data.questions[rows]).to(found.device)
        mixed = gated_states(found, questions, states, self.state_weight, self.gate)
        sets = self._sets(items)
        places = {number: place for place, number in enumerate(sets.tolist())}
        gold = np.zeros((len(items), len(sets)), dtype=np.bool_)
        for row, item in enumerate(items):
            gold[row, [places[number] for number in item.gold if number in places]] = True
        scores = memory_scores(
            mixed, MemorySets.of(patterns, sets, found.device), beta=self.beta, passage_weight=self.passage_weight
        )
        positives = torch.tensor([places[item.positive] for item in items], device=found.device)
        return dpr_loss(scores, positives, torch.from_numpy(gold).to(found.device), scale=self.scale)

    def _sets(self, items: Sequence[QueryItem]) -> npt.NDArray[np.int64]:
        """The numbers of the batch's memory sets: the positives and some hard negatives of each, every one once."""
        chosen: set[int] = set()
        for item in items:
            # Torch's random numbers are those that a resumed run has again.
            drawn = torch.randperm(len(item.hard))[: self.negatives].tolist()
            chosen.update([item.positive, *(item.hard[place] for place in drawn)])
        return np.array(sorted(chosen), dtype=np.int64)


def mixed_batches(
    items: Sequence[QueryItem], size: int, *, distilled_first: float = 0.5, steps: int | None = None
) -> tuple[Batches, int]:
    """Batches of questions of about one length: first of those to distil, then half of these and half with gold passages.

    Args:
        items: Those with a target and no positive are distilled only.
        size: Items a batch.
        distilled_first: Share of the batches that have no gold passages.
        steps: How many batches are wanted: where that is less than an epoch, the epoch is as short, in the same shares.

    Returns:
        What `trainer.train` takes, and how many batches an epoch has: so many that every question to distil is seen once;
        where there are none, that every question with a gold passage is.
    """
    plain = [number for number, item in enumerate(items) if item.positive < 0]
    gold = [number for number, item in enumerate(items) if item.positive >= 0]
    if not plain or not gold:
        total = -(-len(items) // size)
        return lambda _epoch, random: _bucketed(items, range(len(items)), size, random), total
    half = size // 2
    # total * (first * size + (1 - first) * half) distilled items are drawn.
    total = max(1, round(len(plain) / (distilled_first * size + (1 - distilled_first) * (size - half))))
    most = len(plain)
    if steps is not None and steps < total:
        total = steps
        most = round(distilled_first * total) * half + total * (size - half)
    first = round(distilled_first * total)

    def batches(_epoch: int, random: np.random.Generator) -> list[list[int]]:
        drawn = random.permutation(plain)[:most].tolist()
        batches = _bucketed(items, drawn[: first * size], size, random)
        rest = _bucketed(items, drawn[first * size :], size - half, random)
        real: list[list[int]] = []
        while len(real) < len(rest):
            real += _bucketed(items, gold, half, random)
        return [*batches, *([*a, *b] for a, b in zip(rest, real, strict=False))]

    return batches, len(batches(0, np.random.default_rng(0)))


def _bucketed(items: Sequence[QueryItem], numbers: Sequence[int], size: int, random: np.random.Generator) -> list[list[int]]:
    """The numbers in batches of one length each, in an order that is drawn: less padding is computed."""
    drawn = random.permutation(np.asarray(numbers, dtype=np.int64)).tolist()
    batches: list[list[int]] = []
    for start in range(0, len(drawn), size * _BUCKET):
        near = sorted(drawn[start : start + size * _BUCKET], key=lambda number: len(items[number].ids))
        batches += [near[at : at + size] for at in range(0, len(near), size)]
    return [batches[number] for number in random.permutation(len(batches))]


def _query_encoder(module: nn.Module) -> QueryEncoderModule:
    if not isinstance(module, QueryEncoderModule):
        raise TypeError(f"A query encoder is trained here, not {type(module).__name__}.")
    return module
