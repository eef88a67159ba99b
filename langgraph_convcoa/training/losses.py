"""Losses of retriever training: the DPR loss over multi-vector passages, and distillation from questions in full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from langgraph_convcoa.hopfield.functional import associate
from langgraph_convcoa.retrieval.patterns import Patterns
from langgraph_convcoa.training.data import EncodedExample, QueryItem

SCALE = 20.0  # Factor of scores of unit vectors before a softmax (a temperature of 1/20).
Ranked = EncodedExample | QueryItem  # A question with its gold memory sets, its positive (a gold set), and wrong sets.


@dataclass(frozen=True, eq=False)
class MemorySets:
    """m memory sets of unequal sizes, padded to one size."""

    whole: Tensor  # (m, d), the whole-passage pattern y_0 of each set.
    windows: Tensor  # (m, w, d), the windows Y of each set; the padding may have any values.
    mask: Tensor  # (m, w), True for a window, False for padding; each set has a window.

    @classmethod
    def of(cls, patterns: Patterns, sets: npt.NDArray[np.int64], device: str | torch.device = "cpu") -> MemorySets:
        """Select memory sets of stored patterns, in the order of `sets`."""
        chosen = patterns.select(sets)
        rows = torch.from_numpy(chosen.take(np.arange(len(chosen.values)))).to(device)
        starts, sizes = chosen.offsets[:-1, None], np.diff(chosen.offsets)[:, None]
        # Places after a set's last window repeat that window, and are masked.
        columns = np.arange(1, sizes.max())
        places = torch.from_numpy(starts + np.minimum(columns, sizes - 1)).to(device)
        return cls(rows[torch.from_numpy(starts[:, 0]).to(device)], rows[places], torch.from_numpy(columns < sizes).to(device))


def memory_scores(states: Tensor, sets: MemorySets, *, beta: float = 10.0) -> Tensor:
    """The scores (q, m) of memory sets for states (q, d), with a gradient; retrieval ranks by the same scores."""
    # score(x, Y) = <x, y_0> + sum_j sparsemax(beta <x, y_j>)_j <x, y_j>.
    products = torch.einsum("qd,mwd->qmw", states, sets.windows)
    weights = associate(products, beta=beta, mask=sets.mask)
    return states @ sets.whole.T + (weights * products).sum(dim=-1)


def gated_states(encoded: Tensor, questions: Tensor, states: Tensor, state_weight: float, gate: float) -> Tensor:
    """`mixed_states` with a gradient: normalise((1 - <t, x>)^p t + g s), the state of a model with a query encoder.

    t, x and s are the vectors `encoded`, `questions` and `states`, (n, d) of length one; g is `state_weight`, p is `gate`.
    """
    weights: Tensor | float = 1.0
    if gate:
        # The base stays above 0, since the gradient of a root is infinite at 0.
        weights = (1 - (encoded * questions).sum(dim=-1, keepdim=True)).clamp(min=1e-24) ** gate
    return torch.nn.functional.normalize(weights * encoded + state_weight * states, dim=-1)


def dpr_loss(scores: Tensor, positives: Tensor, also_gold: Tensor | None = None, *, scale: float | Tensor = SCALE) -> Tensor:
    """Negative log-likelihood of each query's positive among all memory sets of the batch.

    Karpukhin et al. 2020, over memory sets (Pan et al. 2024b, section 4).

    `scores` are (q, m), `positives` (q,) the column of each query's positive. `also_gold`, (q, m), is True if a set also
    answers the query: it is no negative. Returns the mean over the queries; 0 without queries.
    """
    if not len(positives):
        return scores.sum() * 0.0
    logits = scale * scores
    if also_gold is not None:
        own = torch.zeros_like(also_gold).scatter(1, positives.unsqueeze(-1), True)
        logits = logits.masked_fill(also_gold & ~own, -torch.inf)
    return torch.nn.functional.cross_entropy(logits, positives)


def gold_mask(golds: Sequence[Sequence[int]], numbers: npt.NDArray[np.int64], device: str | torch.device = "cpu") -> Tensor:
    """A mask (q, m) that is True where a set, given by its number, is gold for a question."""
    return torch.from_numpy(np.stack([np.isin(numbers, gold) for gold in golds])).to(device)


def ranking_loss(
    items: Sequence[Ranked], patterns: Patterns, states: Tensor, *, negatives: int, scale: float = SCALE
) -> Tensor:
    """The DPR loss of questions with states (q, d), over their positives and `negatives` hard negatives of each question.

    The hard negatives are drawn in each batch with torch's random numbers. No memory set occurs twice.
    """
    drawn = [[item.positive, *(item.hard[n] for n in torch.randperm(len(item.hard))[:negatives].tolist())] for item in items]
    sets = np.unique(np.concatenate([np.array(numbers, dtype=np.int64) for numbers in drawn]))
    positives = torch.from_numpy(np.searchsorted(sets, [item.positive for item in items])).to(states.device)
    scores = memory_scores(states, MemorySets.of(patterns, sets, states.device))
    return dpr_loss(scores, positives, gold_mask([item.gold for item in items], sets, states.device), scale=scale)


def distillation_loss(states: Tensor, targets: Tensor, *, cosine: float = 1.0, contrast: float = 1.0) -> Tensor:
    """Distance of the states of questions in conversation from the vectors of the same questions in full, both (q, d).

    The sum of two terms: one minus the cosine, and the negative log-likelihood of a state's own target among the batch's
    targets. Equal targets are no negatives of each other. The targets get no gradient.
    """
    if not len(states):
        return states.sum()
    targets = targets.detach()
    loss = cosine * (1 - (states * targets).sum(dim=-1)).mean()
    if contrast:
        alike = targets @ targets.T > 1 - 1e-5
        numbers = torch.arange(len(states), device=states.device)
        loss = loss + contrast * dpr_loss(states @ targets.T, numbers, alike)
    return loss
