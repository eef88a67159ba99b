"""Training a head on frozen vectors: under a minute for thousands of conversations, and no index need be built again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from langchain_core.embeddings import Embeddings
from torch import nn

from langgraph_convcoa.datasets.queries import Dataset
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.encoders.choice import as_encoder
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.retrieval.query.model import RetrieverModel, encoder_identity
from langgraph_convcoa.retrieval.query.query_encoder_module import fingerprint as weights_fingerprint
from langgraph_convcoa.retrieval.scoring.topk import search
from langgraph_convcoa.training.data import TrainingData
from langgraph_convcoa.training.head.data import HeadExample, HeadVectors, encode_examples, fingerprint, with_query_encoder
from langgraph_convcoa.training.head.mixture import with_single_turn
from langgraph_convcoa.training.head.model import HeadLoss, HopfieldHead
from langgraph_convcoa.training.loop.checkpoints import save_trained, startable_checkpoint
from langgraph_convcoa.training.loop.settings import TrainingSettings
from langgraph_convcoa.training.loop.trainer import train

HEAD_RATES = {"log_": 10.0, "gate": 5.0}
"""Single numbers and the gate need a higher learning rate than matrices."""


@dataclass(frozen=True)
class HeadSettings:
    """What a head is trained with; chosen on conversations that are not reported on.

    Attributes:
        training: How long and how fast.
        association: Whether W_Q, W_K, W_V and beta are trained beside the conversation state. On sources that were not trained
            on they gave nothing, questions without a history lost by them, and a search takes three products in place of one.
        distillation: Weight of the distillation from rewrites.
        identity: Weight of the squared distance from the untrained weights.
        negatives: Hard negatives of each example in a batch.
        share: How far the model is from the untrained retriever to the head as trained, which is 1 (weight averaging,
            Wortsman et al. 2022). Whole heads fell below the untrained retriever on sources that were left out of training;
            with a half only pacific was left out and measured.
        made: How many conversations are made of the single-turn data.
        single: How many single-turn questions are learned from as they are.
        beta: Where beta starts; w, lambda and beta_h below likewise, w stays there.
        passage_weight: w.
        history_weight: lambda.
        history_beta: beta_h.
    """

    training: TrainingSettings = field(
        default_factory=lambda: TrainingSettings(epochs=2, batch_size=64, learning_rate=1e-3, checkpoint_every=100)
    )
    association: bool = False
    distillation: float = 1.0
    identity: float = 1e-2
    negatives: int = 2
    share: float = 0.5
    made: int = 4_000
    single: int = 2_000
    beta: float = 10.0
    passage_weight: float = 1.0
    history_weight: float = 0.6
    history_beta: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise InputError(f"share must be above 0 and at most 1, not {self.share}.")
        if min(self.distillation, self.identity, self.negatives, self.made, self.single) < 0:
            raise InputError("distillation, identity, negatives, made and single must be at least 0.")


def train_head(
    data: TrainingData,
    *,
    single_turn: Sequence[Dataset] = (),
    out: str | Path | None = None,
    encoder: Encoder | Embeddings | str | None = None,
    settings: HeadSettings | None = None,
    on: RetrieverModel | None = None,
    tune: TrainingData | None = None,
    cache: PatternCache | None = None,
    resume: bool = False,
    logs: str | Path | None = None,
    progress: Progress = False,
    device: str | None = None,
    card: Callable[[RetrieverModel], str] | None = None,
) -> RetrieverModel:
    """Train the conversation state, and W_Q, W_K, W_V and beta where asked for, on frozen vectors.

    The loss is the DPR loss over memory sets, with distillation where a question's rewrite is known.

    Args:
        data: Examples and passages; examples without gold passages are distilled from their rewrites.
        single_turn: Questions over titled articles. Conversations made of them, some of which leave their topic, keep the head
            from leaning on the history.
        out: Folder for the model; the state of an unfinished run is kept beside it.
        encoder: The encoder that stays as it is; all-MiniLM-L6-v2 when None.
        settings: See `HeadSettings`.
        on: A model of this encoder whose query encoder the head stands on: it is trained with the query encoder's vector of
            each question, and saved with it. The query encoder itself stays as it is.
        tune: Conversations that are not trained on; the weights that rank their passages best are kept.
        cache: Where vectors are kept between runs.
        resume: Go on from an unfinished run into `out`.
        logs: Folder for TensorBoard.
        progress: A bar, a callback or nothing.
        device: "cpu", "cuda", ...; chosen when None.
        card: Makes the model's card of the model.

    Returns:
        The model, saved in `out` where that is given.

    Raises:
        InputError: There is no example that can be learned from, or an unfinished run is there and not to be resumed.
        RetrievalError: The vectors cannot be used, or the model or a checkpoint cannot be read or written.

    Example:
        >>> from langchain_core.documents import Document
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langgraph_convcoa.training.data import TrainingExample
        >>> passages = (Document("Ada wrote it.", id="a"), Document("It was in 1843.", id="b"))
        >>> examples = (TrainingExample("Who wrote it?", gold=("a",)), TrainingExample("When?", gold=("b",)))
        >>> model = train_head(TrainingData(examples, passages), encoder=DeterministicFakeEmbedding(size=8), device="cpu")
        >>> model.state.dimension, sorted(model.settings)
        (8, ['beta', 'history_beta', 'history_weight', 'passage_weight'])
    """
    chosen, kept = settings or HeadSettings(), as_encoder(encoder)
    if on is not None:
        on.check_encoder(kept)
        if on.encoder_folder is not None:
            raise InputError(
                f"The model {on.source} has an encoder of its own, trained whole: a head on it is not kept with it."
            )
        if on.query_encoder is None:
            raise InputError(f"The model {on.source} has no query encoder that a head could stand on; name one that has.")
    checkpoint = startable_checkpoint(out, resume=resume) if out is not None else None
    data = with_single_turn(data, single_turn, made=chosen.made, single=chosen.single, seed=chosen.training.seed)
    if not any(example.gold or example.rewrite for example in data.examples):
        raise InputError("There is nothing to train on: no example has a gold passage or a rewrite.")
    start = {
        "beta": chosen.beta,
        "passage_weight": chosen.passage_weight,
        "history_weight": chosen.history_weight,
        "history_beta": chosen.history_beta,
    }
    head = HopfieldHead(kept.dimension, **start, association=chosen.association)

    def encoded(part: TrainingData) -> tuple[HeadVectors, list[HeadExample]]:
        vectors, examples = encode_examples(part, kept, **start, cache=cache, progress=progress)
        if on is None or on.query_encoder is None:
            return vectors, examples
        half = "bfloat16" in kept.name.split("|")
        return with_query_encoder(
            vectors, examples, part.examples, on.query_encoder, on.state_weight, on.gate, bfloat16=half, progress=progress
        )

    vectors, examples = encoded(data)
    usable = [example for example in examples if example.positive >= 0 or example.rewrite >= 0]
    evaluate = None
    if tune is not None:
        held_out = encoded(tune)

        def evaluate(module: nn.Module) -> float:
            return reciprocal_rank_of(module, *held_out)

    train(
        head,
        HeadLoss(vectors, chosen.distillation, chosen.identity, chosen.negatives),
        usable,
        chosen.training,
        checkpoint=checkpoint,
        resume=resume,
        fingerprint=f"{fingerprint(data.examples, kept)} {chosen.distillation} {chosen.identity} {chosen.negatives} {start}"
        + (
            f" {on.state_weight} {on.gate} {weights_fingerprint(on.query_encoder.differences.tensors)}"
            if on and on.query_encoder
            else ""
        ),
        rates=HEAD_RATES,
        evaluate=evaluate,
        keep_best=tune is not None,
        logs=logs,
        progress=progress,
        device=device,
    )
    head.draw_back(chosen.share)
    model = head_model(head, kept)
    if on is not None:
        model = replace(model, query_encoder=on.query_encoder, state_weight=on.state_weight, gate=on.gate)
    if card is not None:
        model = replace(model, card=card(model))
    if out is not None and checkpoint is not None:
        save_trained(model, out, checkpoint)
    return model


def head_model(head: HopfieldHead, encoder: Encoder) -> RetrieverModel:
    """The model of a trained head."""
    return RetrieverModel(encoder_identity(encoder.name), head.settings, head.weights(), head.state_weights())


def reciprocal_rank_of(head: nn.Module, vectors: HeadVectors, examples: Sequence[HeadExample], depth: int = 100) -> float:
    """The mean reciprocal rank of the best gold passage among all of the memory, by the head's own scores.

    Args:
        head: A `HopfieldHead`.
        vectors: What the examples point into.
        examples: Those without a gold passage are left out.
        depth: Beyond this rank a passage counts as not found.
    """
    if not isinstance(head, HopfieldHead):
        raise TypeError(f"A head is measured here, not {type(head).__name__}.")
    asked = [example for example in examples if example.gold]
    if not asked:
        raise InputError("No example of the tuning part has a gold passage in its corpus.")
    with torch.no_grad():
        states = HeadLoss(vectors).represent(head, asked)[0].cpu().numpy()
    numbers = head.settings
    found = search(
        vectors.patterns,
        states,
        k=depth,
        beta=numbers["beta"],
        passage_weight=numbers["passage_weight"],
        weights=head.weights(),
    )
    ranks = [np.flatnonzero(np.isin(ranking.indices, example.gold)) for ranking, example in zip(found, asked, strict=True)]
    return float(np.mean([1 / (1 + rank[0]) if len(rank) else 0.0 for rank in ranks]))
