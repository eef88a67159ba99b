"""Short training of an encoder, so that its types and attentions can be compared before and after the training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from experiments.encoder.outlier_free import Attention, load
from langgraph_convcoa.datasets.queries import Dataset
from langgraph_convcoa.retrieval.documents.split import pattern_text
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.training.losses import dpr_loss, gold_mask
from langgraph_convcoa.training.trainer import TrainingSettings, train

_BATCH = 16

Pair = tuple[str, tuple[int, ...]]
"""The text of a question, and the numbers of the passages that answer it. The first passage is the positive."""


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
    """Train a whole encoder, shared by questions and passages, with an attention and the DPR loss, and save it to a folder.

    The text of a question is the user turn before it and the question. The other passages of the batch of 16 are its
    negatives, without its other gold passages.

    Raises:
        InputError: No question has a gold passage in the data.
        RetrievalError: The encoder cannot be loaded, trained or saved.
    """
    texts = {str(document.id): pattern_text(document) for document in dataset.corpus}
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts.values()))}
    pairs: list[Pair] = [
        (query.two_turns, tuple(numbers[texts[identity]] for identity in query.gold if identity in texts))
        for query in dataset.answerable(texts)
    ]
    encoder = load(model, attention)
    settings = TrainingSettings(steps=steps, batch_size=_BATCH, learning_rate=learning_rate, seed=seed)
    train(_Texts(encoder), _Pairs(list(numbers)), pairs, settings, progress=progress)
    encoder.save_pretrained(str(folder), create_model_card=False)


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

    def __init__(self, passages: Sequence[str]) -> None:
        self._passages = passages

    def __call__(self, module: nn.Module, items: Sequence[Pair]) -> Tensor:
        golds = [gold for _, gold in items]
        questions = module([question for question, _ in items])
        passages = module([self._passages[gold[0]] for gold in golds])
        mask = gold_mask(golds, np.array([gold[0] for gold in golds]), questions.device)
        return dpr_loss(questions @ passages.T, torch.arange(len(items), device=questions.device), mask)
