"""Training of a head: under a minute for thousands of conversations, and no index need be built again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from langchain_core.embeddings import Embeddings

from langgraph_convcoa.datasets.queries import Dataset
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.choice import as_encoder
from langgraph_convcoa.retrieval.query.model import RetrieverModel, encoder_identity
from langgraph_convcoa.retrieval.query.query_encoder_module import fingerprint as weights_fingerprint
from langgraph_convcoa.training.data import TrainingData
from langgraph_convcoa.training.encoded import EncodedData, encode_examples, fingerprint, reciprocal_rank, with_query_encoder
from langgraph_convcoa.training.head.loss import HeadLoss
from langgraph_convcoa.training.head.model import HopfieldHead
from langgraph_convcoa.training.job import TrainingJob
from langgraph_convcoa.training.loop.trainer import TrainingSettings, train
from langgraph_convcoa.training.synthetic.conversations import with_synthetic

HEAD_RATES = {"log_": 10.0, "gate": 5.0}
"""Single numbers and the gate need a higher learning rate than matrices."""


@dataclass(frozen=True)
class HeadSettings:
    """Settings of a head's training, chosen on conversations that are not reported on.

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
        synthetic: How many synthetic conversations are made of the single-turn data.
        single: How many single-turn questions are learned from as they are.
    """

    training: TrainingSettings = field(
        default_factory=lambda: TrainingSettings(epochs=2, batch_size=64, learning_rate=1e-3, checkpoint_every=100)
    )
    association: bool = False
    distillation: float = 1.0
    identity: float = 1e-2
    negatives: int = 2
    share: float = 0.5
    synthetic: int = 4_000
    single: int = 2_000

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise InputError(f"share must be above 0 and at most 1, not {self.share}.")
        if min(self.distillation, self.identity, self.negatives, self.synthetic, self.single) < 0:
            raise InputError("distillation, identity, negatives, synthetic and single must be at least 0.")


def train_head(
    data: TrainingData,
    *,
    single_turn: Sequence[Dataset] = (),
    encoder: Encoder | Embeddings | str | None = None,
    settings: HeadSettings | None = None,
    start: RetrieverModel | None = None,
    job: TrainingJob | None = None,
) -> RetrieverModel:
    """Train the conversation state, and W_Q, W_K, W_V and beta where asked for, on frozen vectors.

    The loss is the DPR loss over memory sets, with distillation where a question's rewrite is known.

    Args:
        data: Examples and passages; examples without gold passages are distilled from their rewrites.
        single_turn: Questions over titled articles. Synthetic conversations made of them, some of which leave their topic,
            keep the head from leaning on the history.
        encoder: The encoder that stays as it is; all-MiniLM-L6-v2 when None.
        settings: See `HeadSettings`.
        start: A model of this encoder whose query encoder the head stands on: it is trained with what the query encoder makes
            of each question, and saved with it. The query encoder itself stays as it is.
        job: Where the model goes, and how the training is run.

    Returns:
        The model.

    Raises:
        InputError: There is no example that can be learned from, or an unfinished training is there and not to be resumed.
        RetrievalError: The vectors cannot be used, or the model or a checkpoint cannot be read or written.

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
    real, data = (
        data,
        with_synthetic(data, single_turn, synthetic=chosen.synthetic, single=chosen.single, seed=chosen.training.seed),
    )
    if not any(example.gold or example.rewrite for example in data.examples):
        raise InputError("There is nothing to train on: no example has a gold passage or a rewrite.")
    head = HopfieldHead(kept.dimension, association=chosen.association)
    found = encode_examples(data, kept, cache=job.cache, progress=job.progress)
    stands_on: object = None
    if start is not None and start.query_encoder is not None:
        found = with_query_encoder(found, start, bfloat16="bfloat16" in kept.name.split("|"), progress=job.progress)
        stands_on = start.state_weight, start.gate, weights_fingerprint(start.query_encoder.differences.tensors)
    told = replace(chosen, training=TrainingSettings())
    texts = [(example.question, example.history, example.gold, example.rewrite) for example in data.examples]
    train(
        head,
        HeadLoss(found, chosen.distillation, chosen.identity, chosen.negatives),
        [example for example in found.examples if example.positive >= 0 or example.rewrite >= 0],
        chosen.training,
        fingerprint=fingerprint(kept.name, told, stands_on, texts),
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
    return RetrieverModel(encoder_identity(encoder.name), head.settings, head.weights(), head.state_weights())


def reciprocal_rank_of_head(head: HopfieldHead, found: EncodedData) -> float:
    """The mean reciprocal rank of the best gold passage by the head's own scores, of the examples that have one."""
    asked = [example for example in found.examples if example.gold]
    if not asked:
        raise InputError("No example has a gold passage in its corpus.")
    with torch.no_grad():
        states = HeadLoss(found).represent(head, asked)[0].cpu().numpy()
    return reciprocal_rank(found.patterns, states, asked, beta=head.settings["beta"], weights=head.weights())
