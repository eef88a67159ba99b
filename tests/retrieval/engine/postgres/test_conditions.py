import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.engine.milvus.rows import condition_of as milvus_condition_of
from langgraph_convcoa.retrieval.engine.postgres.conditions import condition_of
from tests.retrieval.engine.filter_cases import BY_RULES_OF_PYTHON, FILTERS, METADATA, REFUSED, expected


def asked(connection: Any, condition: Any, metadata: list[dict[str, Any]]) -> list[bool | None]:
    sql, values = condition_of(condition) or ("TRUE", [])
    rows = connection.execute(
        f"SELECT {sql} FROM unnest(%s::jsonb[]) WITH ORDINALITY AS of (metadata, place) ORDER BY place",
        [*values, [json.dumps(data) for data in metadata]],
    ).fetchall()
    return [row[0] for row in rows]


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(metadata=METADATA, condition=FILTERS)
def test_a_filter_means_the_same_in_the_engine_as_here(connection, metadata, condition):
    for data, answer in zip(metadata, asked(connection, condition, metadata), strict=True):
        wanted = expected(condition, data)
        assert wanted is None or answer is wanted, (condition, data)


@pytest.mark.parametrize(("condition", "metadata", "wanted"), BY_RULES_OF_PYTHON)
def test_values_that_are_compared_by_rules_of_python(connection, condition, metadata, wanted):
    assert asked(connection, condition, [metadata]) == [wanted]


@pytest.mark.parametrize("made", [condition_of, milvus_condition_of])
@pytest.mark.parametrize(("condition", "message"), REFUSED)
def test_what_cannot_be_asked_is_said(made, condition, message):
    with pytest.raises(InputError, match=message):
        made(condition)


def test_too_many_numbers_that_equal_true_or_false_are_said():
    with pytest.raises(InputError, match="too many 0, 1"):
        condition_of({"a": {"$eq": [0, 1] * 8}})


def test_no_value_stands_in_the_sql():
    condition = condition_of({"'; DROP TABLE x; --": "'; DROP TABLE y; --", "n": {"$in": ["' OR 1=1"]}})
    assert condition is not None
    assert "DROP" not in condition.sql
    assert "OR 1" not in condition.sql
