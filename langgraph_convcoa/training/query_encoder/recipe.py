"""The recipe of the default model: a query encoder that learns from made and from real conversations."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from langgraph_convcoa.datasets.queries import Dataset
from langgraph_convcoa.datasets.splits import in_dev_part
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.encoders.base import Encoder, Vectors
from langgraph_convcoa.retrieval.encoders.cache import PatternCache, encode_patterns
from langgraph_convcoa.retrieval.encoders.choice import as_encoder
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.retrieval.query.conversation_state import mixed_states
from langgraph_convcoa.retrieval.query.model import RetrieverModel, encoder_identity
from langgraph_convcoa.retrieval.query.query_encoder import QueryEncoder
from langgraph_convcoa.retrieval.query.query_encoder_module import QueryEncoderModule, QueryText, Reading, fingerprint
from langgraph_convcoa.retrieval.scoring.topk import search
from langgraph_convcoa.training.data import TrainingData, TrainingExample
from langgraph_convcoa.training.head.data import AsQueries, encode_examples
from langgraph_convcoa.training.loop.checkpoints import save_trained, startable_checkpoint
from langgraph_convcoa.training.loop.settings import TrainingSettings
from langgraph_convcoa.training.loop.trainer import train
from langgraph_convcoa.training.query_encoder.losses import QueryEncoderData, QueryEncoderLoss, QueryItem, mixed_batches
from langgraph_convcoa.training.synthetic.conversations import make_conversations

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class QueryEncoderRecipe:
    """What a query encoder is trained with; chosen on conversations that are not reported on.

    Attributes:
        training: How long and how fast; `epochs` counts the questions to distil.
        made: How many conversations are made of the single-turn data.
        distilled_first: Share of the steps that only distil; the others mix in real conversations with the DPR loss. With 1
            there is no DPR loss at all.
        state_weight: g of the state (`mixed_states`) in the DPR loss.
        state_weights: What g of the model is chosen from, on held-out conversations of the same sources, which favour a
            smaller g than sources that were not trained on; the first where nothing is held out.
        gate: p of the state, in the DPR loss and in the model. With a query encoder that only distilled on made
            conversations, g and p were chosen on four sources it had not seen: MRR 0.616; without a gate and with g = 0.5
            0.596; untrained 0.574.
        share: How much is kept of what training changed (`QueryEncoder.of`).
        held_out: Share of the real conversations that are not trained on, for this choice; none where there is no choice.
        frozen_layers: How many of the lowest layers are not trained.
        reading: How much of a question and its history is read.
    """

    training: TrainingSettings = field(
        default_factory=lambda: TrainingSettings(batch_size=48, learning_rate=1e-4, weight_decay=0.01, checkpoint_every=50)
    )
    made: int = 6_000
    distilled_first: float = 0.5
    state_weight: float = 0.1
    state_weights: tuple[float, ...] = (0.1,)
    gate: float = 2.0
    share: float = 1.0
    held_out: float = 0.1
    frozen_layers: int = 0
    reading: Reading = field(default_factory=Reading)


def train_query_encoder(
    data: TrainingData | None,
    *,
    single_turn: Sequence[Dataset] = (),
    out: str | Path | None = None,
    encoder: Encoder | str | None = None,
    recipe: QueryEncoderRecipe | None = None,
    start: QueryEncoder | None = None,
    average_with: QueryEncoder | None = None,
    cache: PatternCache | None = None,
    resume: bool = False,
    logs: str | Path | None = None,
    progress: Progress = False,
    device: str | None = None,
    card: Callable[[RetrieverModel], str] | None = None,
) -> RetrieverModel:
    """Train a query encoder: distillation on conversations made of single-turn data and on rewrites, and the DPR loss.

    Args:
        data: Real conversations and their passages; None trains on made ones alone.
        single_turn: Questions over titled articles, that conversations are made of.
        out: Folder for the model; the state of an unfinished run is kept beside it.
        encoder: The encoder that stays as it is, a sentence-transformers model; all-MiniLM-L6-v2 when None.
        recipe: See `QueryEncoderRecipe`.
        start: A query encoder of the same encoder to go on from; the encoder itself when None.
        average_with: A query encoder of the same encoder, averaged with the trained one; such as one that only distilled.
        cache: Where vectors are kept between runs.
        resume: Go on from an unfinished run into `out`.
        logs: Folder for TensorBoard.
        progress: A bar, a callback or nothing.
        device: "cpu", "cuda", ...; chosen when None.
        card: Makes the model's card of the model.

    Returns:
        The model, saved in `out` where that is given.

    Raises:
        InputError: There is nothing to learn from, the encoder has no transformer to copy, or an unfinished run is there and
            not to be resumed.
        RetrievalError: `average_with` is of another encoder or reads differently, the vectors cannot be used, or the model or
            a checkpoint cannot be read or written.
    """
    chosen, kept = recipe or QueryEncoderRecipe(), as_encoder(encoder)
    if not isinstance(kept, SentenceTransformerEncoder):
        raise InputError(
            f"A query encoder is a copy of a sentence-transformers model, not of {kept!r}; train a head (--head)."
        )
    if data is None and not single_turn:
        raise InputError("There is nothing to train on: name conversations, or questions over titled articles.")
    checkpoint = startable_checkpoint(out, resume=resume) if out is not None else None
    settings = chosen.training
    if settings.mixed_precision == "no" and "bfloat16" in kept.name.split("|"):
        settings = replace(settings, mixed_precision="bf16")
    module = QueryEncoderModule.of(kept.model_name, chosen.reading, device="cpu", frozen_layers=chosen.frozen_layers)
    if average_with is not None:
        average_with.check_alike(fingerprint(module.learned()), chosen.reading)
    if start is not None:
        start.check_alike(fingerprint(module.learned()), chosen.reading)
        start.differences.add_to(module.learned(), kept.model_name)
    found, items, held_out = query_encoder_data(data, single_turn, kept, module.text, chosen, cache=cache, progress=progress)
    batches, steps = mixed_batches(items, settings.batch_size, distilled_first=chosen.distilled_first, steps=settings.steps)
    if settings.steps is None:
        settings = replace(settings, steps=steps * settings.epochs)
    train(
        module,
        QueryEncoderLoss(found, chosen.state_weight, chosen.gate),
        items,
        settings,
        checkpoint=checkpoint,
        resume=resume,
        fingerprint=_fingerprint(items, kept, chosen, module),
        batches=batches,
        logs=logs,
        progress=progress,
        device=device,
    )
    query_encoder = QueryEncoder.of(module, kept.model_name, share=chosen.share)
    if average_with is not None:
        query_encoder = query_encoder.averaged(average_with)
    model = RetrieverModel(
        encoder_identity(kept.name),
        query_encoder=query_encoder,
        state_weight=choose_state_weight(query_encoder.module(), found, held_out, chosen),
        gate=chosen.gate,
    )
    if card is not None:
        model = replace(model, card=card(model))
    if out is not None and checkpoint is not None:
        save_trained(model, out, checkpoint)
    return model


def query_encoder_data(
    data: TrainingData | None,
    single_turn: Sequence[Dataset],
    encoder: Encoder,
    text: QueryText,
    recipe: QueryEncoderRecipe,
    *,
    cache: PatternCache | None = None,
    progress: Progress = False,
) -> tuple[QueryEncoderData, list[QueryItem], dict[str, list[QueryItem]]]:
    """Everything that a query encoder is trained on, encoded once: questions in full, untrained states, and passages.

    Questions without a history are left out: they are not the query encoder's.

    Args:
        data: Real conversations; those with a rewrite are distilled, those with a gold passage have the DPR loss as well.
        single_turn: What conversations are made of.
        encoder: The frozen encoder.
        text: Turns questions and histories into token ids.
        recipe: How many to make, and the seed.
        cache: Where vectors are kept between runs.
        progress: A bar, a callback or nothing while encoding.

    Returns:
        The vectors, what is trained on, and of each source what is held out.
    """
    distilled = _distilled(data, single_turn, recipe)
    targets: dict[str, int] = {}
    for *_, target in distilled:
        targets.setdefault(target, len(targets))
    vectors = encode_patterns(AsQueries(encoder), list(targets), cache, progress)
    asked = text.ids([question for question, *_ in distilled], [history for _, history, _ in distilled])
    items = [QueryItem(tuple(ids), targets[target]) for ids, (*_, target) in zip(asked, distilled, strict=True)]
    if data is None or recipe.distilled_first >= 1 or not any(example.gold for example in data.examples):
        return QueryEncoderData(vectors, np.zeros((0, encoder.dimension), dtype=np.float32)), items, {}
    real, examples = encode_examples(data, encoder, cache=cache, progress=progress)
    states = real.untrained_states(examples, 0.6, 1.0)
    asked = text.ids([one.question.strip() for one in data.examples], [one.history for one in data.examples])
    held_out: dict[str, list[QueryItem]] = {}
    for row, (ids, example, asked_example) in enumerate(zip(asked, examples, data.examples, strict=True)):
        if example.positive < 0 or not asked_example.history:
            continue
        item = QueryItem(tuple(ids), -1, row, example.gold, example.positive, example.hard)
        if _is_held_out(asked_example, recipe):
            held_out.setdefault(asked_example.source, []).append(item)
        else:
            items.append(item)
    questions = real.texts[[example.question for example in examples]]
    return QueryEncoderData(vectors, states, real.patterns, questions), items, held_out


def choose_state_weight(
    module: QueryEncoderModule, data: QueryEncoderData, held_out: Mapping[str, Sequence[QueryItem]], recipe: QueryEncoderRecipe
) -> float:
    """The g that ranks the passages of held-out conversations best, by mean reciprocal rank, every source counting alike."""
    if data.patterns is None or data.questions is None or not held_out or len(recipe.state_weights) < 2:
        return recipe.state_weights[0] if recipe.state_weights else recipe.state_weight
    reached = dict.fromkeys(recipe.state_weights, 0.0)
    for items in held_out.values():
        vectors = _encoded(module, items)
        for weight in reached:
            rows = [item.state for item in items]
            mixed = mixed_states(vectors, data.questions[rows], data.states[rows], weight, recipe.gate)
            found = search(data.patterns, mixed, k=100)
            ranks = [np.flatnonzero(np.isin(one.indices, item.gold)) for one, item in zip(found, items, strict=True)]
            reached[weight] += float(np.mean([1 / (1 + rank[0]) if len(rank) else 0.0 for rank in ranks]))
    _LOGGER.info("State weights by MRR on held-out conversations: %s", {w: r / len(held_out) for w, r in reached.items()})
    return max(reached, key=lambda weight: reached[weight])


def _encoded(module: QueryEncoderModule, items: Sequence[QueryItem]) -> Vectors:
    with torch.inference_mode():
        parts = [module([item.ids for item in items[start : start + 32]]).cpu() for start in range(0, len(items), 32)]
    return np.asarray(torch.cat(parts).numpy(), dtype=np.float32)


def _is_held_out(example: TrainingExample, recipe: QueryEncoderRecipe) -> bool:
    return len(recipe.state_weights) > 1 and in_dev_part(f"held out {example.conversation}", recipe.held_out)


_Distilled = tuple[str, tuple[tuple[str, str], ...], str]


def _distilled(data: TrainingData | None, single_turn: Sequence[Dataset], recipe: QueryEncoderRecipe) -> list[_Distilled]:
    """Questions, their histories and the questions in full."""
    seed = recipe.training.seed
    found: list[_Distilled] = []
    for dataset in single_turn:
        if recipe.made:
            share = max(1, recipe.made // len(single_turn))
            found += [(made.question, made.history, made.target) for made in make_conversations(dataset, share, seed=seed)]
    real = data.examples if data is not None else ()
    return found + [_rewritten(one) for one in real if one.rewrite.strip() and one.history and not _is_held_out(one, recipe)]


def _rewritten(example: TrainingExample) -> _Distilled:
    return example.question.strip(), example.history, example.rewrite.strip()


def _fingerprint(items: Sequence[QueryItem], encoder: Encoder, recipe: QueryEncoderRecipe, module: QueryEncoderModule) -> str:
    # The settings of the training are told apart one by one.
    told = replace(recipe, training=TrainingSettings())
    digest = hashlib.sha256(f"{encoder.name} {told} {fingerprint(module.learned())}".encode())
    for item in items:
        digest.update(repr(item).encode())
    return digest.hexdigest()[:16]
