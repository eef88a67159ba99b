"""The plain baseline: a dual encoder fine-tuned with the DPR loss, one vector a passage (Karpukhin et al. 2020)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.documents.split import pattern_text
from langgraph_convcoa.retrieval.encoders.base import Encoder, Vectors
from langgraph_convcoa.retrieval.encoders.choice import as_encoder
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from langgraph_convcoa.retrieval.query.model import RetrieverModel, encoder_identity
from langgraph_convcoa.retrieval.query.query_encoder import QueryEncoder
from langgraph_convcoa.retrieval.query.query_encoder_module import QueryEncoderModule
from langgraph_convcoa.retrieval.query.query_text import Reading
from langgraph_convcoa.training.data import TrainingData
from langgraph_convcoa.training.encoded import EncodedData, QueryItem, encode_examples, fingerprint, query_items
from langgraph_convcoa.training.job import TrainingJob
from langgraph_convcoa.training.loop.trainer import TrainingSettings, train
from langgraph_convcoa.training.losses import dpr_loss, draw_sets, targets_among

_PASSAGE_TOKENS = 256
_BATCH = 64


class DualEncoder(nn.Module):
    """An encoder for the question and the turns before it, and with `both` one for passages, which else stays frozen."""

    def __init__(self, base: str, *, both: bool = False) -> None:
        super().__init__()
        self.question = QueryEncoderModule.of(base, Reading(), device="cpu")
        self.passage = QueryEncoderModule.of(base, Reading(_PASSAGE_TOKENS), device="cpu") if both else None


class DualLoss:
    """The DPR loss of dot products of single vectors, with some hard negatives of each question and those of the batch.

    The frozen whole-passage patterns of the data are used unless the passage encoder is trained.
    """

    def __init__(self, data: EncodedData, negatives: int = 3) -> None:
        self.patterns = data.patterns
        self.negatives = negatives
        self._texts = [pattern_text(passage) for passage in data.memory.passages]
        self._ids: dict[int, list[int]] = {}

    def represent(self, module: DualEncoder, items: Sequence[QueryItem]) -> tuple[Tensor, ...]:
        states = module.question([item.ids for item in items])
        numbers = [number for drawn in draw_sets(items, self.negatives) for number in drawn]
        if module.passage is None:
            passages = torch.from_numpy(self.patterns.take(self.patterns.offsets[numbers])).to(states.device)
        else:
            passages = module.passage(self.passage_ids(module.passage, numbers))
        return states, passages, torch.tensor(numbers, device=states.device)

    def loss(self, module: DualEncoder, vectors: tuple[Tensor, ...], items: Sequence[QueryItem]) -> Mapping[str, Tensor]:
        states, passages, numbers = vectors
        # A passage that several questions brought along counts once.
        sets, first = np.unique(numbers.cpu().numpy(), return_index=True)
        positives, gold = targets_among(items, sets, states.device)
        return {"dpr": dpr_loss(states @ passages[torch.from_numpy(first).to(states.device)].T, positives, gold)}

    def passage_ids(self, encoder: QueryEncoderModule, numbers: Sequence[int]) -> list[list[int]]:
        """The token ids of some passages, kept once made."""
        new = [number for number in dict.fromkeys(numbers) if number not in self._ids]
        found = encoder.text.ids([self._texts[number] for number in new], [()] * len(new)) if new else []
        self._ids.update(zip(new, found, strict=True))
        return [self._ids[number] for number in numbers]


@dataclass(frozen=True)
class DualQuestionSettings:
    """Settings of the training of a question encoder without Hopfield."""

    training: TrainingSettings = field(default_factory=lambda: TrainingSettings(steps=200, learning_rate=1e-4))


def train_dual_question(
    data: TrainingData,
    *,
    encoder: Encoder | str | None = None,
    settings: DualQuestionSettings | None = None,
    job: TrainingJob | None = None,
) -> RetrieverModel:
    """Train a question encoder that reads a question with its turns, by the DPR loss of dot products with whole passages.

    The passages' vectors stay those of the encoder. In the model, the question encoder's vector is the whole state.

    Raises:
        InputError: No question has a gold passage, the encoder has no transformer to copy, or an unfinished training is there
            and not to be resumed.
        RetrievalError: The vectors cannot be used, or the model or a checkpoint cannot be read or written.
    """
    chosen, kept, job = settings or DualQuestionSettings(), as_encoder(encoder), job or TrainingJob()
    if not isinstance(kept, SentenceTransformerEncoder):
        raise InputError(f"A question encoder is a copy of a sentence-transformers model, not of {kept!r}; name one.")
    job.check()
    dual = DualEncoder(kept.model_name)
    found = encode_examples(data, kept, cache=job.cache, progress=job.progress)
    items = query_items(dual.question.text, found)
    if not items:
        raise InputError("No example has a gold passage; there is nothing to train on.")
    started = fingerprint(kept.name, "dual-question", items)
    train(dual, DualLoss(found), items, chosen.training, fingerprint=started, **job.options)
    model = RetrieverModel(
        encoder_identity(kept.name), query_encoder=QueryEncoder.of(dual.question, kept.model_name), first_turns=True
    )
    return job.finish(model, data)


def encode_ids(encoder: QueryEncoderModule, ids: Sequence[Sequence[int]]) -> Vectors:
    """Vectors (n, d) without a gradient, in batches of texts of about one length."""
    order = sorted(range(len(ids)), key=lambda row: len(ids[row]))
    parts = [order[start : start + _BATCH] for start in range(0, len(order), _BATCH)]
    with torch.no_grad():
        vectors = torch.cat([encoder([ids[row] for row in part]).float().cpu() for part in parts]).numpy()
    found: Vectors = np.empty_like(vectors)
    found[order] = vectors
    return found


def reciprocal_rank_of_dual(dual: DualEncoder, loss: DualLoss, items: Sequence[QueryItem]) -> float:
    """The mean reciprocal rank of the best gold passage among all passages, 0 beyond the hundredth."""
    if not items:
        raise RetrievalError("There is no question with a gold passage to measure with.")
    states = encode_ids(dual.question, [item.ids for item in items])
    if dual.passage is None:
        passages = loss.patterns.take(loss.patterns.offsets[:-1])
    else:
        passages = encode_ids(dual.passage, loss.passage_ids(dual.passage, range(loss.patterns.n)))
    found = []
    for state, item in zip(states, items, strict=True):
        scores = passages @ state
        rank = int((scores > scores[list(item.gold)].max()).sum())
        found.append(1 / (1 + rank) if rank < 100 else 0.0)
    return float(np.mean(found))
