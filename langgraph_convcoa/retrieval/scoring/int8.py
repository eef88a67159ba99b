"""Products of int8 patterns in integer arithmetic: coarse ones over all rows, and exact ones for few."""

from __future__ import annotations

from dataclasses import dataclass

import numkong
import numpy as np
import numpy.typing as npt

from langgraph_convcoa.retrieval.encoders.base import Vectors

_LARGEST = 127
# Rounding leaves at most half a step, which 254 finer steps of the next digit span from -127 to 127.
_FINER = 2 * _LARGEST
# The third digit is 254 squared finer than the first, which is past the precision of float32.
_DIGITS = 3


@dataclass(frozen=True, eq=False)
class IntegerQueries:
    """Queries as int8 digits, ready for products with int8 patterns.

    x is step * (h + l / 254 + r / 254^2) with int8 vectors h, l and r; with the first digit alone it is off by `errors`.
    """

    steps: npt.NDArray[np.float64]  # The worth of one unit of the first digit, (q,).
    errors: npt.NDArray[np.float64]  # |x - x^| where x^ is what the digits say, (q,).
    count: int  # Number of queries q.
    digits: int
    _rows: npt.NDArray[np.int8]

    @classmethod
    def coarse(cls, queries: Vectors) -> IntegerQueries:
        """One digit a query: fast, and off by `errors`.

        Example:
            >>> queries = IntegerQueries.coarse(np.array([[1.27, 0.004]], dtype=np.float32))
            >>> queries.errors.round(3).tolist(), queries.products(np.array([[1, 1]], dtype=np.int8)).tolist()
            ([0.004], [[127]])
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
        rows = np.concatenate(parts)
        return cls(steps, errors, len(queries), digits, rows)

    def products(
        self, values: npt.NDArray[np.int8], out: npt.NDArray[np.int32 | np.float32] | None = None
    ) -> npt.NDArray[np.int32 | np.float32]:
        """Products of rows (m, d) with every digit of every query, (m, digits * q), the first digits first: whole numbers.

        `out` is int32, or for one query of one digit float32, which is then faster and rounds above 2^24; new int32 when None.
        """
        found = np.empty((len(values), len(self._rows)), dtype=np.int32) if out is None else out
        if len(self._rows) == 1:
            # For one query reading the patterns is all the work, and this reads them faster.
            numkong.cdist(self._rows, values, "dot", out=found.reshape(1, -1))
        else:
            numkong.cdist(values, self._rows, "dot", out=found)
        return found

    def exact_products(self, values: npt.NDArray[np.int8], scales: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Products of the queries with the patterns `scales * values`, (m, q)."""
        digits = self.products(values).reshape(len(values), self.digits, self.count)
        exact = np.zeros((len(values), self.count))
        for place in reversed(range(self.digits)):
            exact = exact / _FINER + digits[:, place]
        return exact * self.steps * scales[:, None]
