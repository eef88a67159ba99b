"""Metadata and filters of every kind, for the tests of engines: each is compared with `predicate`."""

from __future__ import annotations

import math
from datetime import date
from typing import Any

from hypothesis import strategies as st
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.filters import predicate

TEXTS = st.text("ab'\"\\%_;é{}", max_size=3)
_SCALARS = st.none() | st.booleans() | st.integers(-1, 2) | st.sampled_from([0.5, 1.0, 2.0, 1e30, -1e-7, -0.0]) | TEXTS
_VALUES = _SCALARS | st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2), max_leaves=4
)
_NAMES = st.sampled_from(["a", "b", "o'k", '"q"', "%s", "{}", '"] or true', "a.b"])
METADATA = st.lists(st.dictionaries(_NAMES, _VALUES, max_size=4), min_size=1, max_size=6)


def _operators(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    ordered = st.integers(-1, 2) | st.sampled_from([0.5, math.inf, -math.inf]) | TEXTS
    one = st.one_of(
        st.tuples(st.sampled_from(["$eq", "$ne", "$contains"]), values),
        st.tuples(st.sampled_from(["$in", "$nin"]), st.lists(values, max_size=3)),
        st.tuples(st.sampled_from(["$gt", "$gte", "$lt", "$lte"]), ordered),
        st.tuples(st.just("$between"), st.tuples(ordered, ordered)),
        st.tuples(st.just("$exists"), st.booleans()),
    )
    plain = st.lists(one, min_size=1, max_size=2).map(dict)
    return plain | plain.map(lambda inner: {"$not": inner})


FILTERS = st.recursive(
    st.dictionaries(_NAMES, _VALUES | st.tuples(_SCALARS, _SCALARS) | _operators(_VALUES), max_size=2),
    lambda inner: (
        st.tuples(st.sampled_from(["$and", "$or"]), st.lists(inner, min_size=1, max_size=2)).map(lambda pair: dict([pair]))
        | inner.map(lambda part: {"$not": part})
    ),
    max_leaves=4,
)
# A filter, metadata, and whether it holds; None if the values have no order.
BY_RULES_OF_PYTHON: list[tuple[dict[str, Any], dict[str, Any], bool | None]] = [
    ({"year": {"$gt": 2000}}, {"year": "old"}, None),
    ({"$not": {"year": {"$gt": 2000}}}, {"year": "old"}, None),
    ({"$not": {"year": {"$gt": 2000}}}, {"year": True}, None),
    ({"$or": [{"year": {"$gt": 2000}}, {"lang": "en"}]}, {"year": "old", "lang": "en"}, True),
    ({"ok": 1}, {"ok": True}, True),
    ({"tags": [[1, 0]]}, {"tags": [True, False]}, True),
    ({"x": math.nan}, {"x": 1}, False),
    ({"x": {"$ne": math.nan}}, {"x": 1}, True),
    ({"x": {"$eq": (1, 2)}}, {"x": [1, 2]}, False),
    ({"x": 10**30}, {"x": 10**30}, True),
    ({"x": {"$gt": 2**60}}, {"x": 2**60 + 1}, True),
    ({"x": {"$gt": -(2**60) - 1}}, {"x": -(2**60)}, True),
    ({"x": {"$lt": 10**308}}, {"x": 1e307}, True),
    ({"x": {"$gte": 0}}, {"x": -0.0}, True),
    ({"x": {"$contains": ""}}, {"x": ""}, True),
    ({"x": {"$contains": "\x16"}}, {"x": "ab"}, False),
    ({"$not": {"x": {"$contains": "b"}}}, {}, True),
    ({"x": {"$lt": "b"}}, {"x": "B"}, True),
    ({"x": {"$gt": "z"}}, {"x": "é"}, True),
    ({}, {}, True),
    ({"x": {"$in": []}}, {"x": 1}, False),
]

_DEEP: list[Any] = []
for _ in range(100_000):
    _DEEP = [_DEEP]
# Filters of no engine, and what is said of them.
REFUSED: list[tuple[Any, str]] = [
    (lambda passage: True, "must be a mapping"),
    ({"$and": [{"a": 1}, lambda passage: True]}, "must be a mapping"),
    ({"a": {"$gt": date(2020, 1, 1)}}, "no dates"),
    ({"a\0": 1}, "NUL"),
    ({"a": "b\0"}, "NUL"),
    ({"a": {"$contains": "\ud800"}}, "half a character"),
    ({"a": {"$gte": None}}, "takes a number"),
    ({"$where": "1"}, "not one of filters"),
    ({"a": {"$eq": _DEEP}}, "too deep"),
]


def expected(condition: Any, data: dict[str, Any]) -> bool | None:
    """Whether a filter holds by `predicate`; None where values have no order with each other."""
    try:
        return predicate(condition)(Document("", metadata=data))
    except InputError:
        return None
