"""The first pass of a search: a bound on the score of every passage, by one product over all patterns."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.scoring.int8 import IntegerQueries
from langgraph_convcoa.retrieval.scoring.patterns import HopfieldWeights, Patterns
from langgraph_convcoa.retrieval.threads import Each, cores

_FEWEST_ROWS = 4_096
# A second thread for a block that would not need it takes longer to start than this many rows.
_SHARED_ROWS = 8_192
# How far float32 may be off, relative to the lengths multiplied.
_ROUNDING = 1e-6
# Runs of up to 2**6 rows are laid out; a block with a longer set is reduced set by set.
_MOST_LEVELS = 6

# So few columns are multiplied one by one: a matrix of them takes the library more than twice as long.
_SINGLY = 3

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Queries:
    """States and what trained weights make of them."""

    states: Vectors  # x, (q, d), multiplied with y_0.
    readout: Vectors  # x (W_K W_V)^T, (q, d), multiplied with the windows; x itself without weights.
    association: Vectors | None  # x W_Q W_K^T, (q, d), whose products say which windows count; None where they are x's.

    @classmethod
    def of(cls, states: Vectors, weights: HopfieldWeights | None) -> Queries:
        """The queries of states (q, d)."""
        if weights is None:
            return cls(states, states, None)
        return cls(states, weights.readout(states), weights.association(states))

    @property
    def trained(self) -> bool:
        """Whether there are weights."""
        return self.association is not None

    def part(self, rows: slice) -> Queries:
        """Some of them."""
        return Queries(self.states[rows], self.readout[rows], None if self.association is None else self.association[rows])

    def reach(self, passage_weight: float) -> npt.NDArray[np.float64]:
        """The greatest score that each may have with patterns of length 1, (q,)."""
        lengths = [np.linalg.norm(vectors.astype(np.float64), axis=1) for vectors in (self.states, self.readout)]
        return np.asarray(passage_weight * lengths[0] + lengths[1])


@dataclass(frozen=True, eq=False)
class Terms:
    """The terms of a score besides the patterns and the queries."""

    beta: float
    passage_weight: float
    allowed: npt.NDArray[np.bool_] | None  # (n,), True for passages that may be returned.
    extra: Vectors | None  # (q, n), added to each passage's score.


def first_pass(patterns: Patterns, queries: Queries, terms: Terms, each: Each) -> Vectors:
    """Bound every score by w <x, y_0> + max_j b_j + extra, (q, n); -infinity where not allowed.

    int8 patterns are multiplied with int8 queries x^; the bound is then wider by |x - x^| (w |y_0| + max_j |y_j|).
    """
    task = (_Coarse if patterns.dtype == "int8" else _Full)(patterns, queries, terms)
    each(task.bound_block, task.blocks())
    return task.bounds


class _Full:
    """Products in float32."""

    # A block's products stay in one core's cache: fewer rows a block the more queries there are.
    block_products, most_rows = 131_072, 16_384

    def __init__(self, patterns: Patterns, queries: Queries, terms: Terms) -> None:
        self.patterns, self.terms = patterns, terms
        self.count = len(queries.states)
        self.bounds = np.empty((self.count, patterns.n), dtype=np.float32)
        self.extra = None if terms.extra is None else terms.extra.T
        self.denied = None if terms.allowed is None else ~terms.allowed
        self.scratch = Scratch()
        self._prepare(queries)

    def _prepare(self, queries: Queries) -> None:
        self.readout = queries.readout
        self.states = queries.states if queries.trained else None

    def blocks(self) -> list[tuple[int, int]]:
        """Runs of whole sets, (first set, last set + 1)."""
        offsets, threads = self.patterns.offsets, cores()
        total = int(offsets[-1])
        number = max(1, -(-total // min(max(self.block_products // self.count, _FEWEST_ROWS), self.most_rows)))
        if total >= _SHARED_ROWS * threads:
            # As many a thread, and about as large, so that none waits long for another's last.
            number = -(-number // threads) * threads
        cuts = np.unique(np.searchsorted(offsets[:-1], np.linspace(0, total, number, endpoint=False))).tolist()
        return [(a, b) for a, b in zip(cuts, [*cuts[1:], self.patterns.n], strict=True) if b > a]

    def bound_block(self, block: tuple[int, int]) -> None:
        """Fill in the bounds, and the products, of the sets a to b."""
        a, b = block
        allowed, offsets = self.terms.allowed, self.patterns.offsets
        if allowed is not None and not allowed[a:b].any():
            self.bounds[:, a:b] = -np.inf
            return
        start, stop = int(offsets[a]), int(offsets[b])
        edges = offsets[a : b + 1] - start
        products, whole = self._multiply(start, stop, edges[:-1])
        best = window_maxima(products, edges, self.scratch)
        best = self._combine(best, whole, a, b)
        if self.extra is not None:
            best += self.extra[a:b]
        if self.denied is not None:
            best[self.denied[a:b]] = -np.inf
        self.bounds[:, a:b] = best.T

    def _multiply(self, start: int, stop: int, firsts: Numbers) -> tuple[Vectors, Vectors]:
        values = self.patterns.values[start:stop]
        out: Vectors = self.scratch.take("products", (len(values), self.count), np.float32)
        if self.count > _SINGLY:
            np.matmul(values, self.readout.T, out=out)
        else:
            for column, query in enumerate(self.readout):
                out[:, column] = values @ query
        if self.states is None:
            return out, out.take(firsts, axis=0)
        return out, values.take(firsts, axis=0) @ self.states.T

    def _combine(self, best: Vectors, whole: Vectors, a: int, b: int) -> Vectors:
        whole *= np.float32(self.terms.passage_weight)
        best += whole
        return best


class _Coarse(_Full):
    """Products of int8 with int8."""

    # The products take so little time that starting each step of each block shows: larger blocks, in the cache of all cores.
    block_products, most_rows = 262_144, 131_072

    def _prepare(self, queries: Queries) -> None:
        assert self.patterns.scales is not None
        self.readouts = IntegerQueries.coarse(queries.readout)
        self.wholes = IntegerQueries.coarse(queries.states) if queries.trained else self.readouts
        self.steps, self.slack = _steps_and_slack(self.readouts, queries.readout)
        self.whole_steps, self.whole_slack = _steps_and_slack(self.wholes, queries.states)
        self.longest = self.patterns.reach[:, :, None]
        self.scales = self.patterns.scales[:, None]

    def _multiply(self, start: int, stop: int, firsts: Numbers) -> tuple[Vectors, Vectors]:
        values, scales = self.patterns.values[start:stop], self.scales[start:stop]
        products = self._scaled(self.readouts, values, scales)
        if self.wholes is self.readouts:
            return products, products.take(firsts, axis=0)
        return products, self._scaled(self.wholes, values[firsts], scales.take(firsts, axis=0), "whole")

    def _scaled(
        self, queries: IntegerQueries, values: npt.NDArray[np.int8], scales: Vectors, name: str = "products"
    ) -> Vectors:
        """Products of rows with the rounded queries, in units of the queries' steps."""
        shape = (len(values), self.count)
        products: Vectors = self.scratch.take(name, shape, np.float32)
        if self.count == 1:
            queries.products(values, out=products)
            products *= scales
        else:
            whole_numbers = self.scratch.take("whole numbers", shape, np.int32)
            queries.products(values, out=whole_numbers)
            np.multiply(whole_numbers, scales, out=products, casting="unsafe")
        return products

    def _combine(self, best: Vectors, whole: Vectors, a: int, b: int) -> Vectors:
        weight = np.float32(self.terms.passage_weight)
        best *= self.steps
        best += whole * (weight * self.whole_steps)
        best += self.longest[0, a:b] * (weight * self.whole_slack)
        best += self.longest[1, a:b] * self.slack
        return best


