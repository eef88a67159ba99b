"""The first pass of a search: a bound on the score of every passage, by one product over all patterns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.scoring.int8 import IntegerQueries, dot
from langgraph_convcoa.retrieval.scoring.patterns import Patterns
from langgraph_convcoa.retrieval.threads import Each, cores

# A block's products fit one core's cache. int8 products are fast, so their blocks are larger.
_BLOCK_PRODUCTS = {"float32": 131_072, "int8": 262_144}
_MOST_ROWS = {"float32": 16_384, "int8": 131_072}
_FEWEST_ROWS = 4_096
# A second thread for fewer rows takes longer to start than to work.
_SHARED_ROWS = 8_192
# Largest error of a float32 product, relative to the product of the lengths.
_ROUNDING = 1e-6

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Terms:
    """The terms of a score besides the patterns and the states."""

    beta: float
    passage_weight: float
    allowed: npt.NDArray[np.bool_] | None  # (n,), True for passages that may be returned.
    extra: Vectors | None  # (q, n), added to each passage's score.


def first_pass(patterns: Patterns, states: Vectors, terms: Terms, each: Each) -> Vectors:
    """Bound every score by w <x, y_0> + max_j <x, y_j> + extra, (q, n); -infinity where not allowed.

    int8 patterns are multiplied with int8 states x^; the bound is then wider by |x - x^| (w |y_0| + max_j |y_j|).
    """
    task = _FirstPass(patterns, states, terms)
    each(task.bound_block, task.blocks())
    return task.bounds


class _FirstPass:
    def __init__(self, patterns: Patterns, states: Vectors, terms: Terms) -> None:
        self.patterns, self.terms = patterns, terms
        self.states: npt.NDArray[Any] = states
        self.weight = np.float32(terms.passage_weight)
        self.bounds = np.empty((len(states), patterns.n), dtype=np.float32)
        if patterns.dtype == "int8":
            queries = IntegerQueries.of(states)
            slack = queries.errors + _ROUNDING * np.linalg.norm(states.astype(np.float64), axis=1)
            self.states = queries.rows
            self.steps, self.slack = queries.steps.astype(np.float32)[None], slack.astype(np.float32)[None]
            self.reach = patterns.reach[:, :, None]

    def blocks(self) -> list[tuple[int, int]]:
        """Runs of whole sets, (first set, last set + 1)."""
        offsets, threads, kind = self.patterns.offsets, cores(), self.patterns.dtype
        total = int(offsets[-1])
        rows = min(max(_BLOCK_PRODUCTS[kind] // len(self.bounds), _FEWEST_ROWS), _MOST_ROWS[kind])
        number = max(1, -(-total // rows))
        if total >= _SHARED_ROWS * threads:
            # The same number of blocks for each thread.
            number = -(-number // threads) * threads
        cuts = np.unique(np.searchsorted(offsets[:-1], np.linspace(0, total, number, endpoint=False))).tolist()
        return [(a, b) for a, b in zip(cuts, [*cuts[1:], self.patterns.n], strict=True) if b > a]

    def bound_block(self, block: tuple[int, int]) -> None:
        """Fill in the bounds of the sets a to b."""
        a, b = block
        allowed, offsets = self.terms.allowed, self.patterns.offsets
        if allowed is not None and not allowed[a:b].any():
            self.bounds[:, a:b] = -np.inf
            return
        edges = offsets[a : b + 1] - offsets[a]
        products = self._products(int(offsets[a]), int(offsets[b]))
        best = window_maxima(products, edges)
        best += self.weight * products.take(edges[:-1], axis=0)
        if self.patterns.dtype == "int8":
            best *= self.steps
            best += (self.weight * self.reach[0, a:b] + self.reach[1, a:b]) * self.slack
        if self.terms.extra is not None:
            best += self.terms.extra.T[a:b]
        if allowed is not None:
            best[~allowed[a:b]] = -np.inf
        self.bounds[:, a:b] = best.T

    def _products(self, start: int, stop: int) -> Vectors:
        """Products of rows with the states, (stop - start, q); for int8 in units of the states' steps."""
        shape = (stop - start, len(self.states))
        products: Vectors = np.empty(shape, dtype=np.float32)
        values, scales = self.patterns.values[start:stop], self.patterns.scales
        if scales is None:
            dot(values, self.states, products)
        elif len(self.states) == 1:
            dot(values, self.states, products)
            products *= scales[start:stop, None]
        else:
            whole_numbers = dot(values, self.states, np.empty(shape, dtype=np.int32))
            np.multiply(whole_numbers, scales[start:stop, None], out=products, casting="unsafe")
        return products


def window_maxima(products: Vectors, edges: Numbers) -> Vectors:
    """The maxima (n, q) over the windows of n sets (all rows but the first), from products (m, q).

    Set i is rows edges[i] to edges[i + 1], at least two. A maximum is NaN if one of its windows is.

    Example:
        >>> products = np.array([[9], [1], [9], [2], [5], [4]], dtype=np.float32)
        >>> window_maxima(products, np.array([0, 2, 6])).ravel().tolist()
        [1.0, 5.0]
    """
    firsts, sizes = edges[:-1], np.diff(edges)
    best: Vectors = products.take(firsts + 1, axis=0)
    longer = np.arange(len(sizes))
    for place in range(2, int(sizes.max(initial=0))):
        longer = longer[sizes[longer] > place]
        best[longer] = np.maximum(best[longer], products.take(firsts[longer] + place, axis=0))
    return best
