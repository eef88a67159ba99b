"""The first pass of a search: a bound on the score of every passage, by one product over all patterns."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.scoring.int8 import IntegerQueries
from langgraph_convcoa.retrieval.scoring.patterns import HopfieldWeights, Patterns, writable

_FEWEST_ROWS = 4_096
# A second thread for a block that would not need it takes longer to start than this many rows.
_SHARED_ROWS = 8_192
# How far float32 may be off, relative to the lengths multiplied.
_ROUNDING = 1e-6
# Runs of up to 2**6 rows are laid out; a block with a longer set is reduced set by set.
_MOST_LEVELS = 6

Each = Callable[[Callable[[Any], object], Sequence[Any]], object]
"""Does a piece of work for every job, in no certain order."""


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


@dataclass(frozen=True, eq=False)
class Terms:
    """The terms of a score besides the patterns and the queries."""

    beta: float
    passage_weight: float
    allowed: npt.NDArray[np.bool_] | None  # (n,), True for passages that may be returned.
    extra: Vectors | None  # (q, n), added to each passage's score.


@dataclass(frozen=True, eq=False)
class FirstPass:
    """Bounds of all passages, and the products that they come from."""

    bounds: Tensor  # No score is above its bound, (q, n); -infinity where not allowed.
    products: Tensor | None  # <x, y_0> and b of every row, (N, q), of allowed blocks only; None for int8.


def first_pass(patterns: Patterns, queries: Queries, terms: Terms, each: Each) -> FirstPass:
    """Bound every score by w <x, y_0> + max_j b_j + extra.

    int8 patterns are multiplied with int8 queries x^; the bound is then wider by |x - x^| (w |y_0| + max_j |y_j|).
    """
    task = (_Coarse if patterns.dtype == "int8" else _Full)(patterns, queries, terms)
    each(task.bound_block, task.blocks())
    return FirstPass(task.bounds, task.products)


class _Full:
    """Products in float32, kept for the exact scores."""

    # A block's products stay in one core's cache: fewer rows a block the more queries there are.
    block_products, most_rows = 131_072, 16_384

    def __init__(self, patterns: Patterns, queries: Queries, terms: Terms) -> None:
        self.patterns, self.terms = patterns, terms
        self.count = len(queries.states)
        self.bounds = torch.empty((self.count, patterns.n))
        self.products: Tensor | None = None
        self.extra = None if terms.extra is None else torch.from_numpy(terms.extra).T
        self.denied = None if terms.allowed is None else torch.from_numpy(~terms.allowed)
        self.scratch = Scratch()
        self._prepare(queries)

    def _prepare(self, queries: Queries) -> None:
        self.products = torch.empty((len(self.patterns.values), self.count))
        self.readout = torch.from_numpy(queries.readout).T
        self.states = torch.from_numpy(queries.states).T if queries.trained else None
        if self.count == 1:
            # A product with one column takes the matrix-vector path, about twice as slow as two columns.
            self.readout = self.readout.T.repeat(2, 1).T

    def blocks(self) -> list[tuple[int, int]]:
        """Runs of whole sets, (first set, last set + 1)."""
        offsets, threads = self.patterns.offsets, torch.get_num_threads()
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
            self.bounds[:, a:b] = -torch.inf
            return
        start, stop = int(offsets[a]), int(offsets[b])
        edges = offsets[a : b + 1] - start
        products, whole = self._multiply(start, stop, torch.from_numpy(edges[:-1]))
        best = window_maxima(products, edges, self.scratch)
        best = self._combine(best, whole, a, b)
        if self.extra is not None:
            best += self.extra[a:b]
        if self.denied is not None:
            best.masked_fill_(self.denied[a:b, None], -torch.inf)
        self.bounds[:, a:b] = best.T

    def _multiply(self, start: int, stop: int, firsts: Tensor) -> tuple[Tensor, Tensor]:
        assert self.products is not None
        out, values = self.products[start:stop], self.patterns.tensor[start:stop]
        if self.readout.shape[1] == self.count:
            torch.mm(values, self.readout, out=out)
        else:
            out.copy_(torch.mm(values, self.readout)[:, :1])
        if self.states is None:
            return out, out.index_select(0, firsts)
        whole = values.index_select(0, firsts) @ self.states
        out.index_copy_(0, firsts, whole)
        return out, whole

    def _combine(self, best: Tensor, whole: Tensor, a: int, b: int) -> Tensor:
        return best.add_(whole, alpha=self.terms.passage_weight)


class _Coarse(_Full):
    """Products of int8 with int8, not kept."""

    # The products take so little time that starting each step of each block shows: larger blocks, in the cache of all cores.
    block_products, most_rows = 262_144, 131_072

    def _prepare(self, queries: Queries) -> None:
        assert self.patterns.scales is not None
        self.readouts = IntegerQueries.coarse(queries.readout)
        self.wholes = IntegerQueries.coarse(queries.states) if queries.trained else self.readouts
        self.steps, self.slack = _steps_and_slack(self.readouts, queries.readout)
        self.whole_steps, self.whole_slack = _steps_and_slack(self.wholes, queries.states)
        self.longest = torch.from_numpy(self.patterns.reach).unsqueeze(-1)
        self.scales = torch.from_numpy(writable(self.patterns.scales)).unsqueeze(-1)

    def _multiply(self, start: int, stop: int, firsts: Tensor) -> tuple[Tensor, Tensor]:
        values, scales = self.patterns.values[start:stop], self.scales[start:stop]
        products = self._scaled(self.readouts, values, scales)
        if self.wholes is self.readouts:
            return products, products.index_select(0, firsts)
        return products, self._scaled(self.wholes, values[firsts.numpy()], scales.index_select(0, firsts), "whole")

    def _scaled(self, queries: IntegerQueries, values: npt.NDArray[np.int8], scales: Tensor, name: str = "products") -> Tensor:
        """Products of rows with the rounded queries, in units of the queries' steps."""
        shape = (len(values), self.count)
        products = self.scratch.take(name, shape, torch.float32)
        if self.count == 1:
            queries.products(values, out=products.numpy())
        else:
            whole_numbers = self.scratch.take("whole numbers", shape, torch.int32)
            queries.products(values, out=whole_numbers.numpy())
            products.copy_(whole_numbers)
        return products.mul_(scales)

    def _combine(self, best: Tensor, whole: Tensor, a: int, b: int) -> Tensor:
        weight = self.terms.passage_weight
        best.mul_(self.steps).addcmul_(whole, self.whole_steps, value=weight)
        best.addcmul_(self.longest[0, a:b], self.whole_slack, value=weight)
        return best.addcmul_(self.longest[1, a:b], self.slack)