def _steps_and_slack(queries: IntegerQueries, vectors: Vectors) -> tuple[Vectors, Vectors]:
    """The worth of a unit of each query's products, and how far a product with a pattern of length 1 may be off, (1, q)."""
    slack = queries.errors + _ROUNDING * np.linalg.norm(vectors.astype(np.float64), axis=1)
    return queries.steps.astype(np.float32)[None], slack.astype(np.float32)[None]


class Scratch(threading.local):
    """Memory for a block's numbers, one piece a name and thread: fresh memory for every block takes longer than its sums."""

    def __init__(self) -> None:
        self._pieces: dict[str, npt.NDArray[Any]] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """An array of whatever was there before; the one that was taken under this name is given up."""
        size = math.prod(shape)
        piece = self._pieces.get(name)
        if piece is None or piece.size < size or piece.dtype != dtype:
            piece = self._pieces[name] = np.empty(size, dtype=dtype)
        return piece[:size].reshape(shape)


def window_maxima(products: Vectors, edges: Numbers, scratch: Scratch) -> Vectors:
    """The maxima (n, q) over the windows of each set, that is over all its rows but the first, of products (m, q) of n sets.

    The maximum of s rows is that of its first and its last 2^l rows, 2^l <= s < 2^(l+1), and those of all runs of 2^l rows
    come from those of 2^(l-1) in one step (the sparse table of range maximum queries). Set i is rows edges[i] to edges[i + 1],
    at least two; a maximum is NaN where a window is.

    Example:
        >>> products = np.array([[9], [1], [9], [2], [5], [4]], dtype=np.float32)
        >>> window_maxima(products, np.array([0, 2, 6]), Scratch()).ravel().tolist()
        [1.0, 5.0]
    """
    rows, count = products.shape
    levels = np.frexp(np.diff(edges) - 1)[1].astype(np.int64) - 1
    top = int(levels.max(initial=0))
    starts = edges[:-1] + 1
    if top == 0:
        return products.take(starts, axis=0)
    if top > _MOST_LEVELS:
        return _set_by_set(products, edges)
    table = scratch.take("maxima", (top, rows, count), products.dtype)
    level = products
    for number in range(top):
        width = 2**number
        runs = rows - 2 * width + 1
        np.maximum(level[:runs], level[width : width + runs], out=table[number, :runs])
        level = table[number]
    flat = table.reshape(top * rows, count)
    base = np.maximum(levels - 1, 0) * rows
    best: Vectors = flat.take(base + starts, axis=0)
    np.maximum(best, flat.take(base + edges[1:] - 2**levels, axis=0), out=best)
    alone = np.flatnonzero(levels == 0)
    if len(alone):
        best[alone] = products.take(starts[alone], axis=0)
    return best


def _set_by_set(products: Vectors, edges: Numbers) -> Vectors:
    firsts = edges[:-1]
    whole = products.take(firsts, axis=0)
    products[firsts] = -np.inf
    best: Vectors = np.maximum.reduceat(products, firsts, axis=0)
    products[firsts] = whole
    return best
