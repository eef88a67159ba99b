"""The loss of a query encoder, distillation from questions in full and the DPR loss, and the batches that it sees.

The passages' patterns stay those of the frozen encoder. For a synthetic conversation, or where people wrote a rewrite, the
query encoder learns the frozen encoder's vector of the question in full. Where only the passage is known that answers a
question, the DPR loss goes through the same state and the same score that retrieval uses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.query.query_encoder_module import QueryEncoderModule
from langgraph_convcoa.training.encoded import EncodedData, QueryItem
from langgraph_convcoa.training.loop.trainer import Batches
from langgraph_convcoa.training.losses import distillation_loss, gated_states, memory_scores, ranking_loss

_BUCKET = 16


@dataclass(frozen=True)
class QueryEncoderLoss:
    """Distillation where a question in full is known, and the DPR loss where a gold passage is.

    Attributes:
        targets: (t, d), vectors of questions in full from the frozen encoder.
        data: The conversations whose gold passages are known; None where there are none.
        state_weight: g of the state that the DPR loss is computed with (`gated_states`).
        gate: p of this state.
        distillation: Weight of one minus the cosine.
        contrast: Weight of the contrast with the other targets of the batch.
        scale: Of the scores in the DPR loss; they are sums of two cosines.
        negatives: Hard negatives of each question that a batch is given, drawn at random every time.
    """

    targets: Vectors
    data: EncodedData | None = None
    state_weight: float = 1.0
    gate: float = 0.0
    distillation: float = 3.0
    contrast: float = 0.1
    scale: float = 10.0
    negatives: int = 2

    def represent(self, module: QueryEncoderModule, items: Sequence[QueryItem]) -> tuple[Tensor, ...]:
        return (module([item.ids for item in items]),)

    def loss(
        self, module: QueryEncoderModule, vectors: tuple[Tensor, ...], items: Sequence[QueryItem]
    ) -> Mapping[str, Tensor]:
        (found,) = vectors
        losses: dict[str, Tensor] = {}
        rows = [row for row, item in enumerate(items) if item.target >= 0]
        if rows:
            targets = torch.from_numpy(self.targets[[items[row].target for row in rows]]).to(found.device)
            losses |= distillation_loss(found[rows], targets, contrast=self.contrast)
            losses["cosine"] = self.distillation * losses["cosine"]
        rows = [row for row, item in enumerate(items) if item.positive >= 0]
        if rows and self.data is not None:
            losses["dpr"] = self._dpr(found[rows], [items[row] for row in rows], self.data)
        # A batch without either teaches nothing, but is no error.
        return losses or {"nothing": found.sum() * 0.0}

    def _dpr(self, found: Tensor, items: Sequence[QueryItem], data: EncodedData) -> Tensor:
        rows = [item.state for item in items]
        states = torch.from_numpy(data.states[rows]).to(found.device)
        questions = torch.from_numpy(data.texts[[data.examples[row].question for row in rows]]).to(found.device)
        mixed = gated_states(found, questions, states, self.state_weight, self.gate)
        return ranking_loss(
            items,
            data.patterns,
            lambda sets: memory_scores(mixed, sets),
            negatives=self.negatives,
            scale=self.scale,
            device=found.device,
        )


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
