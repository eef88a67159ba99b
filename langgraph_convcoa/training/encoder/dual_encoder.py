"""The plain baseline: a dual encoder fine-tuned with the DPR loss, one vector a passage (Karpukhin et al. 2020)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.documents.split import pattern_text
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.query.query_encoder_module import QueryEncoderModule, Reading
from langgraph_convcoa.retrieval.scoring.patterns import Patterns
from langgraph_convcoa.training.data import TrainingData
from langgraph_convcoa.training.head.data import HeadExample, HeadVectors
from langgraph_convcoa.training.losses import SCALE, dpr_loss

_PASSAGE_TOKENS = 256
_BATCH = 64


@dataclass(frozen=True)
class DualItem:
    """A question in conversation as token ids, and the numbers of its passages."""

    ids: tuple[int, ...]
    gold: tuple[int, ...]
    positive: int
    hard: tuple[int, ...]


class DualEncoder(nn.Module):
    """A tower for the question and the turns before it, newest first, and one for passages, which may stay frozen.

    Args:
        base: Name or folder of the encoder that both start from.
        both: Whether the passage tower is trained too.
        tokens: How many tokens of question and turns are read.

    Raises:
        RetrievalError: The encoder cannot be loaded, or is no single transformer.
    """

    def __init__(self, base: str, *, both: bool = False, tokens: int = 128) -> None:
        super().__init__()
        self.question = QueryEncoderModule.of(base, Reading(tokens), device="cpu")
        self.passage = QueryEncoderModule.of(base, Reading(_PASSAGE_TOKENS), device="cpu") if both else None

    def items(self, data: TrainingData, examples: Sequence[HeadExample]) -> list[DualItem]:
        """The examples of the data that have a gold passage, as token ids."""
        ids = self.question.text.ids(
            [example.question.strip() for example in data.examples], [example.history for example in data.examples]
        )
        return [
            DualItem(tuple(tokens), example.gold, example.positive, example.hard)
            for tokens, example in zip(ids, examples, strict=True)
            if example.positive >= 0
        ]


class DualLoss:
    """The DPR loss of dot products of single vectors, with hard negatives and those of the batch.

    Args:
        vectors: The memory whose passages are told apart; their frozen whole-passage patterns are used unless the passage
            tower is trained.
        negatives: Hard negatives of each question in a batch, drawn anew every time.
    """

    def __init__(self, vectors: HeadVectors, negatives: int = 3) -> None:
        self.patterns: Patterns = vectors.patterns
        self.negatives = negatives
        self._texts = [pattern_text(passage) for passage in vectors.memory.passages]
        self._ids: dict[int, list[int]] = {}

    def represent(self, module: nn.Module, items: Sequence[DualItem]) -> tuple[Tensor, ...]:
        dual = _dual(module)
        states = dual.question([item.ids for item in items])
        numbers: list[int] = []
        for item in items:
            # Torch's random numbers are those that a resumed run, and the second pass of gradient caching, has again.
            drawn = torch.randperm(len(item.hard))[: self.negatives].tolist()
            numbers += [item.positive, *(item.hard[place] for place in drawn)]
        if dual.passage is None:
            passages = torch.from_numpy(self.patterns.take(self.patterns.offsets[numbers])).to(states.device)
        else:
            passages = dual.passage(self.passage_ids(dual.passage, numbers))
        return states, passages, torch.tensor(numbers, device=states.device)

    def loss(self, module: nn.Module, vectors: tuple[Tensor, ...], items: Sequence[DualItem]) -> Mapping[str, Tensor]:
        states, passages, numbers = vectors
        # A passage that several questions brought along counts once.
        sets, first = np.unique(numbers.cpu().numpy(), return_index=True)
        places = {int(number): place for place, number in enumerate(sets)}
        gold = np.zeros((len(items), len(sets)), dtype=np.bool_)
        for row, item in enumerate(items):
            gold[row, [places[number] for number in item.gold if number in places]] = True
        positives = torch.tensor([places[item.positive] for item in items], device=states.device)
        scores = states @ passages[torch.from_numpy(first).to(states.device)].T
        return {"dpr": dpr_loss(scores, positives, torch.from_numpy(gold).to(states.device), scale=SCALE)}

    def passage_ids(self, query_encoder: QueryEncoderModule, numbers: Sequence[int]) -> list[list[int]]:
        """The token ids of some passages, kept once made."""
        new = [number for number in dict.fromkeys(numbers) if number not in self._ids]
        found = query_encoder.text.ids([self._texts[number] for number in new], [()] * len(new)) if new else []
        self._ids.update(zip(new, found, strict=True))
        return [self._ids[number] for number in numbers]


def encode_ids(query_encoder: QueryEncoderModule, ids: Sequence[Sequence[int]]) -> Vectors:
    """Vectors (n, d) without a gradient, in batches of texts of about one length."""
    found: Vectors = np.zeros((len(ids), 0), dtype=np.float32)
    order = sorted(range(len(ids)), key=lambda row: len(ids[row]))
    with torch.no_grad():
        for start in range(0, len(order), _BATCH):
            part = order[start : start + _BATCH]
            rows = query_encoder([ids[row] for row in part]).float().cpu().numpy()
            if not found.size:
                found = np.zeros((len(ids), rows.shape[1]), dtype=np.float32)
            found[part] = rows
    return found


def reciprocal_rank_of_dual(dual: DualEncoder, loss: DualLoss, items: Sequence[DualItem], depth: int = 100) -> float:
    """The mean reciprocal rank of the best gold passage among all passages, by dot products of single vectors."""
    if not items:
        raise RetrievalError("There is no question with a gold passage to measure with.")
    states = encode_ids(dual.question, [item.ids for item in items])
    numbers = range(loss.patterns.n)
    if dual.passage is None:
        passages = loss.patterns.take(loss.patterns.offsets[:-1])
    else:
        passages = encode_ids(dual.passage, loss.passage_ids(dual.passage, numbers))
    found = []
    for state, item in zip(states, items, strict=True):
        scores = passages @ state
        rank = int((scores > scores[list(item.gold)].max()).sum())
        found.append(1 / (1 + rank) if rank < depth else 0.0)
    return float(np.mean(found))


def _dual(module: nn.Module) -> DualEncoder:
    if not isinstance(module, DualEncoder):
        raise TypeError(f"A dual encoder is trained here, not {type(module).__name__}.")
    return module
