"""Stored patterns of passages, as float32 or int8, and their products with queries."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

import numkong
import numpy as np
import numpy.typing as npt

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.encoders.base import Vectors

PatternType: TypeAlias = Literal["float32", "int8"]
"""The type of stored patterns. int8 patterns are rounded once, when they are stored. The search over them is exact."""

PATTERN_TYPES: tuple[PatternType, ...] = get_args(PatternType)

Rows = npt.NDArray[np.int64]
_LARGEST_INT8 = 127
_ROWS = 4_096


@dataclass(frozen=True, eq=False)
class Patterns:
    """N patterns of length d in n sets, one for each passage; read-only. RetrievalError if the parts do not fit together.

    Example:
        >>> values, scales = encode_patterns(np.eye(2, dtype=np.float32), "int8")
        >>> patterns = Patterns(values, np.array([0, 2]), scales, "int8")
        >>> patterns.n, patterns.d, patterns.rows(0, 1).tolist()
        (1, 2, [[1.0, 0.0]])
    """

    values: npt.NDArray[Any]  # (N, d), C-contiguous, float32 or int8; may be a read-only memory map.
    # (n + 1,); set i is rows offsets[i] to offsets[i + 1]: the whole-passage pattern y_0, then at least one window Y.
    offsets: npt.NDArray[np.int64]
    scales: npt.NDArray[np.float32] | None = None  # (N,) for int8, where a pattern is its scale times its row.
    dtype: PatternType = "float32"

    def __post_init__(self) -> None:
        if self.dtype not in PATTERN_TYPES:
            raise RetrievalError(f"Patterns cannot be of type {self.dtype!r}; use one of {', '.join(PATTERN_TYPES)}.")
        values, offsets, scales = self.values, self.offsets, self.scales
        if values.ndim != 2 or values.dtype != np.dtype(self.dtype) or not values.flags.c_contiguous:
            raise RetrievalError(
                f"Patterns must be a contiguous matrix of {self.dtype}, not {values.dtype} of shape {values.shape}."
            )
        # A set is a whole-passage pattern and at least one window; int8 patterns have a scale each.
        sets = offsets.dtype == np.int64 and offsets.ndim == 1 and len(offsets) > 0 and offsets[0] == 0
        sets = sets and offsets[-1] == len(values) and np.diff(offsets).min(initial=2) >= 2
        scaled = scales is None if self.dtype == "float32" else scales is not None and scales.shape == (len(values),)
        if not (sets and scaled):
            raise RetrievalError(f"The patterns do not fit together: {len(values)} rows, {len(offsets)} offsets.")

    @property
    def n(self) -> int:
        """Number of sets."""
        return len(self.offsets) - 1

    @property
    def d(self) -> int:
        """Length of a pattern."""
        return int(self.values.shape[1])

    def rows(self, start: int, stop: int) -> Vectors:
        """Patterns start to stop as float32, (stop - start, d)."""
        return self.take(slice(start, stop))

    def take(self, rows: Rows | slice) -> Vectors:
        """The patterns in these rows as float32, (len(rows), d)."""
        values: Vectors = self.values[rows]
        return values if self.scales is None else values.astype(np.float32) * self.scales[rows, None]

    def select(self, sets: Rows) -> Patterns:
        """A copy of some sets, in the given order."""
        rows, offsets = rows_of(self.offsets, sets)
        return Patterns(self.values[rows], offsets, None if self.scales is None else self.scales[rows], self.dtype)

    def products(self, start: int, stop: int, queries: npt.NDArray[Any]) -> Vectors:
        """Products of queries with patterns `start` to `stop`, (stop - start, q); for int8, in units of the queries' steps."""
        values, scales = self.values[start:stop], self.scales
        products: Vectors = np.empty((stop - start, len(queries)), dtype=np.float32)
        if scales is None:
            return dot(values, queries, products)
        exact = dot(values, queries, products if len(queries) == 1 else np.empty(products.shape, dtype=np.int32))
        np.multiply(exact, scales[start:stop, None], out=products, casting="unsafe")
        return products

    def exact(self, rows: Rows, state: Vectors) -> npt.NDArray[np.float64]:
        """Exact products of a query state with the patterns in these rows, (len(rows),)."""
        # Row by row: in a matrix product the last bits depend on the place of a row.
        products = np.einsum("nd,d->n", self.values[rows].astype(np.float64), state.astype(np.float64))
        return np.asarray(products if self.scales is None else products * self.scales[rows])

    @cached_property
    def reach(self) -> Vectors:
        """|y_0| of every set and the length of its longest window, (2, n); computed once, in blocks."""
        lengths = np.empty(len(self.values), dtype=np.float32)
        for start in range(0, len(lengths), _ROWS):
            block = self.rows(start, start + _ROWS)
            lengths[start : start + len(block)] = np.sqrt(np.einsum("ij,ij->i", block, block))
        firsts = self.offsets[:-1]
        whole = lengths[firsts]
        lengths[firsts] = 0
        return np.stack([whole, np.maximum.reduceat(lengths, firsts) if self.n else whole])


