import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.engine.postgres.conditions import condition_of
from langgraph_convcoa.retrieval.filters import predicate
from tests.retrieval.engine.filter_cases import BY_RULES_OF_PYTHON, FILTERS, METADATA, REFUSED, too_deep


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
@given(metadata=METADATA, condition=FILTERS)
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


@pytest.mark.parametrize(("condition", "metadata", "expected"), BY_RULES_OF_PYTHON)
def test_values_that_are_compared_by_rules_of_python(connection, condition, metadata, expected):
    assert asked(connection, condition, [metadata]) == [expected]


@pytest.mark.parametrize(("condition", "message"), [*REFUSED, ({"a": {"$eq": [0, 1] * 8}}, "too many 0, 1")])
def test_what_cannot_be_asked_is_said(condition, message):
    with pytest.raises(InputError, match=message):
        condition_of(condition)


def test_a_value_nested_too_deep_is_said():
    with pytest.raises(InputError, match="too deep"):
        condition_of(too_deep())


def test_no_value_stands_in_the_sql():
    condition = condition_of({"'; DROP TABLE x; --": "'; DROP TABLE y; --", "n": {"$in": ["' OR 1=1"]}})
    assert condition is not None
    assert "DROP" not in condition.sql
    assert "OR 1" not in condition.sql
