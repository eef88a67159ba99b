"""The plain baseline: a dual encoder trained with the DPR loss, one vector for each passage (Karpukhin et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from langgraph_convcoa.retrieval.documents.split import pattern_text
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.query.query_encoder_module import QueryEncoderModule
from langgraph_convcoa.retrieval.query.query_text import Reading
from langgraph_convcoa.training.data import EncodedData, QueryItem
from langgraph_convcoa.training.losses import dpr_loss, gold_mask

_PASSAGE_TOKENS = 256
_BATCH = 64


class DualEncoder(nn.Module):
    """An encoder of questions with their turns. With `both` it also has one for passages, which otherwise stay frozen."""

    def __init__(self, base: str, *, both: bool = False) -> None:
        super().__init__()
        self.question = QueryEncoderModule.of(base, Reading(), device="cpu")
        self.passage = QueryEncoderModule.of(base, Reading(_PASSAGE_TOKENS), device="cpu") if both else None


class DualLoss:
    """The DPR loss of dot products, with some hard negatives of each question and the other passages of the batch.

    If no passage encoder is trained, passages have the frozen whole-passage patterns of the data.
    """

    def __init__(self, data: EncodedData, negatives: int = 3) -> None:
        self.patterns, self.negatives = data.memory.patterns, negatives
        self._texts = [pattern_text(passage) for passage in data.memory.passages]

    def __call__(self, dual: DualEncoder, items: Sequence[QueryItem]) -> Tensor:
        states = dual.question([item.ids for item in items])
        drawn = [item.positive for item in items]
        for item in items:
            drawn += [item.hard[place] for place in torch.randperm(len(item.hard))[: self.negatives].tolist()]
        sets = np.unique(drawn)
        positives = torch.from_numpy(np.searchsorted(sets, [item.positive for item in items])).to(states.device)
        gold = gold_mask([item.gold for item in items], sets, states.device)
        return dpr_loss(states @ self.passages(dual, sets.tolist()).to(states.device).T, positives, gold)

    def passages(self, dual: DualEncoder, numbers: Sequence[int]) -> Tensor:
        """The vectors of some passages, (n, d)."""
        if dual.passage is None:
            return torch.from_numpy(self.patterns.take(self.patterns.offsets[list(numbers)]))
        return dual.passage(self._ids(dual.passage, numbers))  # type: ignore[no-any-return]

    def reciprocal_rank(self, dual: DualEncoder, items: Sequence[QueryItem]) -> float:
        """The mean reciprocal rank of the best gold passage among all passages; 0 beyond the hundredth."""
        states = encode_ids(dual.question, [item.ids for item in items])
        numbers = range(self.patterns.n)
        if dual.passage is None:
            passages = self.passages(dual, numbers).numpy()
        else:
            passages = encode_ids(dual.passage, self._ids(dual.passage, numbers))
        found = []
        for state, item in zip(states, items, strict=True):
            scores = passages @ state
            rank = int((scores > scores[list(item.gold)].max()).sum())
            found.append(1 / (1 + rank) if rank < 100 else 0.0)
        return float(np.mean(found))

    def _ids(self, encoder: QueryEncoderModule, numbers: Sequence[int]) -> list[list[int]]:
        return encoder.text.ids([self._texts[number] for number in numbers], [()] * len(numbers))


def encode_ids(encoder: QueryEncoderModule, ids: Sequence[Sequence[int]]) -> Vectors:
    """Vectors (n, d) without a gradient, in batches of texts of similar lengths."""
    order = sorted(range(len(ids)), key=lambda row: len(ids[row]))
    parts = [order[start : start + _BATCH] for start in range(0, len(order), _BATCH)]
    with torch.no_grad():
        vectors = torch.cat([encoder([ids[row] for row in part]).float().cpu() for part in parts]).numpy()
    found: Vectors = np.empty_like(vectors)
    found[order] = vectors
    return found
