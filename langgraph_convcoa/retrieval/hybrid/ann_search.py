"""A search of what a first stage names: few memory sets, each scored exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.scoring.patterns import Patterns
from langgraph_convcoa.retrieval.scoring.topk import Ranking, search

Sets: TypeAlias = npt.NDArray[np.int64]

# Up to so many times the candidates, scoring all that is allowed is as fast as asking the graph.
_FEW = 10


def needs_graph(pool: int, count: int) -> bool:
    """Whether a first stage that names `count` of so many memory sets saves time over a search of all of them."""
    return pool > _FEW * count


def search_candidates(
    patterns: Patterns,
    states: Vectors,
    candidates: Callable[[Vectors, int], list[Sets]],
    *,
    k: int,
    count: int = 200,
    allowed: npt.NDArray[np.bool_] | None = None,
    extra: Vectors | None = None,
    check: Callable[[Sets | None], object] | None = None,
    **settings: Any,
) -> list[Ranking]:
    """The k best of what a first stage names, each scored exactly; certified only where nothing was left out.

    As many come back as from a search of everything: where a filter leaves few, or the first stage names too few that are
    allowed, all that is allowed is searched.

    Args:
        patterns: n memory sets.
        states: Query states x, (q, d).
        candidates: From states and a count to the numbers of about that many memory sets for each state.
        k: How many.
        count: How many candidates, at least k.
        allowed: (n,), True for the sets that may be returned. While too few candidates are allowed, more are asked for.
        extra: (q, n), a further term of each score; the sets for which it is largest are candidates too.
        check: Called with the numbers of the sets that are about to be read, None for all.
        **settings: What else `search` takes.

    Returns:
        One ranking a state, as from `search`.

    Raises:
        InputError, RetrievalError: As from `search` and from the first stage.
    """
    count = max(count, k)
    pool = patterns.n if allowed is None else int(allowed.sum())

    def ranked(chosen: Sets | None, rows: slice) -> list[Ranking]:
        added = None if extra is None else extra[rows]
        if check is not None:
            check(chosen)
        if chosen is None:
            return search(patterns, states[rows], k=k, allowed=allowed, extra=added, **settings)
        added = None if added is None else np.ascontiguousarray(added[:, chosen])
        found = search(patterns.select(chosen), states[rows], k=k, extra=added, **settings)
        whole = len(chosen) == pool
        return [replace(r, indices=chosen[r.indices], certified=r.certified and whole) for r in found]

    if not needs_graph(pool, count):
        return ranked(None if allowed is None else np.flatnonzero(allowed), slice(None))
    named = candidates(states, count)
    rankings = []
    for row in range(len(states)):
        chosen = _enough(candidates, states[row : row + 1], named[row], allowed, k, count, patterns.n)
        if chosen is not None and extra is not None:
            chosen = np.concatenate([chosen, _largest(extra[row], allowed, count)])
        rankings += ranked(None if chosen is None else np.unique(chosen), slice(row, row + 1))
    return rankings


def _enough(
    candidates: Callable[[Vectors, int], list[Sets]],
    state: Vectors,
    named: Sets,
    allowed: npt.NDArray[np.bool_] | None,
    k: int,
    count: int,
    n: int,
) -> Sets | None:
    """The named sets that are allowed; more are asked for while they are few, None where that finds too few of the n."""
    # Several windows of one set may take the places of others.
    wanted = k if allowed is None else max(k, count // 4)
    while True:
        kept = named if allowed is None else named[allowed[named]]
        if len(kept) >= wanted:
            return kept
        count *= 4
        if count >= n:
            return None
        named = candidates(state, count)[0]


def _largest(extra: Vectors, allowed: npt.NDArray[np.bool_] | None, count: int) -> Sets:
    """The allowed sets with the largest further terms above 0."""
    terms = extra if allowed is None else np.where(allowed, extra, 0)
    best = np.argpartition(-terms, count)[:count]
    return best[terms[best] > 0]
