"""Training of a head on a frozen encoder: the conversation state and the association of the Hopfield layer.

It takes under a minute for thousands of conversations, and no index need be built again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from langchain_core.embeddings import Embeddings
from torch import Tensor, nn
from torch.nn.functional import normalize

from langgraph_convcoa.datasets.queries import Dataset
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.hopfield.sparsity import associate
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.choice import as_encoder
from langgraph_convcoa.retrieval.query.conversation_state import StateWeights
from langgraph_convcoa.retrieval.query.model import RetrieverModel, encoder_identity
from langgraph_convcoa.retrieval.query.query_encoder import fingerprint as weights_fingerprint
from langgraph_convcoa.training.data import TrainingData
from langgraph_convcoa.training.encoded import (
    HISTORY_BETA,
    HISTORY_WEIGHT,
    EncodedData,
    EncodedExample,
    encode_examples,
    fingerprint,
    reciprocal_rank,
    with_query_encoder,
)
from langgraph_convcoa.training.job import TrainingJob
from langgraph_convcoa.training.loop.trainer import TrainingSettings, train
from langgraph_convcoa.training.losses import MemorySets, distillation_loss, gated_states, memory_scores, ranking_loss
from langgraph_convcoa.training.synthetic.conversations import with_synthetic

HEAD_RATES = {"log_": 10.0, "gate": 5.0}
"""Single numbers and the gate need a higher learning rate than matrices."""


@dataclass(frozen=True)
class HeadSettings:
    """Settings of a head's training, chosen on conversations that are not reported on."""

    training: TrainingSettings = field(
        default_factory=lambda: TrainingSettings(epochs=2, batch_size=64, learning_rate=1e-3, checkpoint_every=100)
    )
    distillation: float = 1.0  # Weight of the distillation from rewrites.
    identity: float = 1e-2  # Weight of the squared distance from the untrained weights.
    negatives: int = 2  # Hard negatives of each example in a batch, drawn at random every time.
    # How far the model is from the untrained retriever to the head as trained, which is 1 (weight averaging, Wortsman et al.
    # 2022). Whole heads fell below the untrained retriever on sources that were left out of training; with a half only
    # pacific was left out and measured.
    share: float = 0.5
    synthetic: int = 4_000  # Synthetic conversations that are made of the single-turn data.
    single: int = 2_000  # Single-turn questions that are learned from as they are.

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise InputError(f"share must be above 0 and at most 1, not {self.share}.")
        if min(self.distillation, self.identity, self.negatives, self.synthetic, self.single) < 0:
            raise InputError("distillation, identity, negatives, synthetic and single must be at least 0.")


class HopfieldHead(nn.Module):
    """lambda, beta_h, projections and gate of the conversation state.

    It starts as the untrained retriever: identity matrices and an open gate. Questions without a history stay as they were.

    Example:
        >>> head = HopfieldHead(2)
        >>> x, turns = torch.tensor([[1.0, 0.0]]), torch.tensor([[[0.0, 1.0]]])
        >>> head.states(x, turns, torch.ones(1, 1, dtype=torch.bool)).round(decimals=3).tolist()
        [[0.8569999933242798, 0.5139999985694885]]
    """

    def __init__(
        self,
        dimension: int,
        *,
        beta: float = 10.0,
        history_weight: float = HISTORY_WEIGHT,
        history_beta: float = HISTORY_BETA,
    ) -> None:
        super().__init__()
        numbers = {"beta": beta, "history_weight": history_weight, "history_beta": history_beta}
        for name, number in numbers.items():
            if not 0 < number < math.inf:
                raise InputError(f"{name} must be above 0 and finite for training to start from it, not {number}.")
        # Logarithms, so that they stay above 0.
        self.log_history_weight = nn.Parameter(torch.tensor(math.log(history_weight)))
        self.log_history_beta = nn.Parameter(torch.tensor(math.log(history_beta)))
        self.direct, self.association, self.history = (nn.Parameter(torch.eye(dimension)) for _ in range(3))
        self.gate = nn.Parameter(torch.zeros(3 * dimension + 2))
        self._start = numbers

    def states(self, questions: Tensor, turns: Tensor, mask: Tensor) -> Tensor:
        """The state of each question: (q, d) of questions (q, d), turns (q, t, d) and their mask (q, t)."""
        likeness = torch.einsum("qd,qtd->qt", questions @ self.association, turns)
        weights = associate(likeness, beta=self.log_history_beta.exp(), mask=mask)
        recalled = torch.einsum("qt,qtd->qd", weights, turns)
        both = questions * recalled
        ones = torch.ones_like(both[:, :1])
        features = torch.cat([questions, recalled, both, both.sum(dim=-1, keepdim=True), ones], dim=-1)
        gate = 2 * torch.sigmoid(features @ self.gate).unsqueeze(-1)
        pulled = questions @ self.direct + self.log_history_weight.exp() * gate * (recalled @ self.history)
        return normalize(torch.where(mask.any(dim=-1, keepdim=True), pulled, questions), dim=-1)

    def scores(self, states: Tensor, sets: MemorySets) -> Tensor:
        """The score of every memory set for every state, (q, m)."""
        return memory_scores(states, sets, beta=self._start["beta"])

    def distance(self) -> Tensor:
        """How far the weights are from the untrained ones: the sum of squares."""
        eye = torch.eye(len(self.direct), device=self.direct.device)
        matrices = (self.direct, self.association, self.history)
        return torch.stack([(matrix - eye).square().sum() for matrix in matrices]).sum() + self.gate.square().sum()

    def draw_back(self, share: float) -> None:
        """Keep a share of the way from the untrained weights to the trained ones (Wortsman et al. 2022).

        Example:
            >>> head = HopfieldHead(2)
            >>> _ = nn.init.constant_(head.gate, 1.0)
            >>> head.draw_back(0.5)
            >>> head.gate.unique().tolist()
            [0.5]
        """
        untrained = HopfieldHead(len(self.direct), **self._start).to(self.direct.device)
        with torch.no_grad():
            for parameter, start in zip(self.parameters(), untrained.parameters(), strict=True):
                parameter.copy_(start + share * (parameter - start))

    @property
    def settings(self) -> dict[str, float]:
        """The numbers as the retriever's settings."""
        return {
            "beta": self._start["beta"],
            "passage_weight": 1.0,
            "history_weight": self.log_history_weight.exp().item(),
            "history_beta": self.log_history_beta.exp().item(),
        }

    def state_weights(self) -> StateWeights:
        """Projections and gate of the conversation state for the retriever."""
        return StateWeights(*(_array(weight) for weight in (self.direct, self.association, self.history, self.gate)))


