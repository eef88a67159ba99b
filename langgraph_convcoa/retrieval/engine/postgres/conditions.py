"""Filters on metadata as SQL over a jsonb column, with the meaning of `retrieval.filters.predicate`."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.engine.base import EngineConditions
from langgraph_convcoa.retrieval.filters import Filter

_ORDER = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}
# Most JSON forms of one value. A value has several forms if it holds 0, 1, True or False, since 1 equals True.
_MOST_FORMS = 256


class Condition(NamedTuple):
    """A condition in SQL and the values of its placeholders; no value is in the text."""

    sql: str
    values: list[Any]


def condition_of(filter: Filter | None) -> Condition | None:
    """A filter as a condition on a column `metadata`; None if there is no filter.

    If values have no order (a text and a number), comparing them gives NULL here, where `predicate` raises an error. The
    passage is then left out, also under `$not`, unless the rest of the filter decides.

    Example:
        >>> condition_of({"lang": "en", "year": {"$exists": True}})
        Condition(sql='(metadata @> %s::jsonb) AND (metadata ? %s)', values=['{"lang": "en"}', 'year'])
    """
    return _Sql().condition(filter)


class _Sql(EngineConditions[Condition]):
    def all(self, parts: Sequence[Condition]) -> Condition:
        return _joined(parts, "AND", "TRUE")

    def any(self, parts: Sequence[Condition]) -> Condition:
        return _joined(parts, "OR", "FALSE")

    def negated(self, part: Condition) -> Condition:
        return Condition(f"NOT ({part.sql})", part.values)

    def exists(self, name: str) -> Condition:
        return Condition("metadata ? %s", [name])

    def among(self, name: str, values: Sequence[Any]) -> Condition:
        return self.any([self._equal(name, value) for value in values])

    def _equal(self, name: str, wanted: Any) -> Condition:
        if wanted is None:
            return Condition("coalesce(metadata -> %s, 'null') = 'null'", [name])
        forms = _forms(wanted)
        if isinstance(wanted, Mapping | list):
            return _one_of("metadata -> %s", [name], forms)
        # For a scalar, containment is equality and has an index.
        return self.any([Condition("metadata @> %s::jsonb", [json.dumps({name: form})]) for form in forms])

    def contains(self, name: str, wanted: Any) -> Condition:
        equal = Condition("entry = 'null'", []) if wanted is None else _one_of("entry", [], _forms(wanted))
        text, texts = "FALSE", []
        if isinstance(wanted, str):
            text, texts = "strpos(metadata ->> %s, %s) > 0", [name, wanted]
        entry = f"EXISTS (SELECT FROM jsonb_array_elements(metadata -> %s) AS of (entry) WHERE {equal.sql})"
        sql = f"CASE jsonb_typeof(metadata -> %s) WHEN 'string' THEN {text} WHEN 'array' THEN {entry} ELSE FALSE END"
        return Condition(sql, [name, *texts, name, *equal.values])

    def ordered(self, name: str, word: str, bound: Any) -> Condition:
        kind, value, given, cast = "string", '(metadata ->> %s) COLLATE "C"', bound, ""
        if not isinstance(bound, str):
            kind, value, given, cast = "number", "(metadata -> %s)::numeric", str(_number(bound)), "::numeric"
        sql = (
            f"CASE coalesce(jsonb_typeof(metadata -> %s), 'null') WHEN '{kind}' THEN {value} {_ORDER[word]} %s{cast} "
            "WHEN 'null' THEN FALSE END"
        )
        return Condition(sql, [name, name, given])


def _one_of(value: str, values: Sequence[Any], forms: Sequence[Any]) -> Condition:
    """The condition that a jsonb value is one of the forms; false if the value is missing."""
    if not forms:
        return Condition("FALSE", [])
    written = [json.dumps(form) for form in forms]
    return Condition(f"coalesce({value} = ANY (%s::text[]::jsonb[]), FALSE)", [*values, written])


def _forms(value: Any) -> list[Any]:
    """All JSON values that equal a value in Python, where True equals 1; empty if the value is not JSON."""
    found = list(itertools.islice(_all_forms(value), _MOST_FORMS + 1))
    if len(found) > _MOST_FORMS:
        raise InputError("The filter compares with a list or dict that has too many 0, 1, True and False in it.")
    return found


def _all_forms(value: Any) -> Iterator[Any]:
    match value:
        case None:
            yield None
        case str():
            yield value
        case Real():
            if not math.isfinite(value):
                return
            yield _number(value)
            if value in (0, 1):
                yield bool(value)
        case list():
            yield from map(list, itertools.product(*map(_forms, value)))
        case Mapping() if all(isinstance(name, str) for name in value):
            for parts in itertools.product(*map(_forms, value.values())):
                yield dict(zip(value, parts, strict=True))


def _number(value: Any) -> int | float:
    """A number of numpy or Python as a Python number."""
    return int(value) if isinstance(value, Integral) else float(value)


def _joined(parts: Sequence[Condition], word: str, none: str) -> Condition:
    if len(parts) == 1:
        return parts[0]
    sql = f" {word} ".join(f"({part.sql})" for part in parts) or none
    return Condition(sql, [value for part in parts for value in part.values])
