"""Training of a head: weights of the conversation state on vectors of a frozen encoder. No index has to be rebuilt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from langchain_core.embeddings import Embeddings
from torch import Tensor, nn
from torch.nn.functional import normalize

from langgraph_convcoa.datasets.queries import Dataset
from langgraph_convcoa.errors import InputError, check_least
from langgraph_convcoa.hopfield.functional import associate
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.embeddings import as_encoder
from langgraph_convcoa.retrieval.query.conversation_state import StateWeights
from langgraph_convcoa.retrieval.query.model import RetrieverModel, encoder_identity
from langgraph_convcoa.training.data import (
    HISTORY_BETA,
    HISTORY_WEIGHT,
    EncodedData,
    EncodedExample,
    TrainingData,
    encode_examples,
    fingerprint,
)
from langgraph_convcoa.training.losses import distillation_loss, ranking_loss
from langgraph_convcoa.training.synthetic import with_synthetic
from langgraph_convcoa.training.trainer import TrainingJob, TrainingSettings, train, without_training

HEAD_RATES = {"log_": 10.0, "gate": 5.0}
"""Factors on the learning rate, by the beginning of a parameter's name. Other parameters, the matrices, have 1."""
_BETA = 10.0


@dataclass(frozen=True)
class HeadSettings:
    """Settings of a head's training, chosen on conversations that no report uses."""

    training: TrainingSettings = field(
        default_factory=lambda: TrainingSettings(epochs=2, batch_size=64, learning_rate=1e-3, checkpoint_every=100)
    )
    distillation: float = 1.0  # Weight of the distillation from rewrites.
    identity: float = 1e-2  # Weight of the squared distance from the untrained weights.
    negatives: int = 2  # Hard negatives of each example in a batch.
    # Share of the way from the untrained to the trained weights (weight averaging, Wortsman et al. 2022). With 1, heads fell
    # below the untrained retriever on sources that they were not trained on. 0.5 was tested on one such source, pacific.
    share: float = 0.5
    synthetic: int = 4_000  # Synthetic conversations, made of the single-turn data.
    single: int = 2_000  # Single-turn questions that are learned as they are.

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise InputError(f"share must be above 0 and at most 1, not {self.share}.")
        check_least(self, distillation=0, identity=0, negatives=0, synthetic=0, single=0)


