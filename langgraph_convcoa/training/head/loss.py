"""The loss of a head: the DPR loss over memory sets, distillation from rewrites, and a pull to the untrained weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from langgraph_convcoa.training.encoded import EncodedData, EncodedExample
from langgraph_convcoa.training.head.model import HopfieldHead
from langgraph_convcoa.training.losses import distillation_loss, gated_states, ranking_loss


@dataclass(frozen=True)
class HeadLoss:
    """The loss of a head.

    Attributes:
        data: The vectors that examples point into.
        distillation: Weight of the distance between a state and the vector of the question that stands alone.
        identity: Weight of the squared distance of the weights from the untrained ones.
        negatives: Hard negatives of each example in a batch, drawn at random every time.
    """

    data: EncodedData
    distillation: float = 1.0
    identity: float = 1e-3
    negatives: int = 3

    def represent(self, module: HopfieldHead, items: Sequence[EncodedExample]) -> tuple[Tensor, ...]:
        device = module.log_beta.device
        longest = max(1, *(len(item.turns) for item in items))
        turns = np.zeros((len(items), longest), dtype=np.int64)
        mask = np.zeros((len(items), longest), dtype=np.bool_)
        for row, item in enumerate(items):
            turns[row, : len(item.turns)] = item.turns
            mask[row, : len(item.turns)] = True
        texts = self.data.texts
        vectors = [texts[[item.question for item in items]], texts[turns], mask]
        questions, earlier, known = (torch.from_numpy(array).to(device) for array in vectors)
        states = module.states(questions, earlier, known)
        if self.data.encoded is None:
            return (states,)
        read = torch.tensor([item.encoded >= 0 for item in items], device=device).unsqueeze(-1)
        encoded = torch.from_numpy(self.data.encoded[[item.encoded for item in items]]).to(device)
        mixed = gated_states(encoded, questions, states, self.data.state_weight, self.data.gate)
        return (torch.where(read, mixed, states),)

    def loss(self, module: HopfieldHead, vectors: tuple[Tensor, ...], items: Sequence[EncodedExample]) -> Mapping[str, Tensor]:
        (states,) = vectors
        losses: dict[str, Tensor] = {}
        rows = [row for row, item in enumerate(items) if item.positive >= 0]
        if rows:
            losses["dpr"] = (len(rows) / len(items)) * ranking_loss(
                [items[row] for row in rows],
                self.data.patterns,
                lambda sets: module.scores(states[rows], sets),
                negatives=self.negatives,
                device=states.device,
            )
        rewritten = [row for row, item in enumerate(items) if item.rewrite >= 0]
        if rewritten and self.distillation:
            targets = torch.from_numpy(self.data.texts[[items[row].rewrite for row in rewritten]]).to(states.device)
            share = self.distillation * len(rewritten) / len(items)
            losses |= {name: share * part for name, part in distillation_loss(states[rewritten], targets).items()}
        if self.identity:
            losses["identity"] = self.identity * module.distance()
        return losses
