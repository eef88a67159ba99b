"""Products of all patterns with queries; queries for int8 patterns are rounded to int8."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numkong
import numpy as np
import numpy.typing as npt

from langgraph_convcoa.retrieval.encoders.base import Vectors

_LARGEST = 127


def dot(values: npt.NDArray[Any], queries: npt.NDArray[Any], out: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Products of rows (m, d) with queries (q, d) into `out` (m, q), in this thread alone.

    float32 inputs give float32. int8 inputs give int32 or, with one query only, float32, which rounds above 2^24.
    """
    if len(queries) == 1:
        # With one query most of the work is reading the patterns, and this order of arguments reads them faster.
        numkong.cdist(queries, values, "dot", out=out.reshape(1, -1))
    else:
        numkong.cdist(values, queries, "dot", out=out)
    return out


@dataclass(frozen=True, eq=False)
class IntegerQueries:
    """Queries rounded to int8: query i is about steps[i] * rows[i].

    Example:
        >>> queries = IntegerQueries.of(np.array([[1.27, 0.004]], dtype=np.float32))
        >>> queries.errors.round(3).tolist(), queries.rows.tolist()
        ([0.004], [[127, 0]])
    """

    rows: npt.NDArray[np.int8]  # (q, d)
    steps: npt.NDArray[np.float64]  # (q,)
    errors: npt.NDArray[np.float64]  # Length of the rounding error, (q,).

    @classmethod
    def of(cls, queries: Vectors) -> IntegerQueries:
        """Round queries (q, d)."""
        exact = queries.astype(np.float64)
        largest = np.abs(exact).max(axis=1, initial=0.0)
        steps = np.where(largest > 0, largest / _LARGEST, 1.0)
        rows = np.clip(np.rint(exact / steps[:, None]), -_LARGEST, _LARGEST)
        return cls(rows.astype(np.int8), steps, np.linalg.norm(exact - steps[:, None] * rows, axis=1))
