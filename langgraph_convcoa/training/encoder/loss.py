"""The loss of the whole encoder: the DPR loss with passages encoded by the network that is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from langgraph_convcoa.retrieval.documents.split import pattern_text
from langgraph_convcoa.retrieval.memory import Memory, window_text
from langgraph_convcoa.retrieval.query.query_encoder_module import QueryEncoderModule, QueryText
from langgraph_convcoa.training.encoded import QueryItem
from langgraph_convcoa.training.losses import MemorySets, dpr_loss, draw_sets, memory_scores


class EncoderLoss:
    """The DPR loss through the score that retrieval uses.

    Args:
        memory: The passages; its patterns are not used.
        text: Turns passages into token ids.
        negatives: Hard negatives of each question in a batch.
        windows: Windows of a passage that are encoded, drawn at random every time where it has more.
        scale: Of the scores in the DPR loss.
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
        gold = torch.stack([torch.isin(numbers, torch.tensor(item.gold, device=scores.device)) for item in items])
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
