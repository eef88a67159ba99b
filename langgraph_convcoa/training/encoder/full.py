"""Training the whole encoder: questions with their turns and passages by one network, which is then indexed with anew."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.documents.split import pattern_text
from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from langgraph_convcoa.retrieval.memory import Memory, window_text
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.retrieval.query.model import RetrieverModel, encoder_identity
from langgraph_convcoa.retrieval.query.query_encoder import Differences, QueryEncoder
from langgraph_convcoa.retrieval.query.query_encoder_module import QueryEncoderModule, QueryText, Reading, fingerprint
from langgraph_convcoa.training.data import TrainingData
from langgraph_convcoa.training.head.data import HeadExample, encode_examples
from langgraph_convcoa.training.loop.checkpoints import save_trained, startable_checkpoint
from langgraph_convcoa.training.loop.settings import TrainingSettings
from langgraph_convcoa.training.loop.trainer import train
from langgraph_convcoa.training.losses import MemorySets, dpr_loss, memory_scores


@dataclass(frozen=True)
class FullSettings:
    """How the whole encoder is trained.

    Attributes:
        training: How long and how fast; `chunk` bounds the memory (gradient caching).
        negatives: Hard negatives of each question in a batch.
        windows: Windows of a passage that are encoded, drawn anew every time where it has more.
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


@dataclass(frozen=True)
class FullItem:
    """A question: its token ids, the memory sets that answer it, one of them, and sets that do not."""

    ids: tuple[int, ...]
    gold: tuple[int, ...]
    positive: int
    hard: tuple[int, ...]


class FullLoss:
    """The DPR loss with the passages encoded by the network that is trained, through the score that retrieval uses.

    Args:
        memory: The passages; its patterns are not used.
        text: Turns passages into token ids.
        settings: See `FullSettings`.
    """

    def __init__(self, memory: Memory, text: QueryText, settings: FullSettings) -> None:
        self._memory = memory
        self._text = text
        self._settings = settings
        self._known: dict[int, list[list[int]]] = {}

    def represent(self, module: nn.Module, items: Sequence[FullItem]) -> tuple[Tensor, ...]:
        query_encoder, settings = _query_encoder(module), self._settings
        sets: list[int] = []
        for item in items:
            drawn = torch.randperm(len(item.hard))[: settings.negatives].tolist()
            chosen = [item.positive, *(item.hard[place] for place in drawn)]
            # Every item has as many rows in every tensor, so that a batch can be put together of parts.
            sets += [*chosen, *[item.positive] * (1 + settings.negatives - len(chosen))]
        texts = [self._drawn(number) for number in sets]
        rows = query_encoder([ids for one in texts for ids in one])
        device = rows.device
        return (
            query_encoder([item.ids for item in items]),
            rows,
            torch.tensor([len(one) for one in texts], device=device),
            torch.tensor(sets, device=device),
        )

    def loss(self, module: nn.Module, vectors: tuple[Tensor, ...], items: Sequence[FullItem]) -> Mapping[str, Tensor]:
        questions, rows, sizes, numbers = vectors
        scores = memory_scores(questions, MemorySets.packed(rows, sizes))
        each = 1 + self._settings.negatives
        positives = torch.arange(len(items), device=scores.device) * each
        gold = torch.stack([torch.isin(numbers, torch.tensor(item.gold, device=scores.device)) for item in items])
        return {"dpr": dpr_loss(scores, positives, gold, scale=self._settings.scale)}

    def _drawn(self, number: int) -> list[list[int]]:
        """The token ids of a memory set: the whole passage, then some of its windows."""
        if number not in self._known:
            passage = self._memory.passages[number]
            texts = [pattern_text(passage), *(window_text(passage, span) for span in self._memory.set_spans(number))]
            self._known[number] = self._text.ids(texts, [()] * len(texts))
        whole, *windows = self._known[number]
        places = sorted(torch.randperm(len(windows))[: self._settings.windows].tolist())
        return [whole, *(windows[place] for place in places)]


