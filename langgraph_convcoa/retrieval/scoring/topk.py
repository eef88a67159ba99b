"""Exact top-k of passages: bounds by one matrix product, exact scores of the best bounds, and a certificate."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.scoring.bounds import Terms, first_pass
from langgraph_convcoa.retrieval.scoring.patterns import Patterns
from langgraph_convcoa.retrieval.scoring.sparsemax import sparsemax
from langgraph_convcoa.retrieval.threads import workers

_QUERIES = 64
# Number of queries whose sets are scored together.
_TOGETHER = 8
# Below this many numbers in the patterns, a second thread takes longer to start than to work.
_WORTH_THREADS = 1_000_000
# The products of a group of queries take at most this many bytes, or a sixteenth of the patterns' bytes if that is more.
_PRODUCT_BYTES = 64 * 2**20
_SHARE = 16
# If a filter leaves fewer bytes of patterns than this, they are copied and searched alone.
_COPIED_BYTES = 16 * 2**20
# How far float32 may put a bound below a score, relative to the product of the lengths.
_ROUNDING = 1e-6
# Most products that are laid out at a time.
_AT_ONCE = 2_000_000
# Most numbers of patterns that are copied to float64 at a time: many equal scores may require all patterns.
_COPIED = 2_500_000

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Ranking:
    """The best passages for one query."""

    indices: npt.NDArray[np.int64]  # Passage numbers, best first; equal scores in the order of the numbers.
    scores: npt.NDArray[np.float64]  # w <x, y_0> + sim(z, x) + extra of each passage.
    certified: bool  # True if these are proved to be the best of all allowed passages, for the stored patterns.
    scored: int  # Passages scored in full.


def search(
    patterns: Patterns,
    states: Vectors,
    *,
    k: int,
    beta: float = 10.0,
    passage_weight: float = 1.0,
    allowed: npt.NDArray[np.bool_] | None = None,
    extra: Vectors | None = None,
) -> list[Ranking]:
    """The k best passages for each query state (q, d), the same as by scoring every passage in full.

    score(x, Y) = w <x, y_0> + sim(z, x) + extra, with z = sparsemax(beta x Y^T) Y. The association weights of a set add up to
    one, so w <x, y_0> + max_j <x, y_j> + extra bounds its score: sets are scored in the order of their bounds until the k-th
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
    check_settings(k, beta, passage_weight)
    states = np.ascontiguousarray(states, dtype=np.float32)
    _check_arrays(patterns, states, allowed, extra)
    pool = patterns.n if allowed is None else int(allowed.sum())
    if pool == 0:
        return [Ranking(np.zeros(0, dtype=np.int64), np.zeros(0), True, 0) for _ in states]
    added = None if extra is None else np.ascontiguousarray(extra, dtype=np.float32)
    terms = Terms(beta, float(passage_weight), allowed, added)
    if allowed is not None and _few(patterns, pool):
        chosen = np.flatnonzero(allowed)
        terms = replace(terms, allowed=None, extra=None if terms.extra is None else terms.extra[:, chosen])
        found = _search(patterns.select(chosen), states, terms, k, pool)
        return [replace(ranking, indices=chosen[ranking.indices]) for ranking in found]
    rankings: list[Ranking] = []
    budget = max(_PRODUCT_BYTES, patterns.values.nbytes // _SHARE)
    step = min(_QUERIES, max(1, budget // (4 * len(patterns.values))))
    for start in range(0, len(states), step):
        rows = slice(start, start + step)
        part = terms if terms.extra is None else replace(terms, extra=terms.extra[rows])
        rankings += _search(patterns, states[rows], part, k, pool)
    return rankings


def check_settings(k: int, beta: float, passage_weight: float) -> None:
    """Raise InputError for a setting that is out of range."""
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise InputError(f"k must be a whole number of at least 1, not {k!r}.")
    if math.isnan(beta) or beta < 0:
        raise InputError(f"beta must be from 0 to infinity, not {beta}.")
    if not 0 <= passage_weight < math.inf:
        raise InputError(f"passage_weight must be a number of at least 0, not {passage_weight}.")


def _check_arrays(patterns: Patterns, states: Vectors, allowed: npt.NDArray[np.bool_] | None, extra: Vectors | None) -> None:
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


def associate(
    patterns: Patterns, index: int, state: Vectors, beta: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The association weights of a passage's windows for a query state (d), which add up to one, and their products."""
    rows = np.arange(int(patterns.offsets[index]) + 1, int(patterns.offsets[index + 1]))
    products = _row_products(patterns, state, rows)
    return sparsemax(products, beta=beta), products


def _few(patterns: Patterns, pool: int) -> bool:
    rows = pool * len(patterns.values) / patterns.n
    return rows * _SHARE < len(patterns.values) and rows * patterns.values.itemsize * patterns.d < _COPIED_BYTES


def _search(patterns: Patterns, states: Vectors, terms: Terms, k: int, pool: int) -> list[Ranking]:
    found: dict[int, Ranking] = {}
    with workers(parallel=patterns.values.size > _WORTH_THREADS) as each:
        bounds = first_pass(patterns, states, terms, each)

        def rank(which: Rows) -> None:
            found.update(_rank(patterns, states, terms, bounds, which, min(k, pool), pool))

        numbers = np.arange(len(states))
        each(rank, [numbers[start : start + _TOGETHER] for start in range(0, len(numbers), _TOGETHER)])
    return [found[row] for row in range(len(states))]


def _rank(
    patterns: Patterns, states: Vectors, terms: Terms, bounded: Vectors, which: Rows, k: int, pool: int
) -> dict[int, Ranking]:
    """Score sets in the order of their bounds until no bound left reaches the k-th score."""
    # Usually few more than k sets are needed; rounded queries have wider bounds.
    wanted = min(pool, 2 * k + 32 if patterns.dtype == "int8" else k + k // 2 + 32)
    found: dict[int, Ranking] = {}
    # The greatest score of a state with patterns of length 1.
    reach = (terms.passage_weight + 1) * np.linalg.norm(states.astype(np.float64), axis=1)
    rounding = _ROUNDING * np.maximum(1.0, reach)
    while len(which):
        chosen, bounds, left = _best(bounded[which], wanted)
        if wanted == pool:
            left[:] = -math.inf
        wide = np.repeat(which[:, None], chosen.shape[1], axis=1)
        scores = np.full(chosen.shape, -math.inf)
        best = _exact_scores(patterns, states, terms, wide[:, :k].ravel(), chosen[:, :k].ravel())
        scores[:, :k] = best.reshape(-1, k)
        # The k-th score can only rise: other sets matter only if their bound reaches it.
        least = scores[:, :k].min(axis=1)
        least -= rounding[which] * np.maximum(1.0, np.abs(least))
        more = bounds >= least[:, None]
        more[:, :k] = False
        if more.any():
            scores[more] = _exact_scores(patterns, states, terms, wide[more], chosen[more])
        needed = k + more.sum(axis=1)
        # Equal scores in the order of the numbers.
        most = int(needed.max())
        order = np.lexsort((chosen[:, :most], -scores[:, :most]))[:, :k]
        last = np.take_along_axis(scores, order[:, -1:], axis=1)[:, 0]
        next_bound = np.concatenate([bounds, left[:, None]], axis=1)[np.arange(len(which)), needed]
        # Strictly above, so that rounding never decides between equal scores.
        done = last > next_bound + rounding[which] * np.maximum(1.0, np.abs(last))
        for place in np.flatnonzero(done):
            picks = order[place]
            found[int(which[place])] = Ranking(chosen[place][picks], scores[place][picks], True, int(needed[place]))
        which = which[~done]
        wanted = min(pool, 2 * wanted)
    return found


def _best(bounds: Vectors, wanted: int) -> tuple[Rows, npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """From bounds (q, n), the best sets and their bounds, (q, wanted), best first; and the best bound left, (q,)."""
    more = min(wanted + 1, bounds.shape[1])
    sets = _largest(bounds, more)
    best = np.take_along_axis(bounds, sets, axis=1).astype(np.float64)
    left = best[:, wanted].copy() if more > wanted else np.full(len(bounds), -math.inf)
    return sets[:, :wanted], best[:, :wanted], left


def _largest(values: Vectors, count: int) -> Rows:
    """The places of the largest values of each row (q, n), largest first and NaN before them: (q, count)."""
    n = values.shape[1]
    places = np.argpartition(values, n - count, axis=1)[:, n - count :]
    order = np.take_along_axis(values, places, axis=1).argsort(axis=1)[:, ::-1]
    return np.take_along_axis(places, order, axis=1)


def _exact_scores(patterns: Patterns, states: Vectors, terms: Terms, which: Rows, sets: Rows) -> npt.NDArray[np.float64]:
    """The second pass: w <x, y_0> + sum_j sparsemax(beta a)_j a_j + extra, a = Y x, for m pairs of a query and a passage.

    The pairs of one query must be adjacent.
    """
    sizes = patterns.offsets[sets + 1] - patterns.offsets[sets]
    scores = np.empty(len(sets), dtype=np.float64)
    step = max(1, _AT_ONCE // int(sizes.max(initial=1)))
    for start in range(0, len(sets), step):
        part = slice(start, start + step)
        scores[part] = _score(patterns, states, terms, which[part], sets[part], sizes[part])
    if terms.extra is not None:
        scores += terms.extra[which, sets]
    # NaN bounds come first, so a damaged set is always scored.
    broken = sets[~np.isfinite(scores)]
    if len(broken):
        raise RetrievalError(
            f"Passage number {broken[0]} has no finite score: its stored pattern is damaged; build the memory again."
        )
    return scores


def _score(patterns: Patterns, states: Vectors, terms: Terms, which: Rows, sets: Rows, sizes: Rows) -> npt.NDArray[np.float64]:
    columns = np.arange(int(sizes.max()))
    mask = columns < sizes[:, None]
    rows, owners = (patterns.offsets[sets][:, None] + columns)[mask], np.repeat(which, sizes)
    products = np.zeros(mask.shape)
    found = np.empty(len(rows))
    changes = np.flatnonzero(np.diff(owners)) + 1
    step = max(1, _COPIED // patterns.d)
    cuts = np.unique([*changes, *range(0, len(owners), step), len(owners)]).tolist()
    for start, stop in itertools.pairwise(cuts):
        found[start:stop] = _row_products(patterns, states[owners[start]], rows[start:stop])
    products[mask] = found
    whole, windows = products[:, 0], products[:, 1:]
    weights = sparsemax(windows, beta=terms.beta, mask=mask[:, 1:])
    # cumsum adds one after another, so padding changes nothing.
    scores: npt.NDArray[np.float64] = terms.passage_weight * whole + (weights * windows).cumsum(axis=-1)[:, -1]
    return scores


def _row_products(patterns: Patterns, state: Vectors, rows: Rows) -> npt.NDArray[np.float64]:
    """Exact products of the stored patterns of some rows with a query state, (len(rows),)."""
    # Row by row: in a matrix product the last bits depend on the place of a row.
    products = np.einsum("nd,d->n", patterns.values[rows].astype(np.float64), state.astype(np.float64))
    return np.asarray(products if patterns.scales is None else products * patterns.scales[rows])
