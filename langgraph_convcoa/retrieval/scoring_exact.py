"""The second pass: exact scores of a few memory sets."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.hopfield.sparsity import sparsemax
from langgraph_convcoa.retrieval.base import Vectors
from langgraph_convcoa.retrieval.patterns import Patterns
from langgraph_convcoa.retrieval.quantised import IntegerQueries
from langgraph_convcoa.retrieval.scoring_bounds import Queries, Terms

# How many products are laid out side by side at a time.
_AT_ONCE = 2_000_000

Rows = npt.NDArray[np.int64]


def exact_scores(
    patterns: Patterns, queries: Queries, terms: Terms, products: Tensor | None, which: Rows, sets: Rows
) -> npt.NDArray[np.float64]:
    """W <x, y_0> + sum_j sparsemax(beta a)_j b_j + extra.

    Args:
        patterns: n memory sets.
        queries: q queries.
        terms: What else a score is made of.
        products: <x, y_0> and b of every row, (N, q), where the first pass kept them.
        which: Numbers of p queries.
        sets: The memory sets to score for each of them, (p, m).

    Returns:
        Scores of (p, m).

    Raises:
        RetrievalError: A score is not finite, because a stored pattern is not.
    """
    sizes = patterns.offsets[sets + 1] - patterns.offsets[sets]
    scores = np.empty(sets.shape, dtype=np.float64)
    jobs: list[tuple[slice, slice]] = []
    widest = int(sizes.max())
    columns = max(1, _AT_ONCE // widest)
    step = max(1, _AT_ONCE // (widest * sets.shape[1]))
    for row in range(0, len(which), step):
        jobs.extend((slice(row, row + step), slice(c, c + columns)) for c in range(0, sets.shape[1], columns))
    for job in jobs:
        scores[job] = _score(patterns, queries, terms, products, which[job[0]], sets[job], sizes[job])
    if terms.extra is not None:
        scores += terms.extra[which[:, None], sets]
    # A bound that is NaN comes before all others, so that such a set is always among those scored.
    broken = sets[~np.isfinite(scores)]
    if len(broken):
        raise RetrievalError(
            f"Passage number {broken[0]} has no finite score: its stored pattern is damaged; build the memory again."
        )
    return scores


def _score(
    patterns: Patterns, queries: Queries, terms: Terms, products: Tensor | None, which: Rows, sets: Rows, sizes: Rows
) -> npt.NDArray[np.float64]:
    device = torch.device("cpu") if products is None else products.device
    columns = torch.arange(int(sizes.max()), device=device)
    mask = columns < torch.from_numpy(sizes).to(device).unsqueeze(-1)
    # Places past a set's end repeat its first row, which is sure to have products.
    rows = torch.from_numpy(patterns.offsets[sets]).to(device).unsqueeze(-1) + columns * mask
    vectors = [] if products is not None else [queries.states, *([queries.readout] if queries.trained else [])]
    if queries.association is not None:
        vectors.append(queries.association)
    tables = _recompute(patterns, vectors, rows, mask, which) if vectors else []
    if products is not None:
        tables.insert(0, products[rows, torch.from_numpy(which).to(device)[:, None, None]].double())
    whole, association = tables[0][..., 0], tables[-1][..., 1:]
    readout = tables[1 if products is None and queries.trained else 0][..., 1:]
    weights = sparsemax(association, beta=terms.beta, mask=mask[..., 1:])
    scores: npt.NDArray[np.float64] = (terms.passage_weight * whole + (weights * readout).sum(dim=-1)).cpu().numpy()
    return scores


def _recompute(patterns: Patterns, vectors: list[Vectors], rows: Tensor, mask: Tensor, which: Rows) -> list[Tensor]:
    """Products of each query's own rows with its vectors; 0 where masked."""
    tables = [torch.zeros(rows.shape, dtype=torch.float64, device=rows.device) for _ in vectors]

    for place, number in enumerate(which):
        kept = mask[place]
        query = np.stack([vector[number] for vector in vectors])
        found = row_products(patterns, query, rows[place][kept])
        for table, column in zip(tables, found.unbind(dim=1), strict=True):
            table[place][kept] = column
    return tables


def row_products(patterns: Patterns, queries: Vectors, rows: Tensor) -> Tensor:
    """Exact products of the stored patterns of some rows with queries (p, d): (len(rows), p) float64, where the rows are."""
    if rows.device.type != "cpu":
        values = patterns.on(rows.device).gathered(rows)
        return (values @ torch.from_numpy(queries).to(rows.device).T).double()
    numbers = rows.numpy()
    if patterns.scales is not None:
        exact = IntegerQueries.exact(queries).exact_products(patterns.values[numbers], patterns.scales[numbers])
        return torch.from_numpy(exact)
    return (torch.from_numpy(patterns.take(numbers)) @ torch.from_numpy(queries).T).double()
