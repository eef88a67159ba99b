"""Products of patterns with queries: coarse ones over all rows, and exact ones of int8 patterns for few."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numkong
import numpy as np
import numpy.typing as npt

from langgraph_convcoa.retrieval.encoders.base import Vectors

_LARGEST = 127
# Rounding leaves at most half a step, which is 127 steps of the next digit.
_FINER = 2 * _LARGEST
# The third digit is 254 squared finer than the first, which is past the precision of float32.
_DIGITS = 3


def dot(values: npt.NDArray[Any], queries: npt.NDArray[Any], out: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Products of rows (m, d) with queries (q, d) into `out` (m, q), in this thread alone.

    float32 gives float32. int8 gives int32; for one query also float32, which rounds above 2^24.
    """
    if len(queries) == 1:
        # For one query reading the patterns is all the work, and this reads them faster.
        numkong.cdist(queries, values, "dot", out=out.reshape(1, -1))
    else:
        numkong.cdist(values, queries, "dot", out=out)
    return out


@dataclass(frozen=True, eq=False)
class IntegerQueries:
    """Queries as int8 digits, ready for products with int8 patterns.

    x is step * (h + l / 254 + r / 254^2) with int8 vectors h, l and r; with the first digit alone it is off by `errors`.
    """

    steps: npt.NDArray[np.float64]  # The worth of one unit of the first digit, (q,).
    errors: npt.NDArray[np.float64]  # |x - x^| where x^ is what the digits say, (q,).
    rows: npt.NDArray[np.int8]  # (digits * q, d), the first digits first.

    @classmethod
    def coarse(cls, queries: Vectors) -> IntegerQueries:
        """One digit a query: fast, and off by `errors`.

        Example:
            >>> queries = IntegerQueries.coarse(np.array([[1.27, 0.004]], dtype=np.float32))
            >>> queries.errors.round(3).tolist(), queries.rows.tolist()
            ([0.004], [[127, 0]])
        """
        return cls._split(queries, 1)

    @classmethod
    def exact(cls, queries: Vectors) -> IntegerQueries:
        """Three digits a query, as fine as float32."""
        return cls._split(queries, _DIGITS)

    @classmethod
    def _split(cls, queries: Vectors, digits: int) -> IntegerQueries:
        rest = queries.astype(np.float64)
        largest = np.abs(rest).max(axis=1, initial=0.0)
        steps = np.where(largest > 0, largest / _LARGEST, 1.0)
        rest = rest / steps[:, None]
        parts = []
        for _ in range(digits):
            part = np.clip(np.rint(rest), -_LARGEST, _LARGEST)
            parts.append(part.astype(np.int8))
            rest = (rest - part) * _FINER
        errors = steps * np.linalg.norm(rest, axis=1) / _FINER**digits
        return cls(steps, errors, np.concatenate(parts))

    def exact_products(self, values: npt.NDArray[np.int8], scales: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Products of the queries with the patterns `scales * values`, (m, q)."""
        found = dot(values, self.rows, np.empty((len(values), len(self.rows)), dtype=np.int32))
        digits = found.reshape(len(values), -1, len(self.steps))
        exact = np.zeros((len(values), len(self.steps)))
        for place in reversed(range(digits.shape[1])):
            exact = exact / _FINER + digits[:, place]
        return exact * self.steps * scales[:, None]
