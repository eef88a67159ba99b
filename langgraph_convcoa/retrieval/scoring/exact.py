"""The second pass of a search: exact scores of a few passages."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.hopfield.sparsity import sparsemax
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.scoring.bounds import Queries, Terms
from langgraph_convcoa.retrieval.scoring.int8 import IntegerQueries
from langgraph_convcoa.retrieval.scoring.patterns import Patterns

# How many products are laid out side by side at a time.
_AT_ONCE = 2_000_000
# How many numbers of patterns are copied out at a time: with many equal scores all patterns are asked for.
_COPIED = 8_000_000

Rows = npt.NDArray[np.int64]


def exact_scores(
    patterns: Patterns, queries: Queries, terms: Terms, products: Tensor | None, which: Rows, sets: Rows
) -> npt.NDArray[np.float64]:
    """W <x, y_0> + sum_j sparsemax(beta a)_j b_j + extra, of m pairs of a query and a passage.

    Args:
        patterns: Of n passages.
        queries: q queries.
        terms: What else a score is made of.
        products: <x, y_0> and b of every row, (N, q), where the first pass kept them.
        which: The query of each pair, (m,); the pairs of one query stand together.
        sets: The passage of each pair, (m,).

    Returns:
        Scores of (m,).

    Raises:
        RetrievalError: A score is not finite, because a stored pattern is not.
    """
    sizes = patterns.offsets[sets + 1] - patterns.offsets[sets]
    scores = np.empty(len(sets), dtype=np.float64)
    step = max(1, _AT_ONCE // int(sizes.max(initial=1)))
    for start in range(0, len(sets), step):
        part = slice(start, start + step)
        scores[part] = _score(patterns, queries, terms, products, which[part], sets[part], sizes[part])
    if terms.extra is not None:
        scores += terms.extra[which, sets]
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
    columns = np.arange(int(sizes.max()))
    mask = columns < sizes[:, None]
    # Places past a set's end repeat its first row, which is sure to have products.
    rows = patterns.offsets[sets][:, None] + columns * mask
    vectors = [] if products is not None else [queries.states, *([queries.readout] if queries.trained else [])]
    if queries.association is not None:
        vectors.append(queries.association)
    tables = _recompute(patterns, vectors, rows, mask, which) if vectors else []
    if products is not None:
        tables.insert(0, products[torch.from_numpy(rows), torch.from_numpy(which)[:, None]].double())
    whole, association = tables[0][:, 0], tables[-1][:, 1:]
    readout = tables[1 if products is None and queries.trained else 0][:, 1:]
    weights = sparsemax(association, beta=terms.beta, mask=torch.from_numpy(mask[:, 1:]))
    scores: npt.NDArray[np.float64] = (terms.passage_weight * whole + (weights * readout).sum(dim=-1)).numpy()
    return scores


def _recompute(
    patterns: Patterns, vectors: list[Vectors], rows: Rows, mask: npt.NDArray[np.bool_], which: Rows
) -> list[Tensor]:
    """Products of each pair's rows with its query's vectors, (m, rows); 0 where masked."""
    kept, owners = rows[mask], np.repeat(which, mask.sum(axis=1))
    found = torch.empty((len(kept), len(vectors)), dtype=torch.float64)
    changes = np.flatnonzero(np.diff(owners)) + 1
    cuts = np.unique([*changes, *range(0, len(owners), max(1, _COPIED // patterns.d)), len(owners)]).tolist()
    for start, stop in itertools.pairwise(cuts):
        query = np.stack([vector[owners[start]] for vector in vectors])
        found[start:stop] = row_products(patterns, query, kept[start:stop])
    tables = []
    for column in found.unbind(dim=1):
        table = torch.zeros(mask.shape, dtype=torch.float64)
        table[torch.from_numpy(mask)] = column
        tables.append(table)
    return tables


def row_products(patterns: Patterns, queries: Vectors, rows: Rows) -> Tensor:
    """Exact products of the stored patterns of some rows with queries (p, d): (len(rows), p), float64."""
    if patterns.scales is not None:
        return torch.from_numpy(IntegerQueries.exact(queries).exact_products(patterns.values[rows], patterns.scales[rows]))
    return (torch.from_numpy(patterns.take(rows)) @ torch.from_numpy(queries).T).double()