def _steps_and_slack(queries: IntegerQueries, vectors: Vectors) -> tuple[Tensor, Tensor]:
    """The worth of a unit of each query's products, and how far a product with a pattern of length 1 may be off, (1, q)."""
    slack = queries.errors + _ROUNDING * np.linalg.norm(vectors.astype(np.float64), axis=1)
    return torch.from_numpy(queries.steps).float()[None], torch.from_numpy(slack).float()[None]


class Scratch(threading.local):
    """Memory for a block's numbers, one piece a name and thread: fresh memory for every block takes longer than its sums."""

    def __init__(self) -> None:
        self._pieces: dict[str, Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A tensor of whatever was there before; the one that was taken under this name is given up."""
        size = math.prod(shape)
        piece = self._pieces.get(name)
        if piece is None or piece.numel() < size or piece.dtype != dtype:
            piece = self._pieces[name] = torch.empty(size, dtype=dtype)
        return piece[:size].view(shape)


def window_maxima(products: Tensor, edges: npt.NDArray[np.int64], scratch: Scratch) -> Tensor:
    """The maxima (n, q) over the windows of each set, that is over all its rows but the first, of products (m, q) of n sets.

    The maximum of s rows is that of its first and its last 2^l rows, 2^l <= s < 2^(l+1), and those of all runs of 2^l rows
    come from those of 2^(l-1) in one step (the sparse table of range maximum queries). Set i is rows edges[i] to edges[i + 1],
    at least two; a maximum is NaN where a window is.

    Example:
        >>> products = torch.tensor([[9.0], [1.0], [9.0], [2.0], [5.0], [4.0]])
        >>> window_maxima(products, np.array([0, 2, 6]), Scratch()).flatten().tolist()
        [1.0, 5.0]
    """
    rows, count = products.shape
    levels = np.frexp(np.diff(edges) - 1)[1].astype(np.int64) - 1
    top = int(levels.max(initial=0))
    starts = edges[:-1] + 1
    if top == 0:
        return products.index_select(0, torch.from_numpy(starts))
    if top > _MOST_LEVELS:
        return _set_by_set(products, torch.from_numpy(edges))
    table = scratch.take("maxima", (top, rows, count), products.dtype)
    level = products
    for number in range(top):
        width = 2**number
        runs = rows - 2 * width + 1
        torch.maximum(level[:runs], level[width : width + runs], out=table[number, :runs])
        level = table[number]
    flat = table.view(top * rows, count)
    base = np.maximum(levels - 1, 0) * rows
    best = flat.index_select(0, torch.from_numpy(base + starts))
    best = torch.maximum(best, flat.index_select(0, torch.from_numpy(base + edges[1:] - 2**levels)))
    alone = np.flatnonzero(levels == 0)
    if len(alone):
        only = products.index_select(0, torch.from_numpy(starts[alone]))
        best.index_copy_(0, torch.from_numpy(alone), only)
    return best


def _set_by_set(products: Tensor, edges: Tensor) -> Tensor:
    firsts = edges[:-1]
    whole = products.index_select(0, firsts)
    products.index_fill_(0, firsts, -torch.inf)
    best = torch.segment_reduce(products, "max", offsets=edges, axis=0, unsafe=True)
    products.index_copy_(0, firsts, whole)
    return best


@contextmanager
def workers(*, parallel: bool) -> Iterator[Each]:
    """A pool of one thread, or of as many as torch uses here, for the time of a search; errors of a job are raised here.

    Each thread takes block after block and keeps to one core, so that a block is still in its cache at the next step. torch's
    own threads would wait for each other after every step of every block, which costs more than the steps on a busy machine.
    """
    usual = torch.get_num_threads()
    if usual == 1:
        yield lambda work, jobs: deque(map(work, jobs), maxlen=0)
        return
    try:
        # torch's number of threads is each thread's own.
        with ThreadPoolExecutor(usual if parallel else 1, "scoring", torch.set_num_threads, (1,)) as pool:
            yield lambda work, jobs: deque(pool.map(work, jobs), maxlen=0)
    finally:
        # A thread that is new to torch starts with the number that was set last, wherever that was.
        torch.set_num_threads(usual)
