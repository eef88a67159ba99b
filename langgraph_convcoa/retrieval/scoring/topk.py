"""Exact top-k of passages: bounds by one matrix product, exact scores of the best bounds, and a certificate."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.encoders.base import Vectors, cores
from langgraph_convcoa.retrieval.scoring.patterns import Each, Mask, Patterns, Rows, first_pass

_QUERIES = 64
# Below this many entries in the patterns, a second thread takes longer to start than to work.
_WORTH_THREADS = 1_000_000
# The products of a group of queries take at most this many bytes, or a sixteenth of the patterns' bytes if that is more.
_PRODUCT_BYTES = 64 * 2**20
_SHARE = 16
# If a filter leaves fewer bytes of patterns than this, the remaining patterns are copied and searched alone.
_COPIED_BYTES = 16 * 2**20
# Largest error of a float32 bound, relative to the product of the lengths.
_ROUNDING = 1e-6
# At most this many entries of patterns are copied to float64 at once. Many equal scores may need all patterns.
_COPIED = 2_500_000
# Replaces -inf, so that sums stay finite. Scores are shifted so that the largest is 0; sparsemax ignores those below -1.
_NONE = -2.0

Scores = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Ranking:
    """The best passages for one query."""

    indices: Rows  # Passage numbers, best first; equal scores in the order of the numbers.
    scores: Scores  # w <x, y_0> + sim(z, x) + extra of each passage.
    certified: bool  # True if these are proved to be the best of all allowed passages, for the stored patterns.
    scored: int  # Passages scored in full.


def search(
    patterns: Patterns,
    states: Vectors,
    *,
    k: int,
    beta: float = 10.0,
    passage_weight: float = 1.0,
    allowed: Mask = None,
    extra: Vectors | None = None,
) -> list[Ranking]:
    """The k best passages for each query state (q, d), as if every passage were scored in full.

    score(x, Y) = w <x, y_0> + sim(z, x) + extra, with z = sparsemax(beta x Y^T) Y. A passage's association weights add to 1,
    so w <x, y_0> + max_j <x, y_j> + extra bounds its score. Passages are scored in the order of their bounds until the k-th
    score is above every bound left. int8 patterns are first multiplied with the query rounded to int8, with wider bounds.

    Only passages of `allowed` (n,) are returned; `extra` (q, n), such as BM25, is added to the scores. A score depends on the
    passage and the query alone, to the last bit.

    Raises:
        InputError: k, beta or the weight is out of range.
        RetrievalError: The states are not finite vectors of the memory's dimension, another array does not fit, or a pattern
            is not finite.

    Example:
        >>> import numpy as np
        >>> eye = np.repeat(np.eye(2, dtype=np.float32), 2, axis=0)
        >>> patterns = Patterns(eye, np.array([0, 2, 4]))
        >>> ranking, = search(patterns, np.array([[0.6, 0.8]], dtype=np.float32), k=1)
        >>> ranking.indices.tolist(), ranking.scores.round(3).tolist(), ranking.certified
        ([1], [1.6], True)
    """
    check_settings(k, beta=beta, passage_weight=passage_weight)
    states = np.ascontiguousarray(states, dtype=np.float32)
    _check_arrays(patterns, states, allowed, extra)
    pool = patterns.n if allowed is None else int(allowed.sum())
    if pool == 0 or not len(states):
        return [Ranking(np.zeros(0, dtype=np.int64), np.zeros(0), True, 0) for _ in states]
    again = partial(search, k=k, beta=beta, passage_weight=passage_weight)
    rows = pool * len(patterns.values) / patterns.n
    few = rows * _SHARE < len(patterns.values) and rows * patterns.values.itemsize * patterns.d < _COPIED_BYTES
    if allowed is not None and few:
        chosen = np.flatnonzero(allowed)
        found = again(patterns.select(chosen), states, extra=None if extra is None else extra[:, chosen])
        return [replace(ranking, indices=chosen[ranking.indices]) for ranking in found]
    budget = max(_PRODUCT_BYTES, patterns.values.nbytes // _SHARE)
    step = min(_QUERIES, max(1, budget // (4 * len(patterns.values))))
    if len(states) > step:
        rankings: list[Ranking] = []
        for start in range(0, len(states), step):
            part = slice(start, start + step)
            rankings += again(patterns, states[part], allowed=allowed, extra=None if extra is None else extra[part])
        return rankings
    # A pool starts no thread before its first job.
    with ThreadPoolExecutor(cores(), "matrices") as threads:
        each: Each = threads.map if cores() > 1 and patterns.values.size > _WORTH_THREADS else map
        bounds = first_pass(patterns, states, passage_weight, allowed, extra, each)

        def rank(row: int) -> Ranking:
            own = None if extra is None else extra[row]
            exact = partial(score, patterns, states[row], beta=beta, passage_weight=passage_weight, extra=own)
            # Usually few more than k sets are needed; rounded queries have wider bounds.
            wanted = 2 * k + 32 if patterns.dtype == "int8" else k + k // 2 + 32
            # The state's greatest possible score, with patterns of length 1.
            reach = (passage_weight + 1) * float(np.linalg.norm(states[row].astype(np.float64)))
            return _rank(exact, bounds[row], min(k, pool), pool, wanted, _ROUNDING * max(1.0, reach))

        return list(each(rank, range(len(states))))


def check_settings(k: int, **numbers: float) -> None:
    """Raise InputError for a setting that is out of range: numbers are at least 0, and only a beta may be infinite."""
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise InputError(f"k must be a whole number of at least 1, not {k!r}.")
    for name, value in numbers.items():
        if name.endswith("beta") and not value >= 0:
            raise InputError(f"{name} must be from 0 to infinity, not {value}.")
        if not name.endswith("beta") and not 0 <= value < math.inf:
            raise InputError(f"{name} must be a number of at least 0, not {value}.")


def _check_arrays(patterns: Patterns, states: Vectors, allowed: Mask, extra: Vectors | None) -> None:
    if states.ndim != 2 or states.shape[1] != patterns.d:
        raise RetrievalError(
            f"The query vectors have shape {states.shape} but the memory holds vectors of length {patterns.d}; "
            "search with the encoder that the memory was built with."
        )
    if not np.isfinite(states).all():
        raise RetrievalError("A query vector holds NaN or infinity; use another encoder.")
    if allowed is not None and (allowed.shape != (patterns.n,) or allowed.dtype != np.bool_):
        raise RetrievalError(f"The filter has {allowed.shape} entries of {allowed.dtype} for {patterns.n} passages.")
    if extra is not None and (extra.shape != (len(states), patterns.n) or not np.isfinite(extra).all()):
        raise RetrievalError(
            f"The added scores have shape {extra.shape} for {len(states)} queries and {patterns.n} passages, "
            "or hold NaN or infinity."
        )


def associate(patterns: Patterns, index: int, state: Vectors, beta: float) -> tuple[Scores, Scores]:
    """The association weights of a passage's windows for a query state (d), and the windows' products with the state."""
    rows = np.arange(int(patterns.offsets[index]) + 1, int(patterns.offsets[index + 1]))
    products = _row_products(patterns, state, rows)
    return sparsemax(products, beta=beta), products


def sparsemax(scores: npt.NDArray[Any], *, beta: float = 1.0, mask: npt.NDArray[np.bool_] | None = None) -> Scores:
    """The Euclidean projection of `beta * scores` on the simplex (Martins & Astudillo 2016; Pan et al. 2024b, section 4).

    Scores are (..., n). The mask of the same shape is True where an entry may have weight. Weights are of the same shape and
    add up to one over the last dimension; at beta = 0 they are uniform, at infinity uniform over the largest scores. A row
    without an unmasked entry is all zero.

    Example:
        >>> sparsemax(np.array([1.0, 0.5, -0.5])).tolist()
        [0.75, 0.25, 0.0]
    """
    z = np.asarray(scores, dtype=np.float64)
    if z.shape[-1] == 0:
        return z.copy()
    allowed = z != -math.inf if mask is None else mask & (z != -math.inf)
    top = z.max(axis=-1, keepdims=True, where=allowed, initial=-math.inf)
    # Subtract the largest score, which is then exactly 0 for any beta.
    z = np.where(allowed, z - np.where(top == -math.inf, 0.0, top), 0.0)
    z = np.where(z < 0, _NONE, z) if math.isinf(beta) else np.maximum(beta * z, _NONE)
    z[~allowed] = _NONE
    ordered = -np.sort(-z, axis=-1)
    sums = ordered.cumsum(axis=-1)
    support = np.maximum((1 + np.arange(1, z.shape[-1] + 1) * ordered > sums).sum(axis=-1, keepdims=True), 1)
    threshold = (np.take_along_axis(sums, support - 1, axis=-1) - 1) / support
    weights: Scores = np.maximum(z - threshold, 0) * allowed
    return weights


def _rank(exact: Callable[[Rows], Scores], bounds: Vectors, k: int, pool: int, wanted: int, rounding: float) -> Ranking:
    """Score sets, largest bounds (n,) first, until no bound left reaches the k-th score; `wanted` sets are tried first."""
    n, wanted = len(bounds), min(pool, wanted)
    while True:
        # The passages with the largest bounds, best first, and the next one, whose bound is the best of those not scored.
        first = max(n - wanted - 1, 0)
        sets = np.argpartition(bounds, first)[first:]
        sets = sets[bounds[sets].argsort()[::-1]]
        best = bounds[sets].astype(np.float64)
        if wanted == pool:
            sets, best = sets[:pool], np.append(best[:pool], -math.inf)
        scores = exact(sets[:k])
        # The k-th score can only rise: other sets matter only if their bound reaches it.
        least = scores.min() - rounding * max(1.0, abs(scores.min()))
        needed = k + int((best[k:wanted] >= least).sum())
        scores = np.concatenate([scores, exact(sets[k:needed])])
        # Equal scores are ordered by number.
        order = np.lexsort((sets[:needed], -scores))[:k]
        last = scores[order[-1]]
        # Strictly above, so that rounding never decides between equal scores.
        if last > best[needed] + rounding * max(1.0, abs(last)):
            return Ranking(sets[order], scores[order], True, needed)
        wanted = min(pool, 2 * wanted)


def score(
    patterns: Patterns, state: Vectors, sets: Rows, *, beta: float, passage_weight: float, extra: Vectors | None
) -> Scores:
    """Score some passages for a query state x (d): w <x, y_0> + sum_j sparsemax(beta a)_j a_j + extra, with a = Y x.

    `extra` is (n,). RetrievalError if a stored pattern is damaged.
    """
    firsts, sizes = patterns.offsets[sets], patterns.offsets[sets + 1] - patterns.offsets[sets]
    columns = np.arange(int(sizes.max(initial=2)))
    scores = np.empty(len(sets))
    step = max(1, _COPIED // (len(columns) * patterns.d))
    for start in range(0, len(sets), step):
        part = slice(start, start + step)
        mask = columns < sizes[part, None]
        products = np.zeros(mask.shape)
        products[mask] = _row_products(patterns, state, (firsts[part, None] + columns)[mask])
        whole, windows = products[:, 0], products[:, 1:]
        weights = sparsemax(windows, beta=beta, mask=mask[:, 1:])
        # Unlike sum, cumsum adds from left to right, so zeros at the end do not change how the sum is rounded.
        scores[part] = passage_weight * whole + (weights * windows).cumsum(axis=-1)[:, -1]
    if extra is not None:
        scores += extra[sets]
    # NaN bounds come first, so a damaged set is always scored.
    broken = sets[~np.isfinite(scores)]
    if len(broken):
        raise RetrievalError(
            f"Passage number {broken[0]} has no finite score: its stored pattern is damaged; build the memory again."
        )
    return scores


def _row_products(patterns: Patterns, state: Vectors, rows: Rows) -> Scores:
    """Exact products of the stored patterns of some rows with a query state, (len(rows),)."""
    # Row by row: in a matrix product the last bits depend on the place of a row.
    products = np.einsum("nd,d->n", patterns.values[rows].astype(np.float64), state.astype(np.float64))
    return np.asarray(products if patterns.scales is None else products * patterns.scales[rows])
