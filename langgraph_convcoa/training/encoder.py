"""Training of the whole encoder: one network for questions with their turns and for passages, which are indexed again."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.documents.split import pattern_text
from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from langgraph_convcoa.retrieval.memory_corpus import Memory, window_text
from langgraph_convcoa.retrieval.query.model import RetrieverModel, encoder_identity
from langgraph_convcoa.retrieval.query.query_encoder import Differences, QueryEncoder, arrays
from langgraph_convcoa.retrieval.query.query_encoder import fingerprint as weights_fingerprint
from langgraph_convcoa.retrieval.query.query_encoder_module import QueryEncoderModule
from langgraph_convcoa.retrieval.query.query_text import QueryText, Reading
from langgraph_convcoa.training.data import TrainingData
from langgraph_convcoa.training.encoded import QueryItem, encode_examples, fingerprint, query_items
from langgraph_convcoa.training.job import TrainingJob
from langgraph_convcoa.training.loop.trainer import TrainingSettings, train
from langgraph_convcoa.training.losses import MemorySets, dpr_loss, draw_sets, gold_mask, memory_scores


@dataclass(frozen=True)
class EncoderSettings:
    """Settings of the whole encoder's training; `training.chunk` bounds the memory by gradient caching."""

    training: TrainingSettings = field(
        default_factory=lambda: TrainingSettings(batch_size=32, chunk=8, learning_rate=3e-5, weight_decay=0.01)
    )
    negatives: int = 1  # Hard negatives of each question in a batch.
    windows: int = 3  # Windows of a passage that are encoded, drawn at random every time where it has more.
    passage_tokens: int = 160  # Of a passage or a window.
    scale: float = 10.0  # Of the scores in the DPR loss.
    reading: Reading = field(default_factory=Reading)


class EncoderLoss:
    """The DPR loss through the score that retrieval uses, with passages encoded by the network that is trained.

    The memory's patterns are not used; `text` turns its passages into token ids.
    """

    def __init__(self, memory: Memory, text: QueryText, *, negatives: int = 1, windows: int = 3, scale: float = 10.0) -> None:
        self._memory, self._text = memory, text
        self._negatives, self._windows, self._scale = negatives, windows, scale
        self._known: dict[int, list[list[int]]] = {}

    def represent(self, module: QueryEncoderModule, items: Sequence[QueryItem]) -> tuple[Tensor, ...]:
        sets: list[int] = []
        for item, drawn in zip(items, draw_sets(items, self._negatives), strict=True):
            # Every item has as many rows in every tensor, so that a batch can be put together of parts.
            sets += [*drawn, *[item.positive] * (1 + self._negatives - len(drawn))]
        texts = [self._drawn(number) for number in sets]
        rows = module([ids for one in texts for ids in one])
        sizes, numbers = (torch.tensor(one, device=rows.device) for one in ([len(one) for one in texts], sets))
        return module([item.ids for item in items]), rows, sizes, numbers

    def loss(
        self, module: QueryEncoderModule, vectors: tuple[Tensor, ...], items: Sequence[QueryItem]
    ) -> Mapping[str, Tensor]:
        questions, rows, sizes, numbers = vectors
        scores = memory_scores(questions, MemorySets.packed(rows, sizes))
        positives = torch.arange(len(items), device=scores.device) * (1 + self._negatives)
        gold = gold_mask([item.gold for item in items], numbers.cpu().numpy(), scores.device)
        return {"dpr": dpr_loss(scores, positives, gold, scale=self._scale)}

    def _drawn(self, number: int) -> list[list[int]]:
        """The token ids of a memory set: the whole passage, then some of its windows."""
        if number not in self._known:
            passage = self._memory.passages[number]
            texts = [pattern_text(passage), *(window_text(passage, span) for span in self._memory.set_spans(number))]
            self._known[number] = self._text.ids(texts, [()] * len(texts))
        whole, *windows = self._known[number]
        places = sorted(torch.randperm(len(windows))[: self._windows].tolist())
        return [whole, *(windows[place] for place in places)]


def train_encoder(
    data: TrainingData,
    *,
    encoder: str | None = None,
    settings: EncoderSettings | None = None,
    job: TrainingJob,
) -> RetrieverModel:
    """Train an encoder for questions in conversation and for passages with the DPR loss, gradients cached.

    It starts from `encoder`, all-MiniLM-L6-v2 when None. The job must name a folder.
    Raises InputError and RetrievalError as `train_query_encoder` does.
    """
    chosen = settings or EncoderSettings()
    if job.out is None:
        raise InputError("A model with an encoder of its own needs a folder to be written into.")
    job.check()
    name = encoder or DEFAULT_ENCODER
    trained = SentenceTransformerEncoder(name, "cpu", dtype="float32")
    module = QueryEncoderModule(trained.model, chosen.reading)
    found = encode_examples(data, SentenceTransformerEncoder(name, job.device), cache=job.cache, progress=job.progress)
    items = query_items(module.text, found)
    if not items:
        raise InputError("There is nothing to train on: no example has a gold passage.")
    passages = QueryText(module.text.tokenizer, Reading(tokens=chosen.passage_tokens))
    train(
        module,
        EncoderLoss(found.memory, passages, negatives=chosen.negatives, windows=chosen.windows, scale=chosen.scale),
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
        same = Differences({}, weights_fingerprint(arrays(QueryEncoderModule(saved.model, chosen.reading).learned())))
        model = RetrieverModel(
            encoder_identity(saved.name),
            query_encoder=QueryEncoder(str(folder), same, chosen.reading),
            first_turns=True,
            encoder_folder=folder,
        )
        job.finish(model, data)
    return RetrieverModel.load(job.out)
