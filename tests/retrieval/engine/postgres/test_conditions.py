import json
import math
from contextlib import suppress
from datetime import date
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.engine.postgres.conditions import condition_of
from langgraph_convcoa.retrieval.filters import predicate

_TEXTS = st.text("ab'\"\\%;é{}", max_size=3)
_SCALARS = st.none() | st.booleans() | st.integers(-1, 2) | st.sampled_from([0.5, 1.0, 2.0, 1e30, -1e-7]) | _TEXTS
_VALUES = _SCALARS | st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_TEXTS, inner, max_size=2), max_leaves=4
)
_NAMES = st.sampled_from(["a", "b", "o'k", '"q"', "%s", "{}", "a.b"])
_METADATA = st.lists(st.dictionaries(_NAMES, _VALUES, max_size=4), min_size=1, max_size=6)


def _operators(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    ordered = st.integers(-1, 2) | st.sampled_from([0.5, math.inf, -math.inf]) | _TEXTS
    one = st.one_of(
        st.tuples(st.sampled_from(["$eq", "$ne", "$contains"]), values),
        st.tuples(st.sampled_from(["$in", "$nin"]), st.lists(values, max_size=3)),
        st.tuples(st.sampled_from(["$gt", "$gte", "$lt", "$lte"]), ordered),
        st.tuples(st.just("$between"), st.tuples(ordered, ordered)),
        st.tuples(st.just("$exists"), st.booleans()),
    )
    plain = st.lists(one, min_size=1, max_size=2).map(dict)
    return plain | plain.map(lambda inner: {"$not": inner})


_FIELDS = st.dictionaries(_NAMES, _VALUES | st.tuples(_SCALARS, _SCALARS) | _operators(_VALUES), max_size=2)
_FILTERS = st.recursive(
    _FIELDS,
    lambda inner: (
        st.tuples(st.sampled_from(["$and", "$or"]), st.lists(inner, min_size=1, max_size=2)).map(lambda pair: dict([pair]))
        | inner.map(lambda part: {"$not": part})
    ),
    max_leaves=4,
)


def asked(connection: Any, condition: Any, metadata: list[dict[str, Any]]) -> list[bool | None]:
    sql, values = condition_of(condition) or ("TRUE", [])
    rows = connection.execute(
        f"SELECT {sql} FROM unnest(%s::jsonb[]) WITH ORDINALITY AS of (metadata, place) ORDER BY place",
        [*values, [json.dumps(data) for data in metadata]],
    ).fetchall()
    return [row[0] for row in rows]


def met(condition: dict[str, Any], data: dict[str, Any]) -> bool | None:
    """A filter in SQL's logic: True, False, or None where values have no order and the rest does not decide."""
    parts: list[bool | None] = []
    for name, wanted in condition.items():
        if name in ("$and", "$or"):
            found = [met(part, data) for part in wanted]
            parts.append(all_of(found) if name == "$and" else negated(all_of([negated(part) for part in found])))
        elif name == "$not":
            parts.append(negated(met(wanted, data)))
        elif isinstance(wanted, dict) and any(key.startswith("$") for key in wanted):
            parts += [compared(name, word, value, data) for word, value in wanted.items()]
        else:
            parts.append(predicate({name: wanted})(Document("", metadata=data)))
    return all_of(parts)


def compared(name: str, word: str, value: Any, data: dict[str, Any]) -> bool | None:
    if word == "$not":
        return negated(met({name: value}, data))
    if word == "$between":
        return all_of([compared(name, "$gte", value[0], data), compared(name, "$lte", value[1], data)])
    try:
        return predicate({name: {word: value}})(Document("", metadata=data))
    except InputError:
        return None


def all_of(parts: list[bool | None]) -> bool | None:
    return False if False in parts else None if None in parts else True


def negated(part: bool | None) -> bool | None:
    return None if part is None else not part


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(metadata=_METADATA, condition=_FILTERS)
def test_a_filter_means_the_same_in_the_engine_as_here(connection, metadata, condition):
    try:
        expected = predicate(condition)
        found = asked(connection, condition, metadata)
    except InputError as error:
        pytest.fail(f"{condition}: {error}")
    for data, answer in zip(metadata, found, strict=True):
        assert answer is met(condition, data), (condition, data)
        # What has no order is an error there, unless the rest of the filter has decided before.
        with suppress(InputError):
            assert bool(answer) is expected(Document("", metadata=data)) or answer is None, (condition, data)


@pytest.mark.parametrize(
    ("condition", "metadata", "expected"),
    [
        ({"year": {"$gt": 2000}}, {"year": "old"}, None),
        ({"$not": {"year": {"$gt": 2000}}}, {"year": "old"}, None),
        ({"$or": [{"year": {"$gt": 2000}}, {"lang": "en"}]}, {"year": "old", "lang": "en"}, True),
        ({"ok": 1}, {"ok": True}, True),
        ({"tags": [[1, 0]]}, {"tags": [True, False]}, True),
        ({"x": math.nan}, {"x": 1}, False),
        ({"x": {"$ne": math.nan}}, {"x": 1}, True),
        ({"x": {"$eq": (1, 2)}}, {"x": [1, 2]}, False),
        ({"x": 10**30}, {"x": 10**30}, True),
        ({"x": {"$contains": ""}}, {"x": ""}, True),
        ({"x": {"$lt": "b"}}, {"x": "B"}, True),
        ({"x": {"$gt": "z"}}, {"x": "é"}, True),
    ],
)
def test_values_that_are_compared_by_rules_of_python(connection, condition, metadata, expected):
    assert asked(connection, condition, [metadata]) == [expected]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (lambda passage: True, "must be a mapping"),
        ({"$and": [{"a": 1}, lambda passage: True]}, "must be a mapping"),
        ({"a": {"$gt": date(2020, 1, 1)}}, "no dates"),
        ({"a\0": 1}, "NUL"),
        ({"a": "b\0"}, "NUL"),
        ({"a": {"$contains": "\ud800"}}, "half a character"),
        ({"a": {"$eq": [0, 1] * 8}}, "too many 0, 1"),
        ({"a": {"$gte": None}}, "takes a number"),
        ({"$where": "1"}, "not one of filters"),
    ],
)
def test_what_cannot_be_asked_is_said(condition, message):
    with pytest.raises(InputError, match=message):
        condition_of(condition)


def test_a_value_nested_too_deep_is_said():
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(InputError, match="too deep"):
        condition_of({"a": {"$eq": value}})


def test_no_value_stands_in_the_sql():
    condition = condition_of({"'; DROP TABLE x; --": "'; DROP TABLE y; --", "n": {"$in": ["' OR 1=1"]}})
    assert condition is not None
    assert "DROP" not in condition.sql
    assert "OR 1" not in condition.sql
