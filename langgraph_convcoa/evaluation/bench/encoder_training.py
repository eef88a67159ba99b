"""A short training of an encoder, so that its types and attentions can be compared before and after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from langgraph_convcoa.datasets.queries import Dataset
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.documents.split import pattern_text
from langgraph_convcoa.retrieval.encoders.outlier_free import Attention
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.training.loop.trainer import TrainingSettings, train
from langgraph_convcoa.training.losses import dpr_loss

_BATCH = 16

Pair = tuple[str, str, frozenset[str]]
"""The text of a question, that of a passage that answers it, and all such texts."""


def train_pairs(
    model: str,
    folder: Path,
    dataset: Dataset,
    *,
    attention: Attention,
    steps: int,
    learning_rate: float = 5e-5,
    seed: int = 0,
    progress: Progress = False,
) -> None:
    """Train a whole encoder, shared by questions and passages, with an attention and the DPR loss, and save it.

    A question stands behind the user turn before it; the passages of the batch are its negatives, other gold ones masked. The
    matrix products are in bfloat16.

    Args:
        model: Name or folder of the encoder to start from.
        folder: Where the trained one is saved; missing or empty.
        dataset: Questions with their passages.
        attention: What it is trained with, and will be opened with.
        steps: How many batches of 16 pairs.
        learning_rate: Of AdamW, at its highest.
        seed: Of the order and the dropout.
        progress: A bar, a callback or nothing.

    Raises:
        InputError: No question of the data has a passage in it.
        RetrievalError: The encoder cannot be loaded, trained or saved.
    """
    texts = {str(document.id): pattern_text(document) for document in dataset.corpus}
    pairs: list[Pair] = []
    for identities, text in asked(dataset):
        gold = [texts[identity] for identity in identities if identity in texts]
        pairs.append((text, gold[0], frozenset(gold)))
    encoder = SentenceTransformerEncoder(model, dtype="float32", attention=attention)
    settings = TrainingSettings(
        steps=steps, batch_size=_BATCH, learning_rate=learning_rate, mixed_precision="bf16", seed=seed, checkpoint_every=0
    )
    train(_Texts(encoder.model), _Pairs(), pairs, settings, progress=progress)
    encoder.save(folder)


def asked(dataset: Dataset) -> list[tuple[tuple[str, ...], str]]:
    """The gold passages of each query that has one in the data, and its text: the question behind the user turn before it.

    Raises:
        InputError: There is no such query.
    """
    ids = {document.id for document in dataset.corpus}
    found = [
        (query.gold, " ".join([*(question for question, _ in query.history[-1:]), query.question]))
        for query in dataset.queries
        if any(identity in ids for identity in query.gold)
    ]
    if not found:
        raise InputError(f"No query of {dataset.name} has a gold passage in its corpus.")
    return found


class _Texts(nn.Module):
    """A sentence-transformers model from texts to vectors of length one."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, texts: Sequence[str]) -> Tensor:
        model: Any = self.model
        features = getattr(model, "preprocess", model.tokenize)(list(texts))
        moved = {name: value.to(model.device) if isinstance(value, Tensor) else value for name, value in features.items()}
        return nn.functional.normalize(cast(Tensor, model(moved)["sentence_embedding"]).float(), dim=-1)


class _Pairs:
    """The DPR loss of a batch of pairs."""

    def represent(self, module: nn.Module, items: Sequence[Pair]) -> tuple[Tensor, ...]:
        return module([question for question, _, _ in items]), module([passage for _, passage, _ in items])

    def loss(self, module: nn.Module, vectors: tuple[Tensor, ...], items: Sequence[Pair]) -> Mapping[str, Tensor]:
        questions, passages = vectors
        gold = torch.tensor([[passage in known for _, passage, _ in items] for _, _, known in items])
        positives = torch.arange(len(items), device=questions.device)
        return {"dpr": dpr_loss(questions @ passages.T, positives, gold.to(questions.device))}
