"""Measures of a ranking against the gold ids. Relevance is binary; an id counts once, at its first place.

Without a gold id all of them raise ValueError, except `reciprocal_rank`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence


def reciprocal_rank(ranking: Sequence[str], gold: Collection[str]) -> float:
    """1 / rank of the first gold id, 0 if no gold id is in the ranking.

    Example:
        >>> reciprocal_rank(["a", "b", "c"], {"b", "c"})
        0.5
    """
    return next((1 / rank for rank, identity in enumerate(ranking, 1) if identity in gold), 0.0)


def recall(ranking: Sequence[str], gold: Collection[str], k: int) -> float:
    """Gold ids among the first k, as a share of all gold ids.

    Example:
        >>> recall(["a", "b", "c"], {"b", "d"}, k=2)
        0.5
    """
    wanted = set(gold)
    if not wanted:
        raise ValueError("Recall needs at least one gold id.")
    return len(wanted & set(ranking[:k])) / len(wanted)


def found_all(ranking: Sequence[str], gold: Collection[str], k: int) -> float:
    """1 if all gold ids are among the first k, else 0: whether a question that needs all of them could be answered.

    Example:
        >>> found_all(["a", "b", "c"], {"a", "c"}, k=2), found_all(["a", "b", "c"], {"a", "c"}, k=3)
        (0.0, 1.0)
    """
    return float(recall(ranking, gold, k) == 1)


def ndcg(ranking: Sequence[str], gold: Collection[str], k: int) -> float:
    """Normalised discounted cumulative gain of the first k (Järvelin & Kekäläinen 2002), gain 1 and discount log2(rank + 1).

    Example:
        >>> round(ndcg(["a", "b"], {"b"}, k=10), 4)
        0.6309
    """
    wanted = set(gold)
    if not wanted:
        raise ValueError("nDCG needs at least one gold id.")
    gain, seen = 0.0, set()
    for rank, identity in enumerate(ranking[:k], 1):
        if identity in wanted and identity not in seen:
            gain += 1 / math.log2(rank + 1)
            seen.add(identity)
    return gain / sum(1 / math.log2(rank + 1) for rank in range(1, min(len(wanted), k) + 1))