def rows_of(offsets: Rows, sets: Rows) -> tuple[Rows, Rows]:
    """The rows of some sets, one set after another, and the offsets of the sets in these rows."""
    sizes = np.diff(offsets)[sets]
    chosen = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes, dtype=np.int64)])
    return np.repeat(offsets[sets] - chosen[:-1], sizes) + np.arange(chosen[-1]), chosen


def encode_patterns(vectors: Vectors, dtype: PatternType) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32] | None]:
    """Vectors (N, d) as stored values, and the scales (N,) of int8 rows; None for float32.

    A scale is the largest absolute entry of its row over 127. InputError for another type, RetrievalError if the vectors are
    not a matrix of finite numbers.

    Example:
        >>> values, scales = encode_patterns(np.array([[0.5, -1.0]], dtype=np.float32), "int8")
        >>> values.tolist(), scales.round(4).tolist()
        ([[64, -127]], [0.007899999618530273])
    """
    if dtype not in PATTERN_TYPES:
        raise InputError(f"Patterns cannot be stored as {dtype!r}; use one of {', '.join(PATTERN_TYPES)}.")
    vectors = np.ascontiguousarray(vectors, dtype=np.float32)
    if vectors.ndim != 2 or not np.isfinite(vectors).all():
        raise RetrievalError(
            f"Patterns must be a matrix of finite numbers; these have shape {vectors.shape}, or hold NaN or infinity."
        )
    if dtype == "float32":
        return vectors, None
    largest = np.abs(vectors).max(axis=1, initial=0.0)
    scales = (largest / _LARGEST_INT8).astype(np.float32)
    scales[scales == 0] = 1.0
    return np.clip(np.rint(vectors / scales[:, None]), -_LARGEST_INT8, _LARGEST_INT8).astype(np.int8), scales


def dot(values: npt.NDArray[Any], queries: npt.NDArray[Any], out: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Products of rows (m, d) with queries (q, d) into `out` (m, q), in this thread alone.

    float32 inputs give float32. int8 inputs give int32 or, with one query only, float32, which rounds above 2^24.
    """
    if len(queries) == 1:
        # With one query, most of the work is reading the patterns, and this order of arguments reads them faster.
        numkong.cdist(queries, values, "dot", out=out.reshape(1, -1))
    else:
        numkong.cdist(values, queries, "dot", out=out)
    return out


def rounded(queries: Vectors) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Queries (q, d) as int8 rows (q, d) with a step each (q,), and the lengths of the rounding errors (q,).

    Query i is about step i times row i.

    Example:
        >>> rows, steps, errors = rounded(np.array([[1.27, 0.004]], dtype=np.float32))
        >>> errors.round(3).tolist(), rows.tolist()
        ([0.004], [[127, 0]])
    """
    exact = queries.astype(np.float64)
    largest = np.abs(exact).max(axis=1, initial=0.0)
    steps = np.where(largest > 0, largest / _LARGEST_INT8, 1.0)
    rows = np.clip(np.rint(exact / steps[:, None]), -_LARGEST_INT8, _LARGEST_INT8)
    return rows.astype(np.int8), steps, np.linalg.norm(exact - steps[:, None] * rows, axis=1)
