"""Filters on metadata as SQL over a jsonb column, with the meaning that `retrieval.filters.predicate` gives them."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.engine.base import check_text
from langgraph_convcoa.retrieval.filters import Filter, predicate

_ORDER = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}
# Ways to write one value: 1 is equal to 1.0 and to True, in lists too.
_MOST_FORMS = 256


class Condition(NamedTuple):
    """A condition in SQL with the values of its places, in order; no value is in the text."""

    sql: str
    values: list[Any]


_TRUE, _FALSE = Condition("TRUE", []), Condition("FALSE", [])


def condition_of(filter: Filter | None) -> Condition | None:
    """The condition on a column `metadata` that a filter is; None where there is no filter.

    Where a passage's value has no order with the filter's, a text with a number, which is an error elsewhere, the comparison
    is NULL, as SQL's logic has it: the passage is left out, under `$not` too, unless the rest of the filter decides.

    Raises:
        InputError: It is a function, which only runs here, it is malformed, or it compares with what is not JSON.

    Example:
        >>> condition_of({"lang": "en", "year": {"$exists": True}})
        Condition(sql='(metadata @> %s::jsonb) AND (metadata ? %s)', values=['{"lang": "en"}', 'year'])
    """
    if filter is None:
        return None
    # All that is malformed is an error as elsewhere.
    predicate(filter)
    try:
        return _mapping(filter)
    except RecursionError:
        raise InputError("The filter compares with a value that is nested too deep.") from None


def _mapping(filter: Filter) -> Condition:
    if not isinstance(filter, Mapping):
        raise InputError(
            "A filter of a retriever over an engine must be a mapping, such as {'year': {'$gte': 2020}}: the engine applies "
            "it to all passages, and cannot run a function."
        )
    return _joined([_entry(name, wanted) for name, wanted in filter.items()], "AND")


def _entry(name: str, wanted: Any) -> Condition:
    if name == "$not":
        return _not(_mapping(wanted))
    if name in ("$and", "$or"):
        return _joined([_mapping(part) for part in wanted], name[1:].upper())
    check_text(name, "filter")
    return _field(name, wanted)


def _field(name: str, wanted: Any) -> Condition:
    if isinstance(wanted, Mapping) and any(isinstance(key, str) and key.startswith("$") for key in wanted):
        return _joined([_operator(name, word, value) for word, value in wanted.items()], "AND")
    if isinstance(wanted, list | tuple | set | frozenset):
        return _operator(name, "$in", wanted)
    return _operator(name, "$eq", wanted)


def _operator(name: str, word: str, wanted: Any) -> Condition:
    match word:
        case "$eq":
            return _equal(name, wanted)
        case "$ne":
            return _not(_equal(name, wanted))
        case "$in":
            return _joined([_equal(name, value) for value in wanted], "OR")
        case "$nin":
            return _not(_joined([_equal(name, value) for value in wanted], "OR"))
        case "$exists":
            there = Condition("metadata ? %s", [name])
            return there if wanted else _not(there)
        case "$contains":
            return _contains(name, wanted)
        case "$not":
            return _not(_field(name, wanted))
        case "$between":
            return _joined([_ordered(name, "$gte", wanted[0]), _ordered(name, "$lte", wanted[1])], "AND")
    return _ordered(name, word, wanted)


def _equal(name: str, wanted: Any) -> Condition:
    if wanted is None:
        return Condition("coalesce(metadata -> %s, 'null') = 'null'", [name])
    forms = _forms(wanted)
    if isinstance(wanted, Mapping | list):
        return _among("metadata -> %s", [name], forms)
    # Of one value containment is equality, and has an index.
    return _joined([Condition("metadata @> %s::jsonb", [json.dumps({name: form})]) for form in forms], "OR")


def _among(value: str, values: Sequence[Any], forms: Sequence[Any]) -> Condition:
    """Whether a jsonb value is one of some; one that is missing is not."""
    if not forms:
        return _FALSE
    written = [json.dumps(form) for form in forms]
    return Condition(f"coalesce({value} = ANY (%s::text[]::jsonb[]), FALSE)", [*values, written])


def _contains(name: str, wanted: Any) -> Condition:
    entries = "EXISTS (SELECT FROM jsonb_array_elements(metadata -> %s) AS of (entry) WHERE {})"
    equal = Condition("entry = 'null'", []) if wanted is None else _among("entry", [], _forms(wanted))
    text, texts = "FALSE", []
    if isinstance(wanted, str):
        check_text(wanted, "filter")
        text, texts = "strpos(metadata ->> %s, %s) > 0", [name, wanted]
    entry = entries.format(equal.sql)
    sql = f"CASE jsonb_typeof(metadata -> %s) WHEN 'string' THEN {text} WHEN 'array' THEN {entry} ELSE FALSE END"
    return Condition(sql, [name, *texts, name, *equal.values])


def _ordered(name: str, word: str, wanted: Any) -> Condition:
    """Order with a number or a text; NULL where a value has none."""
    if isinstance(wanted, str):
        check_text(wanted, "filter")
        kind, value, bound = "string", '(metadata ->> %s) COLLATE "C"', wanted
    elif isinstance(wanted, Real):
        kind, value, bound = "number", "(metadata -> %s)::numeric", str(_number(wanted))
    else:
        raise InputError(
            f"The filter's {word} under {name!r} compares with {wanted!r:.60}: metadata in an engine is JSON, which has no "
            "dates; keep them as texts such as 2026-11-22, and compare with one."
        )
    cast = "::numeric" if kind == "number" else ""
    sql = (
        f"CASE coalesce(jsonb_typeof(metadata -> %s), 'null') WHEN '{kind}' THEN {value} {_ORDER[word]} %s{cast} "
        "WHEN 'null' THEN FALSE END"
    )
    return Condition(sql, [name, name, bound])


def _forms(value: Any) -> list[Any]:
    """All JSON values that are equal to a value in Python: True is 1, and in lists and dicts too; none where no JSON is."""
    found = list(itertools.islice(_all_forms(value), _MOST_FORMS + 1))
    if len(found) > _MOST_FORMS:
        raise InputError("The filter compares with a list or dict that has too many 0, 1, True and False in it.")
    return found


def _all_forms(value: Any) -> Iterator[Any]:
    match value:
        case None:
            yield None
        case str():
            check_text(value, "filter")
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
            for name in value:
                check_text(name, "filter")
            for parts in itertools.product(*map(_forms, value.values())):
                yield dict(zip(value, parts, strict=True))


def _number(value: Any) -> int | float:
    """A number as Python writes it; numpy has types of its own."""
    return int(value) if isinstance(value, Integral) else float(value)


def _joined(parts: Sequence[Condition], word: str) -> Condition:
    if not parts:
        return _TRUE if word == "AND" else _FALSE
    if len(parts) == 1:
        return parts[0]
    return Condition(f" {word} ".join(f"({part.sql})" for part in parts), [value for part in parts for value in part.values])


def _not(part: Condition) -> Condition:
    return Condition(f"NOT ({part.sql})", part.values)