def train_full(
    data: TrainingData,
    *,
    out: str | Path,
    encoder: str | None = None,
    attention: Literal["auto", "softmax", "softmax1"] = "auto",
    settings: FullSettings | None = None,
    cache: PatternCache | None = None,
    resume: bool = False,
    logs: str | Path | None = None,
    progress: Progress = False,
    device: str | None = None,
    card: Callable[[RetrieverModel], str] | None = None,
) -> RetrieverModel:
    """Train an encoder for questions in conversation and for passages with the DPR loss, gradients cached.

    Args:
        data: Conversations with gold passages.
        out: Folder for the model, the encoder in it; the state of an unfinished run is kept beside it.
        encoder: Name or folder of the encoder to start from; all-MiniLM-L6-v2 when None.
        attention: "softmax1" trains it with OutEffHop's attention.
        settings: See `FullSettings`.
        cache: Where the first encoder's patterns, which hard negatives are found with, are kept between runs.
        resume: Go on from an unfinished run into `out`.
        logs: Folder for TensorBoard.
        progress: A bar, a callback or nothing.
        device: "cpu", "cuda", ...; chosen when None.
        card: Makes the model's card of the model.

    Returns:
        The model, saved in `out`.

    Raises:
        InputError: No example has a gold passage, or an unfinished run is there and not to be resumed.
        RetrievalError: The encoder cannot be loaded, or the model or a checkpoint cannot be read or written.
    """
    chosen = settings or FullSettings()
    checkpoint = startable_checkpoint(out, resume=resume)
    name = encoder or DEFAULT_ENCODER
    trained = SentenceTransformerEncoder(name, "cpu", dtype="float32", attention=attention)
    module = QueryEncoderModule(trained.model, chosen.reading)
    vectors, examples = encode_examples(data, SentenceTransformerEncoder(name, device), cache=cache, progress=progress)
    items = _items(data, examples, module.text)
    if not items:
        raise InputError("There is nothing to train on: no example has a gold passage.")
    passages = QueryText(module.text.tokenizer, Reading(tokens=chosen.passage_tokens))
    training = chosen.training
    train(
        module,
        FullLoss(vectors.memory, passages, chosen),
        items,
        training,
        checkpoint=checkpoint,
        resume=resume,
        fingerprint=_fingerprint(items, trained, chosen),
        logs=logs,
        progress=progress,
        device=device,
    )
    module.to("cpu")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "encoder"
        trained.save(folder)
        saved = SentenceTransformerEncoder(str(folder), "cpu", dtype="float32")
        # The network that reads questions is the one of the passages: it differs in nothing.
        same = Differences({}, fingerprint(QueryEncoderModule(saved.model, chosen.reading).learned()))
        model = RetrieverModel(
            encoder_identity(saved.name),
            query_encoder=QueryEncoder(str(folder), same, chosen.reading),
            first_turns=True,
            encoder_folder=folder,
        )
        if card is not None:
            model = replace(model, card=card(model))
        save_trained(model, out, checkpoint)
    return RetrieverModel.load(out)


def _items(data: TrainingData, examples: Sequence[HeadExample], text: QueryText) -> list[FullItem]:
    asked = text.ids([one.question.strip() for one in data.examples], [one.history for one in data.examples])
    return [
        FullItem(tuple(ids), example.gold, example.positive, example.hard)
        for ids, example in zip(asked, examples, strict=True)
        if example.positive >= 0
    ]


def _fingerprint(items: Sequence[FullItem], encoder: SentenceTransformerEncoder, settings: FullSettings) -> str:
    digest = hashlib.sha256(f"{encoder.name} {replace(settings, training=TrainingSettings())}".encode())
    digest.update(np.array([len(items)]).tobytes())
    for item in items:
        digest.update(repr(item).encode())
    return digest.hexdigest()[:16]


def _query_encoder(module: nn.Module) -> QueryEncoderModule:
    if not isinstance(module, QueryEncoderModule):
        raise TypeError(f"An encoder is trained here, not {type(module).__name__}.")
    return module
