"""Training of a query encoder on synthetic and real conversations, as the default model was trained.

The passages' patterns stay those of the frozen encoder. For a synthetic conversation or a question with a rewrite, the query
encoder learns the frozen encoder's vector of the question in full. A question with a gold passage has the DPR loss, which
uses the state and the score of retrieval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from langgraph_convcoa.datasets.queries import Dataset
from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.encoders.base import Encoder, Vectors
from langgraph_convcoa.retrieval.encoders.cache import encode_texts
from langgraph_convcoa.retrieval.encoders.embeddings import as_encoder
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from langgraph_convcoa.retrieval.query.model import RetrieverModel, encoder_identity
from langgraph_convcoa.retrieval.query.query_encoder import QueryEncoder, arrays
from langgraph_convcoa.retrieval.query.query_encoder import fingerprint as weights_fingerprint
from langgraph_convcoa.retrieval.query.query_encoder_module import QueryEncoderModule
from langgraph_convcoa.retrieval.query.query_text import Reading
from langgraph_convcoa.training.data import (
    AsQueries,
    EncodedData,
    QueryItem,
    TrainingData,
    encode_examples,
    fingerprint,
    query_items,
)
from langgraph_convcoa.training.losses import distillation_loss, gated_states, ranking_loss
from langgraph_convcoa.training.synthetic import synthetic_conversations
from langgraph_convcoa.training.trainer import Batches, TrainingJob, TrainingSettings, train, without_training

_BUCKET = 16


@dataclass(frozen=True)
class QueryEncoderSettings:
    """Settings of a query encoder's training, chosen on conversations that no report uses.

    An epoch sees every question to distil once. g (`state_weight`) and p (`gate`) were chosen by the MRR of a distilled query
    encoder on four unseen sources: 0.616. With g = 0.5 and no gate, the MRR was 0.596, and untrained 0.574.
    """

    training: TrainingSettings = field(
        default_factory=lambda: TrainingSettings(batch_size=48, learning_rate=1e-4, weight_decay=0.01, checkpoint_every=50)
    )
    synthetic: int = 6_000  # Synthetic conversations, made of the single-turn data.
    distilled_first: float = 0.5  # Share of the steps that only distil; the others mix in real conversations. 1: no DPR loss.
    state_weight: float = 0.1  # g of the state (`mixed_states`), in the DPR loss and in the model.
    gate: float = 2.0  # p of the state.
    reading: Reading = field(default_factory=Reading)


@dataclass(frozen=True)
class QueryEncoderLoss:
    """Distillation if a question in full is known, and the DPR loss if a gold passage is known."""

    targets: Vectors  # (t, d), vectors of questions in full from the frozen encoder.
    data: EncodedData | None = None  # Conversations with gold passages; None if there are none.
    state_weight: float = 1.0  # g of the state in the DPR loss (`gated_states`).
    gate: float = 0.0  # p of the state.
    distillation: float = 3.0  # Weight of one minus the cosine.
    contrast: float = 0.1  # Weight of the contrast with the other targets of the batch.
    scale: float = 10.0  # Factor of the scores in the DPR loss; a score is a sum of two cosines.
    negatives: int = 2  # Hard negatives of each question in a batch.

    def __call__(self, module: QueryEncoderModule, items: Sequence[QueryItem]) -> Tensor:
        found: Tensor = module([item.ids for item in items])
        # The loss is 0 for a batch without targets and positives.
        loss = found.sum() * 0.0
        rows = [row for row, item in enumerate(items) if item.target >= 0]
        if rows:
            targets = torch.from_numpy(self.targets[[items[row].target for row in rows]]).to(found.device)
            loss = loss + distillation_loss(found[rows], targets, cosine=self.distillation, contrast=self.contrast)
        rows = [row for row, item in enumerate(items) if item.positive >= 0]
        if rows and self.data is not None:
            ranked, data = [items[row] for row in rows], self.data
            untrained = data.states[[item.state for item in ranked]]
            asked = data.texts[[data.examples[item.state].question for item in ranked]]
            questions, states = (torch.from_numpy(vectors).to(found.device) for vectors in (asked, untrained))
            states = gated_states(found[rows], questions, states, self.state_weight, self.gate)
            loss = loss + ranking_loss(ranked, data.memory.patterns, states, negatives=self.negatives, scale=self.scale)
        return loss


def mixed_batches(
    items: Sequence[QueryItem], size: int, *, distilled_first: float = 0.5, steps: int | None = None
) -> tuple[Batches, int]:
    """Batches of questions of similar lengths. The first batches only distil; then half of each batch has gold passages.

    An epoch sees every question to distil once, or if there are none, every question with a gold passage. Fewer `steps` make
    the epoch shorter and keep the shares of both kinds. Returns the batches, and their number in an epoch.
    """
    plain = [number for number, item in enumerate(items) if item.positive < 0]
    gold = [number for number, item in enumerate(items) if item.positive >= 0]
    if not plain or not gold:
        total = -(-len(items) // size)
        return lambda _epoch, random: _bucketed(items, range(len(items)), size, random), total
    # A mixed batch has at least one question of each kind.
    size = max(size, 2)
    half = size // 2
    # total * (distilled_first * size + (1 - distilled_first) * (size - half)) items to distil are drawn.
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
    """Batches in random order. The questions of a batch have similar lengths, so they need less padding."""
    drawn = random.permutation(np.asarray(numbers, dtype=np.int64)).tolist()
    batches: list[list[int]] = []
    for start in range(0, len(drawn), size * _BUCKET):
        near = sorted(drawn[start : start + size * _BUCKET], key=lambda number: len(items[number].ids))
        batches += [near[at : at + size] for at in range(0, len(near), size)]
    return [batches[number] for number in random.permutation(len(batches))]


def train_query_encoder(
    data: TrainingData | None,
    *,
    single_turn: Sequence[Dataset] = (),
    encoder: Encoder | str | None = None,
    settings: QueryEncoderSettings | None = None,
    start: RetrieverModel | None = None,
    job: TrainingJob | None = None,
) -> RetrieverModel:
    """Train a query encoder: distillation on synthetic conversations and rewrites, and the DPR loss on real conversations.

    Conversations of `data` with a rewrite are distilled, and those with a gold passage have the DPR loss. Questions without a
    history are left out. Synthetic conversations are made from `single_turn`, single questions over titled passages.
    `encoder` is not changed. `start` is a model of the same encoder whose query encoder is trained further.

    Raises:
        InputError: There is nothing to learn from, the encoder has no transformer to copy, or there is an unfinished
            training and `job.resume` is False.
        RetrievalError: `start` has another encoder or reading, or a file cannot be read or written.
    """
    chosen, kept, job = settings or QueryEncoderSettings(), as_encoder(encoder), job or TrainingJob()
    if not isinstance(kept, SentenceTransformerEncoder):
        raise InputError(f"A query encoder copies a sentence-transformers model, not {kept!r}: train a head (--head).")
    if data is None and not single_turn:
        raise InputError("There is nothing to train on: name conversations, or questions over titled articles.")
    job.check()
    module = _module(kept, chosen.reading, start)
    share, seed = max(1, chosen.synthetic // max(1, len(single_turn))), chosen.training.seed
    used = single_turn if chosen.synthetic else ()
    made = [example for dataset in used for example in synthetic_conversations(dataset, share, seed=seed)]
    real = () if data is None else data.examples
    distilled = [*made, *(one for one in real if one.rewrite.strip() and one.history)]
    targets = {target: row for row, target in enumerate(dict.fromkeys(one.rewrite.strip() for one in distilled))}
    vectors = encode_texts(AsQueries(kept), list(targets), job.cache, job.progress)
    asked = module.text.ids([one.question.strip() for one in distilled], [one.history for one in distilled])
    items = [QueryItem(tuple(ids), target=targets[one.rewrite.strip()]) for ids, one in zip(asked, distilled, strict=True)]
    found = None
    if data is not None and chosen.distilled_first < 1 and any(example.gold for example in data.examples):
        found = encode_examples(data, kept, cache=job.cache, progress=job.progress)
        items += [item for item in query_items(module.text, found) if data.examples[item.state].history]
    training = chosen.training
    batches, steps = mixed_batches(items, training.batch_size, distilled_first=chosen.distilled_first, steps=training.steps)
    if training.steps is None:
        training = replace(training, steps=steps * training.epochs)
    known = fingerprint(kept.name, weights_fingerprint(arrays(module.learned())), items)
    loss = QueryEncoderLoss(vectors, found, chosen.state_weight, chosen.gate)
    train(module, loss, items, training, about=without_training(chosen) | {"data": known}, batches=batches, **job.options)
    query_encoder = QueryEncoder.of(module, kept.model_name)
    identity = encoder_identity(kept.name)
    model = RetrieverModel(identity, query_encoder=query_encoder, state_weight=chosen.state_weight, gate=chosen.gate)
    return job.finish(model, data, single_turn)


def _module(encoder: SentenceTransformerEncoder, reading: Reading, start: RetrieverModel | None) -> QueryEncoderModule:
    """The query encoder to train: a copy of the encoder, or the query encoder of the model `start`."""
    module = QueryEncoderModule.of(encoder.model_name, reading, device="cpu")
    if start is None:
        return module
    trained = start.query_encoder
    if trained is None:
        raise InputError(f"The model {start.source} has no query encoder to start from; name one that has.")
    if (trained.differences.base_hash, trained.reading) != (weights_fingerprint(arrays(module.learned())), reading):
        raise RetrievalError(
            f"The model {start.source} has another encoder or reading: its training cannot be continued here."
        )
    trained.differences.add_to(module.learned(), encoder.model_name)
    return module