class HopfieldHead(nn.Module):
    """Parameters of the conversation state: lambda, beta_h, projections and gate. It starts as the untrained retriever."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        # lambda and beta_h are learned as logarithms, so that they stay above 0.
        self.log_history_weight = nn.Parameter(torch.tensor(math.log(HISTORY_WEIGHT)))
        self.log_history_beta = nn.Parameter(torch.tensor(math.log(HISTORY_BETA)))
        self.direct, self.association, self.history = (nn.Parameter(torch.eye(dimension)) for _ in range(3))
        self.gate = nn.Parameter(torch.zeros(3 * dimension + 2))

    def states(self, questions: Tensor, turns: Tensor, mask: Tensor) -> Tensor:
        """The states (q, d) of questions (q, d) with their turns (q, t, d) and the mask of the turns (q, t)."""
        likeness = torch.einsum("qd,qtd->qt", questions @ self.association, turns)
        weights = associate(likeness, beta=self.log_history_beta.exp(), mask=mask)
        recalled = torch.einsum("qt,qtd->qd", weights, turns)
        both = questions * recalled
        ones = torch.ones_like(both[:, :1])
        features = torch.cat([questions, recalled, both, both.sum(dim=-1, keepdim=True), ones], dim=-1)
        gate = 2 * torch.sigmoid(features @ self.gate).unsqueeze(-1)
        pulled = questions @ self.direct + self.log_history_weight.exp() * gate * (recalled @ self.history)
        return normalize(torch.where(mask.any(dim=-1, keepdim=True), pulled, questions), dim=-1)

    def distance(self) -> Tensor:
        """Squared distance of the matrices and the gate from their untrained values."""
        eye = torch.eye(len(self.direct), device=self.direct.device)
        matrices = (self.direct, self.association, self.history)
        return torch.stack([(matrix - eye).square().sum() for matrix in matrices]).sum() + self.gate.square().sum()

    def draw_back(self, share: float) -> None:
        """Reduce the difference from the untrained weights to a share of it."""
        untrained = HopfieldHead(len(self.direct)).to(self.direct.device)
        with torch.no_grad():
            for parameter, start in zip(self.parameters(), untrained.parameters(), strict=True):
                parameter.copy_(start + share * (parameter - start))

    def model(self, encoder: Encoder) -> RetrieverModel:
        """The head as a model of the retriever."""
        weight, beta = self.log_history_weight.exp().item(), self.log_history_beta.exp().item()
        settings = {"beta": _BETA, "passage_weight": 1.0, "history_weight": weight, "history_beta": beta}
        parameters = (self.direct, self.association, self.history, self.gate)
        state = StateWeights(*(p.detach().cpu().numpy().astype(np.float32).copy() for p in parameters))
        return RetrieverModel(encoder_identity(encoder.name), settings, state=state)


@dataclass(frozen=True)
class HeadLoss:
    """The DPR loss over memory sets, distillation from rewrites, and a pull to the untrained weights (see `HeadSettings`)."""

    data: EncodedData
    distillation: float = 1.0
    identity: float = 1e-3
    negatives: int = 3

    def __call__(self, head: HopfieldHead, items: Sequence[EncodedExample]) -> Tensor:
        states = self.states(head, items)
        loss = self.identity * head.distance()
        rows = [row for row, item in enumerate(items) if item.positive >= 0]
        if rows:
            ranked = [items[row] for row in rows]
            dpr = ranking_loss(ranked, self.data.memory.patterns, states[rows], negatives=self.negatives)
            loss = loss + len(rows) / len(items) * dpr
        rows = [row for row, item in enumerate(items) if item.rewrite >= 0]
        if rows and self.distillation:
            targets = torch.from_numpy(self.data.texts[[items[row].rewrite for row in rows]]).to(states.device)
            loss = loss + self.distillation * len(rows) / len(items) * distillation_loss(states[rows], targets)
        return loss

    def states(self, head: HopfieldHead, items: Sequence[EncodedExample]) -> Tensor:
        """The states of the questions, (q, d)."""
        device = head.gate.device
        longest = max(1, *(len(item.turns) for item in items))
        turns = np.zeros((len(items), longest), dtype=np.int64)
        mask = np.zeros((len(items), longest), dtype=np.bool_)
        for row, item in enumerate(items):
            turns[row, : len(item.turns)] = item.turns
            mask[row, : len(item.turns)] = True
        arrays = (self.data.texts[[item.question for item in items]], self.data.texts[turns], mask)
        return head.states(*(torch.from_numpy(array).to(device) for array in arrays))


def train_head(
    data: TrainingData,
    *,
    single_turn: Sequence[Dataset] = (),
    encoder: Encoder | Embeddings | str | None = None,
    settings: HeadSettings | None = None,
    job: TrainingJob | None = None,
) -> RetrieverModel:
    """Train the conversation state on frozen vectors: the DPR loss over memory sets, and distillation from rewrites.

    Synthetic conversations are made from `single_turn`, questions over titled passages. Some conversations change the topic:
    without these, a head learns to always follow the history.

    Raises InputError if there is nothing to learn from, or there is an unfinished training and `job.resume` is False, and
    RetrievalError if the model or a checkpoint cannot be read or written.
    """
    chosen, kept, job = settings or HeadSettings(), as_encoder(encoder), job or TrainingJob()
    job.check()
    real = data
    data = with_synthetic(data, single_turn, synthetic=chosen.synthetic, single=chosen.single, seed=chosen.training.seed)
    if not any(example.gold or example.rewrite for example in data.examples):
        raise InputError("There is nothing to train on: no example has a gold passage or a rewrite.")
    head = HopfieldHead(kept.dimension)
    found = encode_examples(data, kept, cache=job.cache, progress=job.progress)
    texts = [(example.question, example.history, example.gold, example.rewrite) for example in data.examples]
    learned = [example for example in found.examples if example.positive >= 0 or example.rewrite >= 0]
    loss = HeadLoss(found, chosen.distillation, chosen.identity, chosen.negatives)
    about = without_training(chosen) | {"data": fingerprint(kept.name, texts)}
    train(head, loss, learned, chosen.training, about=about, rates=HEAD_RATES, **job.options)
    head.draw_back(chosen.share)
    return job.finish(head.model(kept), real, single_turn)
