"""Training of the whole encoder: one network for questions with their turns and for passages, which are indexed again."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from langgraph_convcoa.retrieval.query.model import RetrieverModel, encoder_identity
from langgraph_convcoa.retrieval.query.query_encoder import Differences, QueryEncoder
from langgraph_convcoa.retrieval.query.query_encoder_module import QueryEncoderModule, QueryText, Reading
from langgraph_convcoa.retrieval.query.query_encoder_module import fingerprint as weights_fingerprint
from langgraph_convcoa.training.data import TrainingData
from langgraph_convcoa.training.encoded import encode_examples, fingerprint, query_items
from langgraph_convcoa.training.encoder.loss import EncoderLoss
from langgraph_convcoa.training.job import TrainingJob
from langgraph_convcoa.training.loop.trainer import TrainingSettings, train


@dataclass(frozen=True)
class EncoderSettings:
    """Settings of the whole encoder's training.

    Attributes:
        training: How long and how fast; `chunk` bounds the memory (gradient caching).
        negatives: Hard negatives of each question in a batch.
        windows: Windows of a passage that are encoded, drawn at random every time where it has more.
        passage_tokens: Of a passage or a window.
        scale: Of the scores in the DPR loss.
        reading: How much of a question and its history is read.
    """

    training: TrainingSettings = field(
        default_factory=lambda: TrainingSettings(batch_size=32, chunk=8, learning_rate=3e-5, weight_decay=0.01)
    )
    negatives: int = 1
    windows: int = 3
    passage_tokens: int = 160
    scale: float = 10.0
    reading: Reading = field(default_factory=Reading)


def train_encoder(
    data: TrainingData,
    *,
    encoder: str | None = None,
    attention: Literal["auto", "softmax", "softmax1"] = "auto",
    settings: EncoderSettings | None = None,
    job: TrainingJob,
) -> RetrieverModel:
    """Train an encoder for questions in conversation and for passages with the DPR loss, gradients cached.

    Args:
        data: Conversations with gold passages.
        encoder: Name or folder of the encoder to start from; all-MiniLM-L6-v2 when None.
        attention: "softmax1" trains it with OutEffHop's attention.
        settings: See `EncoderSettings`.
        job: Where the model goes, and how the training is run. It must name a folder, which the encoder is written into.

    Returns:
        The model, as it was saved.

    Raises:
        InputError: No example has a gold passage, the job names no folder, or an unfinished training is there and not to be
            resumed.
        RetrievalError: The encoder cannot be loaded, or the model or a checkpoint cannot be read or written.
    """
    chosen = settings or EncoderSettings()
    if job.out is None:
        raise InputError("A model with an encoder of its own needs a folder to be written into.")
    job.check()
    name = encoder or DEFAULT_ENCODER
    trained = SentenceTransformerEncoder(name, "cpu", dtype="float32", attention=attention)
    module = QueryEncoderModule(trained.model, chosen.reading)
    found = encode_examples(data, SentenceTransformerEncoder(name, job.device), cache=job.cache, progress=job.progress)
    items = query_items(module.text, found)
    if not items:
        raise InputError("There is nothing to train on: no example has a gold passage.")
    passages = QueryText(module.text.tokenizer, Reading(tokens=chosen.passage_tokens))
    numbers = {"negatives": chosen.negatives, "windows": chosen.windows}
    train(
        module,
        EncoderLoss(found.memory, passages, scale=chosen.scale, **numbers),
        items,
        chosen.training,
        fingerprint=fingerprint(trained.name, replace(chosen, training=TrainingSettings()), items),
        **job.options,
    )
    module.to("cpu")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "encoder"
        trained.save(folder)
        saved = SentenceTransformerEncoder(str(folder), "cpu", dtype="float32")
        # The network that reads questions is the one of the passages: it differs in nothing.
        same = Differences({}, weights_fingerprint(QueryEncoderModule(saved.model, chosen.reading).learned()))
        model = RetrieverModel(
            encoder_identity(saved.name),
            query_encoder=QueryEncoder(str(folder), same, chosen.reading),
            first_turns=True,
            encoder_folder=folder,
        )
        job.finish(model, data)
    return RetrieverModel.load(job.out)