@dataclass(frozen=True)
class HeadLoss:
    """The DPR loss over memory sets, distillation from rewrites, and a pull to the untrained weights (see `HeadSettings`)."""

    data: EncodedData
    distillation: float = 1.0
    identity: float = 1e-3
    negatives: int = 3

    def represent(self, module: HopfieldHead, items: Sequence[EncodedExample]) -> tuple[Tensor, ...]:
        device = module.gate.device
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


def train_head(
    data: TrainingData,
    *,
    single_turn: Sequence[Dataset] = (),
    encoder: Encoder | Embeddings | str | None = None,
    settings: HeadSettings | None = None,
    start: RetrieverModel | None = None,
    job: TrainingJob | None = None,
) -> RetrieverModel:
    """Train the conversation state on frozen vectors.

    The loss is the DPR loss over memory sets, with distillation where a question's rewrite is known.

    Examples without gold passages are distilled from their rewrites. Synthetic conversations made of `single_turn`, some of
    which leave their topic, keep the head from leaning on the history. With `start`, a model of this encoder, the head is
    trained with what that model's query encoder makes of each question, and saved with it. Raises InputError and
    RetrievalError as `train_query_encoder` does.

    Example:
        >>> from langchain_core.documents import Document
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langgraph_convcoa.training.data import TrainingExample
        >>> passages = (Document("Ada wrote it.", id="a"), Document("It was in 1843.", id="b"))
        >>> examples = (TrainingExample("Who wrote it?", gold=("a",)), TrainingExample("When?", gold=("b",)))
        >>> data, encoder = TrainingData(examples, passages), DeterministicFakeEmbedding(size=8)
        >>> model = train_head(data, encoder=encoder, job=TrainingJob(device="cpu"))
        >>> model.state.dimension, sorted(model.settings)
        (8, ['beta', 'history_beta', 'history_weight', 'passage_weight'])
    """
    chosen, kept, job = settings or HeadSettings(), as_encoder(encoder), job or TrainingJob()
    if start is not None:
        start.check_encoder(kept)
        if start.encoder_folder is not None:
            raise InputError(f"The model {start.source} has an encoder of its own: a head on it is not kept with it.")
        if start.query_encoder is None:
            raise InputError(f"The model {start.source} has no query encoder that a head could stand on; name one that has.")
    job.check()
    real = data
    data = with_synthetic(data, single_turn, synthetic=chosen.synthetic, single=chosen.single, seed=chosen.training.seed)
    if not any(example.gold or example.rewrite for example in data.examples):
        raise InputError("There is nothing to train on: no example has a gold passage or a rewrite.")
    head = HopfieldHead(kept.dimension)
    found = encode_examples(data, kept, cache=job.cache, progress=job.progress)
    stands_on: object = None
    if start is not None and start.query_encoder is not None:
        found = with_query_encoder(found, start, progress=job.progress)
        stands_on = start.state_weight, start.gate, weights_fingerprint(start.query_encoder.differences.tensors)
    texts = [(example.question, example.history, example.gold, example.rewrite) for example in data.examples]
    train(
        head,
        HeadLoss(found, chosen.distillation, chosen.identity, chosen.negatives),
        [example for example in found.examples if example.positive >= 0 or example.rewrite >= 0],
        chosen.training,
        fingerprint=fingerprint(kept.name, replace(chosen, training=TrainingSettings()), stands_on, texts),
        rates=HEAD_RATES,
        **job.options,
    )
    head.draw_back(chosen.share)
    model = head_model(head, kept)
    if start is not None:
        model = replace(model, query_encoder=start.query_encoder, state_weight=start.state_weight, gate=start.gate)
    return job.finish(model, real, single_turn)


def head_model(head: HopfieldHead, encoder: Encoder) -> RetrieverModel:
    """The model of a trained head."""
    return RetrieverModel(encoder_identity(encoder.name), head.settings, head.state_weights())


def reciprocal_rank_of_head(head: HopfieldHead, found: EncodedData) -> float:
    """The mean reciprocal rank of the best gold passage by the head's own scores, of the examples that have one."""
    asked = [example for example in found.examples if example.gold]
    if not asked:
        raise InputError("No example has a gold passage in its corpus.")
    with torch.no_grad():
        states = HeadLoss(found).represent(head, asked)[0].cpu().numpy()
    return reciprocal_rank(found.patterns, states, asked, beta=head.settings["beta"])


def _array(parameter: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return parameter.detach().cpu().numpy().astype(np.float32).copy()
