"""Filters on metadata as SQL over a jsonb column, with the meaning of `retrieval.filters.predicate`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple

from langgraph_convcoa.retrieval.engine.base import EngineConditions, json_of
from langgraph_convcoa.retrieval.filters import Filter

_ORDER = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}


class Condition(NamedTuple):
    """A condition in SQL and the values of its placeholders; the SQL contains no value."""

    sql: str
    values: list[Any]


def condition_of(filter: Filter | None) -> Condition | None:
    """A filter as a condition on a column `metadata`; None if there is no filter.

    To compare values without an order (a text with a number) is an error in `predicate`. Here it gives NULL: the passage is
    left out, also under `$not`, unless the rest of the filter decides.

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
        if (written := json_of(wanted, json.dumps)) is None:
            return self.any([])
        if isinstance(wanted, Mapping | list):
            return Condition("coalesce(metadata -> %s = %s::jsonb, FALSE)", [name, written])
        # For a scalar, containment is equality and has an index.
        return Condition("metadata @> %s::jsonb", [f"{{{json.dumps(name)}: {written}}}"])

    def contains(self, name: str, wanted: Any) -> Condition:
        equal, values = "FALSE", list[str]()
        if (written := json_of(wanted, json.dumps)) is not None:
            equal, values = "entry = %s::jsonb", [written]
        text, texts = "FALSE", []
        if isinstance(wanted, str):
            text, texts = "strpos(metadata ->> %s, %s) > 0", [name, wanted]
        entry = f"EXISTS (SELECT FROM jsonb_array_elements(metadata -> %s) AS of (entry) WHERE {equal})"
        sql = f"CASE jsonb_typeof(metadata -> %s) WHEN 'string' THEN {text} WHEN 'array' THEN {entry} ELSE FALSE END"
        return Condition(sql, [name, *texts, name, *values])

    def above_or_below(self, name: str, word: str, bound: str | Real) -> Condition:
        kind, value, given, cast = "string", '(metadata ->> %s) COLLATE "C"', bound, ""
        if not isinstance(bound, str):
            number = int(bound) if isinstance(bound, Integral) else float(bound)
            kind, value, given, cast = "number", "(metadata -> %s)::numeric", str(number), "::numeric"
        sql = (
            f"CASE coalesce(jsonb_typeof(metadata -> %s), 'null') WHEN '{kind}' THEN {value} {_ORDER[word]} %s{cast} "
            "WHEN 'null' THEN FALSE END"
        )
        return Condition(sql, [name, name, given])


def _joined(parts: Sequence[Condition], word: str, none: str) -> Condition:
    if len(parts) == 1:
        return parts[0]
    sql = f" {word} ".join(f"({part.sql})" for part in parts) or none
    return Condition(sql, [value for part in parts for value in part.values])
