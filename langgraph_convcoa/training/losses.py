"""Losses of retriever training: the DPR loss over multi-vector passages, and distillation from questions in full."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from langgraph_convcoa.hopfield.sparsity import associate
from langgraph_convcoa.retrieval.scoring.patterns import Patterns

SCALE = 20.0
"""Of scores of unit vectors before the softmax of a contrast, whose temperature is 1/20."""


class Ranked(Protocol):
    """A question by the memory sets that answer it, one of them, and sets that do not."""

    @property
    def gold(self) -> Sequence[int]: ...
    @property
    def positive(self) -> int: ...
    @property
    def hard(self) -> Sequence[int]: ...


@dataclass(frozen=True, eq=False)
class MemorySets:
    """M memory sets of unequal sizes, laid out side by side.

    Example:
        >>> sets = MemorySets.of(Patterns(np.eye(5, dtype=np.float32), np.array([0, 2, 5])), np.array([1, 0]))
        >>> sets.mask.tolist()
        [[True, True], [True, False]]
    """

    whole: Tensor  # (m, d), the whole-passage pattern y_0 of each.
    windows: Tensor  # (m, w, d), the windows Y of each; what is beyond a set's size is anything.
    mask: Tensor  # (m, w), True where there is a window; at least one a set.

    @classmethod
    def of(cls, patterns: Patterns, sets: npt.NDArray[np.int64], device: str | torch.device = "cpu") -> MemorySets:
        """Some memory sets of stored patterns, in the given order."""
        chosen = patterns.select(sets)
        rows = torch.from_numpy(chosen.take(np.arange(len(chosen.values)))).to(device)
        return cls.packed(rows, torch.from_numpy(np.diff(chosen.offsets)).to(device))

    @classmethod
    def packed(cls, rows: Tensor, sizes: Tensor) -> MemorySets:
        """Memory sets whose patterns are one after another, y_0 first: rows (N, d), with a gradient; sizes (m,) above 1."""
        windows = sizes - 1
        starts = sizes.cumsum(0) - sizes
        columns = torch.arange(int(windows.max()), device=rows.device)
        mask = columns < windows.unsqueeze(-1)
        places = starts.unsqueeze(-1) + 1 + torch.minimum(columns, windows.unsqueeze(-1) - 1)
        return cls(rows[starts], rows[places], mask)


def memory_scores(
    states: Tensor,
    sets: MemorySets,
    *,
    beta: float | Tensor = 10.0,
    passage_weight: float | Tensor = 1.0,
    association: Tensor | None = None,
    readout: Tensor | None = None,
) -> Tensor:
    """The scores (q, m) of memory sets for states (q, d), w <x, y_0> + sum_j sparsemax(beta a)_j b_j, with a gradient.

    It is what retrieval ranks by. a are the products of the windows with `association`, X W_Q W_K^T, and b those with
    `readout`, X (W_K W_V)^T, both (q, d) and the states when None.

    Example:
        >>> sets = MemorySets(torch.eye(2), torch.eye(2).view(2, 1, 2), torch.ones(2, 1, dtype=torch.bool))
        >>> memory_scores(torch.tensor([[0.6, 0.8]]), sets).tolist()
        [[1.2000000476837158, 1.600000023841858]]
    """
    products = torch.einsum("qd,mwd->qmw", states if readout is None else readout, sets.windows)
    asked = states if association is None else association
    likeness = products if association is readout else torch.einsum("qd,mwd->qmw", asked, sets.windows)
    weights = associate(likeness, beta=beta, mask=sets.mask)
    return passage_weight * (states @ sets.whole.T) + (weights * products).sum(dim=-1)


def gated_states(encoded: Tensor, questions: Tensor, states: Tensor, state_weight: float, gate: float) -> Tensor:
    """normalise((1 - <t, x>)^p t + g s), the state of a model with a query encoder, with a gradient (`mixed_states`).

    t, x and s are the vectors `encoded`, `questions` and `states`, (n, d) of length one, g `state_weight` and p `gate`.

    Example:
        >>> t, s = torch.eye(2)[:1], torch.eye(2)[1:]
        >>> gated_states(t, t, s, 0.1, 2.0).round(decimals=3).tolist(), gated_states(t, t, s, 0.0, 0.0).tolist()
        ([[0.0, 1.0]], [[1.0, 0.0]])
    """
    weights: Tensor | float = 1.0
    if gate:
        # Not quite 0, where the gradient of a root is infinite.
        weights = (1 - (encoded * questions).sum(dim=-1, keepdim=True)).clamp(min=1e-24) ** gate
    return torch.nn.functional.normalize(weights * encoded + state_weight * states, dim=-1)


def dpr_loss(scores: Tensor, positives: Tensor, also_gold: Tensor | None = None, *, scale: float | Tensor = SCALE) -> Tensor:
    """Negative log-likelihood of each query's positive among its positive, hard negatives and the batch's other sets.

    Karpukhin et al. 2020, over memory sets (Pan et al. 2024b, section 4). Of the scores (q, m) `positives` (q,) names each
    query's column; where `also_gold` (q, m) is True a set is no negative of that query. The mean over the queries, 0 of none.

    Example:
        >>> scores = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> round(dpr_loss(scores, torch.tensor([0, 1]), scale=1.0).item(), 4)
        0.3133
        >>> dpr_loss(scores, torch.tensor([0, 1]), torch.ones(2, 2, dtype=torch.bool)).item()
        0.0
    """
    if not len(positives):
        return scores.sum() * 0.0
    logits = scale * scores
    if also_gold is not None:
        own = torch.zeros_like(also_gold).scatter(1, positives.unsqueeze(-1), True)
        logits = logits.masked_fill(also_gold & ~own, -torch.inf)
    return torch.nn.functional.cross_entropy(logits, positives)


def draw_sets(items: Sequence[Ranked], negatives: int) -> list[list[int]]:
    """The memory sets that each question brings into a batch: its positive, then hard negatives, drawn at random every time.

    They are drawn with torch's random numbers, which a resumed run and the second pass of gradient caching have again.
    """
    return [
        [item.positive, *(item.hard[place] for place in torch.randperm(len(item.hard))[:negatives].tolist())] for item in items
    ]


def targets_among(
    items: Sequence[Ranked], sets: npt.NDArray[np.int64], device: str | torch.device = "cpu"
) -> tuple[Tensor, Tensor]:
    """Of m memory sets, ascending: the number of each question's positive (q,), and which sets are gold for it (q, m).

    Example:
        >>> from types import SimpleNamespace as Item
        >>> targets_among([Item(gold=(4, 9), positive=4, hard=())], np.array([2, 4, 9]))
        (tensor([1]), tensor([[False,  True,  True]]))
    """
    positives = np.searchsorted(sets, [item.positive for item in items])
    return torch.from_numpy(positives).to(device), gold_mask([item.gold for item in items], sets, device)


def gold_mask(golds: Sequence[Sequence[int]], numbers: npt.NDArray[np.int64], device: str | torch.device = "cpu") -> Tensor:
    """Which of m numbers are gold for each of q questions, (q, m)."""
    return torch.from_numpy(np.stack([np.isin(numbers, gold) for gold in golds])).to(device)


def ranking_loss(
    items: Sequence[Ranked],
    patterns: Patterns,
    score: Callable[[MemorySets], Tensor],
    *,
    negatives: int,
    scale: float = SCALE,
    device: str | torch.device = "cpu",
) -> Tensor:
    """The DPR loss of questions over stored patterns: their positives and some hard negatives of each, every set once."""
    sets = np.unique(np.concatenate([np.array(drawn, dtype=np.int64) for drawn in draw_sets(items, negatives)]))
    positives, gold = targets_among(items, sets, device)
    return dpr_loss(score(MemorySets.of(patterns, sets, device)), positives, gold, scale=scale)


def distillation_loss(states: Tensor, targets: Tensor, *, contrast: float = 1.0, scale: float = SCALE) -> dict[str, Tensor]:
    """How far the states of questions in conversation are from the vectors of the questions that stand alone, both (q, d).

    "cosine" is one minus the cosine of the two; "contrast", unless its weight is 0, the negative log-likelihood of a state's
    own target among those of the batch, where equal targets are no negatives of each other. No gradient goes to the targets.

    Example:
        >>> losses = distillation_loss(torch.eye(2), torch.eye(2), scale=1.0)
        >>> {name: round(loss.item(), 4) for name, loss in losses.items()}
        {'cosine': 0.0, 'contrast': 0.3133}
    """
    if not len(states):
        return {"cosine": states.sum()}
    targets = targets.detach()
    losses = {"cosine": (1 - (states * targets).sum(dim=-1)).mean()}
    if contrast:
        alike = targets @ targets.T > 1 - 1e-5
        numbers = torch.arange(len(states), device=states.device)
        losses["contrast"] = contrast * dpr_loss(states @ targets.T, numbers, alike, scale=scale)
    return losses
