"""Filters on metadata as expressions of Milvus, with the meaning that `retrieval.filters.predicate` gives them.

What Milvus makes of missing fields, null, numbers and texts in its JSON changes with its versions, and it has no equality of
Python. So a row holds what is true of its metadata in two forms that leave nothing open: `facts`, hashes of statements such as
"lang is en", and `ordered`, numbers and texts as text that sorts as they do. All that stands in an expression are letters and
digits of ours, whatever names and values a filter has.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.engine.base import check_text
from langgraph_convcoa.retrieval.filters import Filter, predicate

_HIGH, _LOW = "abcdefghijklmnop", "ABCDEFGHIJKLMNOP"
_BYTES = [_HIGH[byte >> 4] + _LOW[byte & 15] for byte in range(256)]
_TOO_DEEP = "compares with a value that is nested too deep"


class Condition(NamedTuple):
    """The expression of the rows of which a condition is true, and that of those of which it is false.

    Of a row whose value has no order with the filter's, a text with a number, neither is true, so that it is left out under
    `$not` too.
    """

    true: str
    false: str


_TRUE, _FALSE = Condition("part >= 0", "part < 0"), Condition("part < 0", "part >= 0")


def condition_of(filter: Filter | None) -> str | None:
    """The expression over `facts` and `ordered` that a filter is; None where there is no filter.

    Raises:
        InputError: It is a function, which only runs here, it is malformed, or it compares with what is not JSON.

    Example:
        >>> condition_of({"lang": "en"}).partition('"')[0]
        'array_contains(facts, '
    """
    if filter is None:
        return None
    # All that is malformed is an error as elsewhere.
    predicate(filter)
    try:
        return _mapping(filter).true
    except RecursionError:
        raise InputError(f"The filter {_TOO_DEEP}.") from None


def facts_of(metadata: Mapping[str, Any]) -> list[str]:
    """What is true of metadata, as `condition_of` asks for it.

    Example:
        >>> condition_of({"lang": "en"}).count(facts_of({"lang": "en"})[-1])
        1
    """
    found: dict[str, None] = {}
    for name, value in metadata.items():
        found[_hash("has", name)] = None
        if value is not None:
            found[_hash("some", name)] = None
            if isinstance(value, str):
                found[_hash("text", name)] = None
            if isinstance(value, list):
                found |= dict.fromkeys(_hash("holds", name, _written(entry)) for entry in value)
            found[_hash("is", name, _written(value))] = None
    return [*found]


def ordered_of(metadata: Mapping[str, Any]) -> dict[str, str]:
    """The numbers and texts of metadata, as texts that have their order.

    Raises:
        InputError: A number is too large for a float64.

    Example:
        >>> one, two = (ordered_of({"year": year}).popitem()[1] for year in (-1.5, 20))
        >>> one < two
        True
    """
    kept = {name: value for name, value in metadata.items() if type(value) in (str, int, float)}
    for name, value in kept.items():
        if type(value) is int and abs(value) > sys.float_info.max:
            raise InputError(
                f"The metadata {name!r:.80} is a number beyond 1.8e308, which Milvus does not order; write it as text."
            )
    return {_key(name): _sortable(value) for name, value in kept.items()}


def _mapping(filter: Filter) -> Condition:
    if not isinstance(filter, Mapping):
        raise InputError(
            "A filter of a retriever over an engine must be a mapping, such as {'year': {'$gte': 2020}}: the engine applies "
            "it to all passages, and cannot run a function."
        )
    return _all([_entry(name, wanted) for name, wanted in filter.items()])


def _entry(name: str, wanted: Any) -> Condition:
    if name == "$not":
        return _not(_mapping(wanted))
    if name in ("$and", "$or"):
        parts = [_mapping(part) for part in wanted]
        return _all(parts) if name == "$and" else _any(parts)
    check_text(name, "filter")
    return _field(name, wanted)


def _field(name: str, wanted: Any) -> Condition:
    if isinstance(wanted, Mapping) and any(isinstance(key, str) and key.startswith("$") for key in wanted):
        return _all([_operator(name, word, value) for word, value in wanted.items()])
    if isinstance(wanted, list | tuple | set | frozenset):
        return _operator(name, "$in", wanted)
    return _operator(name, "$eq", wanted)


def _operator(name: str, word: str, wanted: Any) -> Condition:
    match word:
        case "$eq":
            return _among(name, [wanted])
        case "$ne":
            return _not(_among(name, [wanted]))
        case "$in":
            return _among(name, [*wanted])
        case "$nin":
            return _not(_among(name, [*wanted]))
        case "$exists":
            there = _fact(_hash("has", name))
            return there if wanted else _not(there)
        case "$contains":
            return _contains(name, wanted)
        case "$not":
            return _not(_field(name, wanted))
        case "$between":
            return _all([_order(name, "$gte", wanted[0]), _order(name, "$lte", wanted[1])])
    return _order(name, word, wanted)


def _among(name: str, wanted: Sequence[Any]) -> Condition:
    """Whether a value is equal to one of some."""
    equal = [_hash("is", name, written) for value in wanted if value is not None for written in _askable(value)]
    parts = [_not(_fact(_hash("some", name)))] if any(value is None for value in wanted) else []
    return _any([_fact(*equal), *parts] if equal else parts)


def _contains(name: str, wanted: Any) -> Condition:
    parts = [_fact(*(_hash("holds", name, written) for written in _askable(wanted)))]
    if isinstance(wanted, str):
        check_text(wanted, "filter")
        within, text = f'({_value(name)} like "t%{_spelled(wanted)}%")', _fact(_hash("text", name))
        # Where no text is, Milvus may take neither it nor its negation for true.
        parts.append(Condition(f"({text.true} and {within})", f"({text.false} or not {within})"))
    return _any(parts)


def _order(name: str, word: str, wanted: Any) -> Condition:
    """Order with a number or a text."""
    if isinstance(wanted, str):
        check_text(wanted, "filter")
    elif not isinstance(wanted, Real):
        raise InputError(
            f"The filter's {word} under {name!r} compares with {wanted!r:.60}: metadata in an engine is JSON, which has no "
            "dates; keep them as texts such as 2026-11-22, and compare with one."
        )
    bound = _sortable(wanted)
    value, kind, above = _value(name), bound[0], chr(ord(bound[0]) + 1)
    ranges = {
        "$gt": f'({value} > "{bound}" and {value} < "{above}")',
        "$gte": f'({value} >= "{bound}" and {value} < "{above}")',
        "$lt": f'({value} >= "{kind}" and {value} < "{bound}")',
        "$lte": f'({value} >= "{kind}" and {value} <= "{bound}")',
    }
    other = {"$gt": "$lte", "$gte": "$lt", "$lt": "$gte", "$lte": "$gt"}[word]
    none = _not(_fact(_hash("some", name)))
    return Condition(ranges[word], f"({none.true} or {ranges[other]})")


def _fact(*hashes: str) -> Condition:
    """Whether one of some facts holds."""
    if not hashes:
        return _FALSE
    if len(hashes) == 1:
        found = f'array_contains(facts, "{hashes[0]}")'
    else:
        found = "array_contains_any(facts, [" + ", ".join(f'"{one}"' for one in hashes) + "])"
    return Condition(found, f"not {found}")


def _all(parts: Sequence[Condition]) -> Condition:
    if not parts:
        return _TRUE
    if len(parts) == 1:
        return parts[0]
    true, false = (" and ".join(part.true for part in parts), " or ".join(part.false for part in parts))
    return Condition(f"({true})", f"({false})")


def _any(parts: Sequence[Condition]) -> Condition:
    return _not(_all([_not(part) for part in parts]))


def _not(part: Condition) -> Condition:
    return Condition(part.false, part.true)


def _askable(value: Any) -> Iterator[str]:
    """The value as it is hashed; nothing where no JSON value is equal to it."""
    try:
        yield _written(value)
    except ValueError as error:
        if isinstance(error, InputError):
            raise


def _written(value: Any) -> str:
    """A JSON value as a text that is the same of all that are equal to it in Python: 1, 1.0 and True are."""
    match value:
        case None:
            return "null"
        case str():
            check_text(value, "filter")
            return json.dumps(value)
        case Real() if isinstance(value, Integral) or math.isfinite(value):
            number = int(value) if isinstance(value, Integral) else float(value)
            return hex(int(number)) if number == int(number) else float(number).hex()
        case list():
            return "[" + ",".join(map(_written, value)) + "]"
        case Mapping() if all(isinstance(name, str) for name in value):
            return "{" + ",".join(f"{_written(name)}:{_written(value[name])}" for name in sorted(value)) + "}"
    raise ValueError("not JSON")


def _sortable(value: Any) -> str:
    """A number or a text as a text with its order: of ASCII only, n and t before them."""
    if isinstance(value, str):
        return "t" + _spelled(value)
    exact = int(value) if isinstance(value, Integral) else float(value)
    try:
        near = float(exact)
    except OverflowError:
        near = math.copysign(math.inf, 1 if exact > 0 else -1)
    if math.isfinite(near) and near > exact:
        near = math.nextafter(near, -math.inf)
    [bits] = struct.unpack(">Q", struct.pack(">d", near or 0.0))
    bits ^= 2**64 - 1 if bits >> 63 else 2**63
    # An integer that is not one of float64 comes behind the one below it.
    rest = f"{exact - int(near):x}" if isinstance(exact, int) and math.isfinite(near) and near != exact else ""
    return f"n{bits:016x}" + (f"{len(rest):03x}{rest}" if rest else "")


def _spelled(text: str) -> str:
    """The bytes of a text as two letters each, a small one and a capital, so that a part is found only where one begins."""
    return "".join(map(_BYTES.__getitem__, text.encode()))


def _value(name: str) -> str:
    return f'ordered["{_key(name)}"]'


def _key(name: str) -> str:
    return "k" + _hash(name)


def _hash(*parts: str) -> str:
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()
