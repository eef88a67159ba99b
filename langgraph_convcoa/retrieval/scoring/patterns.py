"""Stored patterns: multi-vector passages one after another, as float32 or int8."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.encoders.base import Vectors

PatternType: TypeAlias = Literal["float32", "int8"]
"""The type of stored patterns. int8 rounds once; the stored patterns are searched exactly."""

PATTERN_TYPES: tuple[PatternType, ...] = get_args(PatternType)

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

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the cached `reach`.
        return type(self), (self.values, self.offsets, self.scales, self.dtype)

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
        return decode_patterns(self.values[start:stop], None if self.scales is None else self.scales[start:stop])

    def take(self, rows: npt.NDArray[np.int64]) -> Vectors:
        """The patterns with the given numbers as float32, (len(rows), d)."""
        return decode_patterns(self.values[rows], None if self.scales is None else self.scales[rows])

    def wholes(self, sets: npt.NDArray[np.int64]) -> Vectors:
        """y_0 of the given sets as float32, (len(sets), d)."""
        return self.take(self.offsets[sets])

    def select(self, sets: npt.NDArray[np.int64]) -> Patterns:
        """A copy of some sets, in the given order."""
        starts, sizes = self.offsets[sets], self.offsets[sets + 1] - self.offsets[sets]
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        rows = np.repeat(starts - offsets[:-1], sizes) + np.arange(offsets[-1])
        return Patterns(self.values[rows], offsets, None if self.scales is None else self.scales[rows], self.dtype)

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


def decode_patterns(values: npt.NDArray[Any], scales: npt.NDArray[np.float32] | None) -> Vectors:
    """Stored values as float32 patterns."""
    decoded: Vectors = values if scales is None else values.astype(np.float32) * scales[:, None]
    return decoded
