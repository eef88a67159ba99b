"""Filters as expressions of Milvus, played against what `predicate` says."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from langgraph_convcoa.retrieval.engine.milvus.rows import condition_of, facts_of, ordered_of
from tests.retrieval.engine.filter_cases import BY_RULES_OF_PYTHON, FILTERS, METADATA, expected

# The words of an expression; whatever else is in it are letters and digits between quotation marks.
_WORDS = re.compile(
    r'(?:array_contains(?:_any)?|facts|ordered|part|and|or|not|like|0|[()\[\], ]|>=?|<=?|"(?:\w*|t%\w*%)")*', re.ASCII
)


@pytest.fixture(scope="module")
def client(milvus: str) -> Any:
    from pymilvus import DataType, MilvusClient

    from langgraph_convcoa.retrieval.engine.milvus.engine import _settings

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


def compare(client: Any, metadata: list[dict[str, Any]], condition: Any) -> None:
    for data, answer in zip(metadata, asked(client, condition, metadata), strict=True):
        wanted = expected(condition, data)
        if wanted is not None:
            assert answer is wanted, (condition, data)


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(metadata=METADATA, condition=FILTERS)
def test_a_filter_means_the_same_in_the_engine_as_here(client, metadata, condition):
    compare(client, metadata, condition)


def test_values_that_are_compared_by_rules_of_python(client):
    for condition, metadata, wanted in BY_RULES_OF_PYTHON:
        assert asked(client, condition, [metadata]) == [bool(wanted)], (condition, metadata)


@given(st.lists(st.integers(-(2**70), 2**70) | st.sampled_from([-(10**400), 10**400]) | st.floats(-1e308, 1e308), min_size=2))
def test_numbers_as_text_have_their_order(numbers):
    written = [ordered_of({"x": number}).popitem()[1] for number in numbers]
    for one, other in pairwise(numbers):
        places = written[numbers.index(one)], written[numbers.index(other)]
        assert (places[0] < places[1], places[0] == places[1]) == (one < other, one == other)
