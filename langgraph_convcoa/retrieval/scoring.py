"""Exact top-k of a memory by one matrix product, a bound and a certificate (DESIGN section 4)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.hopfield.sparsity import sparsemax
from langgraph_convcoa.retrieval.base import Vectors
from langgraph_convcoa.retrieval.memory import Memory

_BLOCK = 64


@dataclass(frozen=True)
class Ranking:
    """The best passages of a memory for one query.

    Attributes:
        indices: Passage numbers, best first; equal scores in the order of the memory.
        scores: w <x, y_0> + sim(z, x) of each.
        certified: Whether these are certainly the best of all that was allowed.
        scored: How many memory sets were scored in full to know that.
    """

    indices: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float64]
    certified: bool
    scored: int


def search(
    memory: Memory,
    states: Vectors,
    *,
    k: int,
    beta: float = 10.0,
    passage_weight: float = 1.0,
    allowed: npt.NDArray[np.bool_] | None = None,
) -> list[Ranking]:
    """The k best passages for each query state, the same as by scoring every memory set in full.

    score(x, Y) = w <x, y_0> + sim(z, x), z = sparsemax(beta x Y^T) Y. The weights of a set add up to one, so that
    w <x, y_0> + max_j <x, y_j> bounds its score: sets are scored in the order of their bounds until the k-th score is above
    every bound left.

    Args:
        memory: n passages.
        states: Query states x, (q, d).
        k: How many passages, at least 1; fewer come back where fewer are allowed.
        beta: Inverse temperature, 0 (mean of the windows) to infinity (best window).
        passage_weight: w, at least 0.
        allowed: (n,), True for the passages that may be returned; all when None.

    Raises:
        InputError: k, beta or the weight is out of range.
        RetrievalError: The states are not finite vectors of the memory's dimension.

    Example:
        >>> import numpy as np
        >>> from langchain_core.documents import Document
        >>> eye = np.eye(2, dtype=np.float32)
        >>> passages = [Document("a", id="a"), Document("b", id="b")]
        >>> memory = Memory(passages, eye, eye, np.array([0, 1, 2]), np.array([[0, 1], [0, 1]]))
        >>> ranking, = search(memory, np.array([[0.6, 0.8]], dtype=np.float32), k=1)
        >>> ranking.indices.tolist(), ranking.scores.round(3).tolist(), ranking.certified
        ([1], [1.6], True)
    """
    check_settings(k, beta, passage_weight)
    states = np.ascontiguousarray(states, dtype=np.float32)
    if states.ndim != 2 or states.shape[1] != memory.dimension:
        raise RetrievalError(
            f"The query vectors have shape {states.shape} but the memory holds vectors of length {memory.dimension}; "
            "search with the encoder that the memory was built with."
        )
    if not np.isfinite(states).all():
        raise RetrievalError("A query vector holds NaN or infinity; use another encoder.")
    if allowed is not None and allowed.shape != (len(memory),):
        raise RetrievalError(f"The filter has {allowed.shape} entries for {len(memory)} passages.")
    rankings: list[Ranking] = []
    for start in range(0, len(states), _BLOCK):
        rankings.extend(_search_block(memory, states[start : start + _BLOCK], k, beta, passage_weight, allowed))
    return rankings


def check_settings(k: int, beta: float, passage_weight: float) -> None:
    """Raise InputError for what cannot be searched with."""
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise InputError(f"k must be a whole number of at least 1, not {k!r}.")
    if math.isnan(beta) or beta < 0:
        raise InputError(f"beta must be from 0 to infinity, not {beta}.")
    if not 0 <= passage_weight < math.inf:
        raise InputError(f"passage_weight must be a number of at least 0, not {passage_weight}.")


def associate(
    memory: Memory, index: int, state: Vectors, beta: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The association weights of a passage's windows for a query state (d), adding up to one, and their products with it."""
    patterns = memory.windows[memory.offsets[index] : memory.offsets[index + 1]]
    products = patterns.astype(np.float64) @ state.astype(np.float64)
    weights = sparsemax(torch.from_numpy(products), beta=beta).numpy()
    return weights, products


def _search_block(
    memory: Memory, states: Vectors, k: int, beta: float, passage_weight: float, allowed: npt.NDArray[np.bool_] | None
) -> list[Ranking]:
    x = torch.from_numpy(states)
    whole = (x @ torch.from_numpy(memory.whole).T).numpy().astype(np.float64)
    products = (x @ torch.from_numpy(memory.windows).T).numpy()
    if len(memory) == 0:
        empty = np.zeros(0, dtype=np.int64)
        return [Ranking(empty, empty.astype(np.float64), True, 0) for _ in states]
    bounds = passage_weight * whole + np.maximum.reduceat(products, memory.offsets[:-1], axis=1)
    if allowed is not None:
        bounds[:, ~allowed] = -np.inf
    pool = len(memory) if allowed is None else int(allowed.sum())
    return [
        _top(memory.offsets, products[row], passage_weight * whole[row], bounds[row], min(k, pool), pool, beta)
        for row in range(len(states))
    ]


def _top(
    offsets: npt.NDArray[np.int64],
    products: npt.NDArray[np.float32],
    whole: npt.NDArray[np.float64],
    bounds: npt.NDArray[np.float64],
    k: int,
    pool: int,
    beta: float,
) -> Ranking:
    if k == 0:
        return Ranking(np.zeros(0, dtype=np.int64), np.zeros(0), True, 0)
    wanted = min(pool, 2 * k + 16)
    while True:
        if wanted < pool:
            # One more than is scored: the best bound left out.
            split = np.argpartition(-bounds, wanted)
            chosen, left = split[:wanted], float(bounds[split[wanted]])
        else:
            chosen, left = np.flatnonzero(bounds > -np.inf), -math.inf
        chosen = np.sort(chosen)
        scores = whole[chosen] + _similarities(offsets, products, chosen, beta)
        order = np.argsort(-scores, kind="stable")[:k]
        # Strictly above, so that equal scores are always told apart by their order and never by chance.
        if scores[order[-1]] > left:
            return Ranking(chosen[order].astype(np.int64), scores[order], True, len(chosen))
        wanted = min(pool, 2 * wanted)


def _similarities(
    offsets: npt.NDArray[np.int64], products: npt.NDArray[np.float32], chosen: npt.NDArray[np.int64], beta: float
) -> npt.NDArray[np.float64]:
    """sim(z, x) of the chosen sets: their products side by side, filled up to the longest set."""
    starts, sizes = offsets[chosen], offsets[chosen + 1] - offsets[chosen]
    columns = np.arange(int(sizes.max()))
    mask = columns[None, :] < sizes[:, None]
    rows = np.where(mask, starts[:, None] + columns[None, :], 0)
    gathered = torch.from_numpy(products[rows].astype(np.float64))
    weights = sparsemax(gathered, beta=beta, mask=torch.from_numpy(mask))
    similarities: npt.NDArray[np.float64] = (weights * gathered).sum(dim=-1).numpy()
    return similarities
