"""Training of a query encoder on synthetic and real conversations: the recipe of the default model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from langgraph_convcoa.datasets.queries import Dataset
from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.cache import encode_patterns
from langgraph_convcoa.retrieval.encoders.choice import as_encoder
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from langgraph_convcoa.retrieval.query.model import RetrieverModel, encoder_identity
from langgraph_convcoa.retrieval.query.query_encoder import QueryEncoder
from langgraph_convcoa.retrieval.query.query_encoder_module import QueryEncoderModule, Reading
from langgraph_convcoa.retrieval.query.query_encoder_module import fingerprint as weights_fingerprint
from langgraph_convcoa.training.data import TrainingData, TrainingExample
from langgraph_convcoa.training.encoded import AsQueries, QueryItem, encode_examples, fingerprint, query_items
from langgraph_convcoa.training.job import TrainingJob
from langgraph_convcoa.training.loop.trainer import TrainingSettings, train
from langgraph_convcoa.training.query_encoder.loss import QueryEncoderLoss, mixed_batches
from langgraph_convcoa.training.synthetic.conversations import synthetic_conversations


@dataclass(frozen=True)
class QueryEncoderSettings:
    """Settings of a query encoder's training, chosen on conversations that are not reported on.

    Attributes:
        training: How long and how fast; `epochs` counts the questions to distil.
        synthetic: How many synthetic conversations are made of the single-turn data.
        distilled_first: Share of the steps that only distil; the others mix in real conversations with the DPR loss. With 1
            there is no DPR loss at all.
        state_weight: g of the state (`mixed_states`), in the DPR loss and in the model.
        gate: p of it. With a query encoder that only distilled on synthetic conversations, g and p were chosen on four sources
            it had not seen: MRR 0.616; without a gate and with g = 0.5 0.596; untrained 0.574.
        reading: How much of a question and its history is read.
    """

    training: TrainingSettings = field(
        default_factory=lambda: TrainingSettings(batch_size=48, learning_rate=1e-4, weight_decay=0.01, checkpoint_every=50)
    )
    synthetic: int = 6_000
    distilled_first: float = 0.5
    state_weight: float = 0.1
    gate: float = 2.0
    reading: Reading = field(default_factory=Reading)


def train_query_encoder(
    data: TrainingData | None,
    *,
    single_turn: Sequence[Dataset] = (),
    encoder: Encoder | str | None = None,
    settings: QueryEncoderSettings | None = None,
    start: RetrieverModel | None = None,
    job: TrainingJob | None = None,
) -> RetrieverModel:
    """Train a query encoder: distillation on synthetic conversations and on rewrites, and the DPR loss on real ones.

    Args:
        data: Real conversations and their passages; None trains on synthetic ones alone. Those with a rewrite are distilled,
            those with a gold passage have the DPR loss. Questions without a history are left to the encoder.
        single_turn: Questions over titled articles, that synthetic conversations are made of.
        encoder: The encoder that stays as it is, a sentence-transformers model; all-MiniLM-L6-v2 when None.
        settings: See `QueryEncoderSettings`.
        start: A model of the same encoder, whose query encoder is trained further; the encoder itself when None.
        job: Where the model goes, and how the training is run.

    Returns:
        The model.

    Raises:
        InputError: There is nothing to learn from, the encoder has no transformer to copy, or an unfinished training is there
            and not to be resumed.
        RetrievalError: `start` is of another encoder or reads differently, the vectors cannot be used, or the model or a
            checkpoint cannot be read or written.
    """
    chosen, kept, job = settings or QueryEncoderSettings(), as_encoder(encoder), job or TrainingJob()
    if not isinstance(kept, SentenceTransformerEncoder):
        raise InputError(
            f"A query encoder is a copy of a sentence-transformers model, not of {kept!r}; train a head (--head)."
        )
    if data is None and not single_turn:
        raise InputError("There is nothing to train on: name conversations, or questions over titled articles.")
    if start is not None and start.query_encoder is None:
        raise InputError(f"The model {start.source} has no query encoder to start from; name one that has.")
    job.check()
    module = QueryEncoderModule.of(kept.model_name, chosen.reading, device="cpu")
    if start is not None and start.query_encoder is not None:
        trained = start.query_encoder
        if (trained.differences.base_hash, trained.reading) != (weights_fingerprint(module.learned()), chosen.reading):
            raise RetrievalError(
                f"The query encoder of the model {start.source} is of another encoder, or reads differently: "
                "its training cannot be continued with this one."
            )
        trained.differences.add_to(module.learned(), kept.model_name)
    distilled = _distilled(data, single_turn, chosen)
    targets = {target: row for row, target in enumerate(dict.fromkeys(one.rewrite.strip() for one in distilled))}
    vectors = encode_patterns(AsQueries(kept), list(targets), job.cache, job.progress)
    asked = module.text.ids([one.question.strip() for one in distilled], [one.history for one in distilled])
    items = [QueryItem(tuple(ids), target=targets[one.rewrite.strip()]) for ids, one in zip(asked, distilled, strict=True)]
    found = None
    if data is not None and chosen.distilled_first < 1 and any(example.gold for example in data.examples):
        found = encode_examples(data, kept, cache=job.cache, progress=job.progress)
        items += [item for item in query_items(module.text, found) if data.examples[item.state].history]
    training = chosen.training
    if training.mixed_precision == "no" and "bfloat16" in kept.name.split("|"):
        training = replace(training, mixed_precision="bf16")
    batches, steps = mixed_batches(items, training.batch_size, distilled_first=chosen.distilled_first, steps=training.steps)
    if training.steps is None:
        training = replace(training, steps=steps * training.epochs)
    # The settings of the training are compared one by one when it is resumed.
    told = replace(chosen, training=TrainingSettings())
    train(
        module,
        QueryEncoderLoss(vectors, found, chosen.state_weight, chosen.gate),
        items,
        training,
        fingerprint=fingerprint(kept.name, told, weights_fingerprint(module.learned()), items),
        batches=batches,
        **job.options,
    )
    model = RetrieverModel(
        encoder_identity(kept.name),
        query_encoder=QueryEncoder.of(module, kept.model_name),
        state_weight=chosen.state_weight,
        gate=chosen.gate,
    )
    return job.finish(model, data, single_turn)


def _distilled(
    data: TrainingData | None, single_turn: Sequence[Dataset], settings: QueryEncoderSettings
) -> list[TrainingExample]:
    """Synthetic conversations, and the real ones whose rewrite is known."""
    found: list[TrainingExample] = []
    for dataset in single_turn if settings.synthetic else ():
        share = max(1, settings.synthetic // len(single_turn))
        found += synthetic_conversations(dataset, share, seed=settings.training.seed)
    return found + [one for one in (data.examples if data else ()) if one.rewrite.strip() and one.history]
