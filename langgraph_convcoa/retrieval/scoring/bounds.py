"""The first pass: a bound on the score of every memory set, by one product over all patterns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.scoring.int8 import IntegerQueries
from langgraph_convcoa.retrieval.scoring.maxima import Scratch, window_maxima
from langgraph_convcoa.retrieval.scoring.patterns import Patterns
from langgraph_convcoa.retrieval.scoring.threads import Workers
from langgraph_convcoa.retrieval.scoring.weights import HopfieldWeights

_FEWEST_ROWS = 4_096
# A second thread for a block that would not need it takes longer to start than this many rows.
_SHARED_ROWS = 8_192
_DEVICE_ROWS = 262_144
# How far float32 may be off, relative to the lengths multiplied.
_ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class Queries:
    """States and what trained weights make of them.

    Attributes:
        states: x, (q, d), multiplied with y_0.
        readout: x (W_K W_V)^T, (q, d), multiplied with the windows; x itself without weights.
        association: x W_Q W_K^T, (q, d), whose products say which windows count; None where they are those of `readout`.
    """

    states: Vectors
    readout: Vectors
    association: Vectors | None

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
    """What a score is made of besides the patterns and the queries.

    Attributes:
        beta: Inverse temperature.
        passage_weight: w.
        allowed: (n,) True for sets that may be returned, or None.
        extra: (q, n) added to each set's score, or None.
    """

    beta: float
    passage_weight: float
    allowed: npt.NDArray[np.bool_] | None
    extra: Vectors | None


@dataclass(frozen=True, eq=False)
class FirstPass:
    """Bounds of all sets, and the products that they come from.

    Attributes:
        bounds: No score is above its bound, (q, n); -infinity where not allowed.
        products: <x, y_0> and b of every row, (N, q), of allowed blocks only; None where the pass was coarse.
    """

    bounds: Tensor
    products: Tensor | None


def first_pass(patterns: Patterns, queries: Queries, terms: Terms, device: torch.device, workers: Workers) -> FirstPass:
    """Bound every score by w <x, y_0> + max_j b_j + extra.

    int8 patterns on a CPU are multiplied with int8 queries x^; the bound is then wider by |x - x^| (w |y_0| + max_j |y_j|).
    """
    coarse = patterns.dtype == "int8" and device.type == "cpu"
    make = _Coarse if coarse else _Full
    task = make(patterns, queries, terms, device)
    workers.each(task.bound_block, task.blocks())
    return FirstPass(task.bounds, task.products)


class _Full:
    """Products in float32, kept for the exact scores."""

    # A block's products stay in one core's cache: fewer rows a block the more queries there are.
    block_products, most_rows = 131_072, 16_384

    def __init__(self, patterns: Patterns, queries: Queries, terms: Terms, device: torch.device) -> None:
        self.patterns, self.terms, self.device = patterns, terms, device
        self.count = len(queries.states)
        self.stored = patterns.on(device)
        self.bounds = torch.empty((self.count, patterns.n), device=device)
        self.products: Tensor | None = None
        self.extra = None if terms.extra is None else torch.from_numpy(terms.extra).to(device).T
        self.denied = None if terms.allowed is None else torch.from_numpy(~terms.allowed).to(device)
        self.scratch = Scratch()
        self._prepare(queries)

    def _prepare(self, queries: Queries) -> None:
        self.products = torch.empty((len(self.patterns.values), self.count), device=self.device)
        self.readout = torch.from_numpy(queries.readout).to(self.device).T
        self.states = torch.from_numpy(queries.states).to(self.device).T if queries.trained else None
        if self.count == 1 and self.device.type == "cpu":
            # A product with one column takes the matrix-vector path, about twice as slow as two columns.
            self.readout = self.readout.T.repeat(2, 1).T

    def blocks(self) -> list[tuple[int, int]]:
        """Runs of whole sets, (first set, last set + 1)."""
        total = int(self.patterns.offsets[-1])
        rows = min(max(self.block_products // self.count, _FEWEST_ROWS), self.most_rows)
        rows = rows if self.device.type == "cpu" else _DEVICE_ROWS
        threads = torch.get_num_threads()
        number = max(1, -(-total // rows))
        if total >= _SHARED_ROWS * threads:
            # As many a thread, and about as large, so that none waits long for another's last.
            number = -(-number // threads) * threads
        offsets = self.patterns.offsets
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
        products, whole = self._multiply(start, stop, torch.from_numpy(edges[:-1]).to(self.device))
        best = window_maxima(products, edges, self.scratch)
        best = self._combine(best, whole, a, b)
        if self.extra is not None:
            best += self.extra[a:b]
        if self.denied is not None:
            best.masked_fill_(self.denied[a:b, None], -torch.inf)
        self.bounds[:, a:b] = best.T

    def _multiply(self, start: int, stop: int, firsts: Tensor) -> tuple[Tensor, Tensor]:
        assert self.products is not None
        out = self.products[start:stop]
        values = self.stored.decoded(start, stop)
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
        self.readouts = IntegerQueries.coarse(queries.readout)
        self.wholes = IntegerQueries.coarse(queries.states) if queries.trained else self.readouts
        self.steps, self.slack = _steps_and_slack(self.readouts, queries.readout)
        self.whole_steps, self.whole_slack = _steps_and_slack(self.wholes, queries.states)
        self.longest = torch.from_numpy(self.patterns.reach).unsqueeze(-1)
        assert self.stored.scales is not None
        self.scales = self.stored.scales.unsqueeze(-1)

    def _multiply(self, start: int, stop: int, firsts: Tensor) -> tuple[Tensor, Tensor]:
        values, scales = self.patterns.values[start:stop], self.scales[start:stop]
        products = self._scaled(self.readouts, values, scales)
        if self.wholes is self.readouts:
            return products, products.index_select(0, firsts)
        return products, self._scaled(self.wholes, values[firsts.numpy()], scales.index_select(0, firsts), "whole")

    def _scaled(self, queries: IntegerQueries, values: npt.NDArray[np.int8], scales: Tensor, name: str = "products") -> Tensor:
        """Products of rows with the rounded queries, in units of the queries' steps."""
        shape = (len(values), self.count)
        products = self.scratch.take(name, shape, torch.float32, self.device)
        if self.count == 1:
            queries.products(values, out=products.numpy())
        else:
            whole_numbers = self.scratch.take("whole numbers", shape, torch.int32, self.device)
            queries.products(values, out=whole_numbers.numpy())
            products.copy_(whole_numbers)
        return products.mul_(scales)

    def _combine(self, best: Tensor, whole: Tensor, a: int, b: int) -> Tensor:
        weight = self.terms.passage_weight
        best.mul_(self.steps).addcmul_(whole, self.whole_steps, value=weight)
        best.addcmul_(self.longest[0, a:b], self.whole_slack, value=weight)
        return best.addcmul_(self.longest[1, a:b], self.slack)


def _steps_and_slack(queries: IntegerQueries, vectors: Vectors) -> tuple[Tensor, Tensor]:
    """What a unit of each query's products is worth, and how far a product with a pattern of length 1 may be off, (1, q)."""
    slack = queries.errors + _ROUNDING * np.linalg.norm(vectors.astype(np.float64), axis=1)
    return torch.from_numpy(queries.steps).float()[None], torch.from_numpy(slack).float()[None]
