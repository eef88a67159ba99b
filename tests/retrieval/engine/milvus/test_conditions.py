"""Filters as expressions of Milvus, played against what `predicate` says."""

from __future__ import annotations

import json
import math
import re
from datetime import date
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.engine.milvus.conditions import condition_of, facts_of, ordered_of
from langgraph_convcoa.retrieval.filters import predicate

_TEXTS = st.text("ab'\"\\%_é{}", max_size=3)
_SCALARS = st.none() | st.booleans() | st.integers(-1, 2) | st.sampled_from([0.5, 1.0, 2.0, 1e30, -1e-7, -0.0]) | _TEXTS
_VALUES = _SCALARS | st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_TEXTS, inner, max_size=2), max_leaves=4
)
_NAMES = st.sampled_from(["a", "b", "o'k", '"q"', "%s", '"] or true', "a.b"])
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
# The words of an expression; whatever else is in it are letters and digits between quotation marks.
_WORDS = re.compile(
    r'(?:array_contains(?:_any)?|facts|ordered|part|and|or|not|like|0|[()\[\], ]|>=?|<=?|"(?:\w*|t%\w*%)")*', re.ASCII
)


@pytest.fixture(scope="module")
def client(milvus: str) -> Any:
    from pymilvus import DataType, MilvusClient

    from langgraph_convcoa.retrieval.engine.milvus.connections import _settings

    client = MilvusClient(**_settings(milvus))
    schema = MilvusClient.create_schema(auto_id=False)
    schema.add_field("part", DataType.INT64, is_primary=True)
    schema.add_field("facts", DataType.ARRAY, element_type=DataType.VARCHAR, max_length=16, max_capacity=64)
    schema.add_field("ordered", DataType.JSON)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=2)
    indexes = MilvusClient.prepare_index_params()
    indexes.add_index("vector", index_type="FLAT", metric_type="IP")
    client.create_collection("conditions", schema=schema, index_params=indexes, consistency_level="Strong")
    yield client
    client.drop_collection("conditions")
    client.close()


def asked(client: Any, condition: Any, metadata: list[dict[str, Any]]) -> list[bool]:
    """Of which of these metadata a filter is true in the engine."""
    stored = [json.loads(json.dumps(data)) for data in metadata]
    rows = [
        {"part": number, "facts": facts_of(data), "ordered": ordered_of(data), "vector": [0.0, 1.0]}
        for number, data in enumerate(stored)
    ]
    client.delete("conditions", filter="part >= 0")
    client.insert("conditions", rows)
    expression = condition_of(condition)
    assert expression is not None
    assert _WORDS.fullmatch(expression), expression
    found = {row["part"] for row in client.query("conditions", filter=expression, output_fields=["part"])}
    return [number in found for number in range(len(rows))]


def expected(condition: Any, data: dict[str, Any]) -> bool | None:
    """None where values have no order with each other."""
    try:
        return predicate(condition)(Document("", metadata=data))
    except InputError:
        return None


def compare(client: Any, metadata: list[dict[str, Any]], condition: Any) -> None:
    for data, answer in zip(metadata, asked(client, condition, metadata), strict=True):
        wanted = expected(condition, data)
        if wanted is not None:
            assert answer is wanted, (condition, data)


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(metadata=_METADATA, condition=_FILTERS)
def test_a_filter_means_the_same_in_the_engine_as_here(client, metadata, condition):
    compare(client, metadata, condition)


@pytest.mark.slow
@settings(max_examples=400, suppress_health_check=list(HealthCheck))
@given(metadata=_METADATA, condition=_FILTERS)
def test_a_filter_means_the_same_in_the_engine_as_here_in_many_cases(client, metadata, condition):
    compare(client, metadata, condition)


def test_values_that_are_compared_by_rules_of_python(client):
    for condition, metadata, wanted in [
        ({"year": {"$gt": 2000}}, {"year": "old"}, False),
        ({"$not": {"year": {"$gt": 2000}}}, {"year": "old"}, False),
        ({"$not": {"year": {"$gt": 2000}}}, {"year": True}, False),
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
    ]:
        assert asked(client, condition, [metadata]) == [wanted], (condition, metadata)


@given(st.lists(st.integers() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False), min_size=2))
def test_numbers_as_text_have_their_order(numbers):
    written = [ordered_of({"x": number}).popitem()[1] for number in numbers]
    for one, other in pairwise(numbers):
        places = written[numbers.index(one)], written[numbers.index(other)]
        assert (places[0] < places[1], places[0] == places[1]) == (one < other, one == other)


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (lambda passage: True, "must be a mapping"),
        ({"$and": [{"a": 1}, lambda passage: True]}, "must be a mapping"),
        ({"a": {"$gt": date(2020, 1, 1)}}, "no dates"),
        ({"a\0": 1}, "NUL"),
        ({"a": "b\0"}, "NUL"),
        ({"a": {"$contains": "\ud800"}}, "half a character"),
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


def test_a_number_that_has_no_place_is_refused():
    with pytest.raises(InputError, match="'n' is a number beyond"):
        ordered_of({"n": -(10**400)})
