"""What goes between a retriever and its shards: numbers, texts, lists and bytes, of which nothing can be run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.filters import Filter
from langgraph_convcoa.retrieval.hybrid.bm25 import Statistics
from langgraph_convcoa.retrieval.scoring.bounds import Queries

Message: TypeAlias = dict[str, Any]
"""Values that JSON has, and bytes."""

_SEQUENCES: dict[str, type[Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset}


def packed(array: npt.NDArray[Any] | None) -> list[Any] | None:
    """An array as its type, its shape and its bytes.

    Example:
        >>> unpacked(packed(np.eye(2, dtype=np.float32))).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    return None if array is None else [array.dtype.str, list(array.shape), np.ascontiguousarray(array).tobytes()]


def unpacked(parts: list[Any] | None) -> Any:
    """The array of `packed`, which may only be read."""
    return None if parts is None else np.frombuffer(parts[2], dtype=np.dtype(parts[0])).reshape(parts[1])


def packed_queries(queries: Queries) -> list[Any]:
    """Queries as arrays."""
    return [packed(queries.states), *([] if not queries.trained else [packed(queries.readout), packed(queries.association)])]


def unpacked_queries(parts: list[Any]) -> Queries:
    """The queries of `packed_queries`."""
    states, *trained = map(unpacked, parts)
    return Queries(states, *trained) if trained else Queries(states, states, None)


def united(statistics: list[Statistics]) -> Statistics:
    """The statistics of all passages of shards.

    Example:
        >>> united([Statistics(3, 2, 9, {"a": 1}), Statistics(1, 1, 4, {"a": 1, "b": 1})])
        Statistics(passages=4, filled=3, tokens=13, found={'a': 2, 'b': 1})
    """
    found: dict[str, int] = {}
    for one in statistics:
        for word, count in one.found.items():
            found[word] = found.get(word, 0) + count
    passages, filled, tokens = (sum(column) for column in zip(*(one[:3] for one in statistics), strict=True))
    return Statistics(passages, filled, tokens, found)


def packed_filter(condition: Filter | None) -> Any:
    """A filter as JSON values: what JSON has not is [kind, value].

    InputError for a function, and for a value of another kind than metadata may have: it stays in this process.

    Example:
        >>> unpacked_filter(packed_filter({"year": {"$in": (2016, 2020)}, "day": {"$lt": date(2026, 1, 1)}}))
        {'year': {'$in': (2016, 2020)}, 'day': {'$lt': datetime.date(2026, 1, 1)}}
    """
    if condition is None:
        return None
    if isinstance(condition, Mapping):
        return ["mapping", [[_name(name), packed_filter_value(value)] for name, value in condition.items()]]
    raise InputError("A filter that is a function cannot be sent to shards; write it as a mapping of metadata.")


def packed_filter_value(value: Any) -> Any:
    """A value in a filter, as `packed_filter`."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return packed_filter(value)
    if isinstance(value, datetime | date):
        return ["datetime" if isinstance(value, datetime) else "date", value.isoformat()]
    if isinstance(value, list):
        return ["list", [packed_filter_value(part) for part in value]]
    for kind, known in _SEQUENCES.items():
        if isinstance(value, known):
            return [kind, [packed_filter_value(part) for part in value]]
    raise InputError(f"A filter with {value!r:.60} ({type(value).__name__}) cannot be sent to shards; use metadata's values.")


def unpacked_filter(parts: Any) -> Any:
    """The filter of `packed_filter`."""
    if not isinstance(parts, list):
        return parts
    kind, value = parts
    if kind == "mapping":
        return {name: unpacked_filter(part) for name, part in value}
    if kind in ("date", "datetime"):
        return (datetime if kind == "datetime" else date).fromisoformat(value)
    entries = [unpacked_filter(part) for part in value]
    return entries if kind == "list" else _SEQUENCES[kind](entries)


def error_message(error: Exception) -> Message:
    """An error as an answer."""
    kind = type(error).__name__ if isinstance(error, InputError | RetrievalError) else ""
    return {"error": kind, "reason": str(error) if kind else f"{type(error).__name__}: {error}"[:300]}


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise InputError(f"A filter names fields of the metadata by text, not by {name!r:.60}.")
    return name
