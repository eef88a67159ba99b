"""Made-up memories of any size, for measuring time and recall."""

from __future__ import annotations

import numpy as np

from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.scoring.patterns import Patterns

# y_0 and 4 to 12 windows, so that a set has about 8.
_SMALLEST, _LARGEST = 5, 13
_TOPICS = 500
_WINDOW_NOISE = 0.8
_ROWS = 65_536


def made_up_memory(size: int, dimension: int, queries: int, seed: int) -> tuple[Patterns, Vectors]:
    """About `size` unit patterns in sets, and unit queries (q, d), each near a passage.

    Vectors of real text lie in clusters, and so do these; on vectors of evenly spread directions the recall of an approximate
    search would say nothing. Of 500 random directions, the topics, each passage takes one: y_0 is that plus a random unit
    vector, normalised (cosine about 0.5 between two passages of a topic, 0 else). A window is y_0 plus 0.8 times a random unit
    vector, normalised (cosine about 0.78 to it), and so is a query, of a passage taken at random.

    Example:
        >>> patterns, queries = made_up_memory(100, 16, 2, seed=0)
        >>> len(patterns.values), patterns.n, queries.shape
        (100, 11, (2, 16))
    """
    rng = np.random.default_rng(seed)
    sizes = rng.integers(_SMALLEST, _LARGEST + 1, size // _SMALLEST + 1)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    # The last set ends at the size asked for, or a set is left out where it would have too few.
    offsets = offsets[: max(2, int(np.searchsorted(offsets, size - 1)))]
    offsets[-1] = max(size, 2)
    n = len(offsets) - 1
    topics = _unit(rng, (_TOPICS, dimension))
    whole = _normalise(topics[rng.integers(0, _TOPICS, n)] + _unit(rng, (n, dimension)))
    owners = np.repeat(np.arange(n), np.diff(offsets))
    values = np.empty((len(owners), dimension), dtype=np.float32)
    for start in range(0, len(values), _ROWS):
        part = owners[start : start + _ROWS]
        values[start : start + _ROWS] = _normalise(whole[part] + _WINDOW_NOISE * _unit(rng, (len(part), dimension)))
    values[offsets[:-1]] = whole
    near = whole[rng.integers(0, n, queries)]
    return Patterns(values, offsets), _normalise(near + _WINDOW_NOISE * _unit(rng, (queries, dimension)))


def _unit(rng: np.random.Generator, shape: tuple[int, int]) -> Vectors:
    return _normalise(rng.standard_normal(shape, dtype=np.float32))


def _normalise(rows: Vectors) -> Vectors:
    unit: Vectors = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit
