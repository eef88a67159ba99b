"""Filters on metadata as expressions of Milvus, with the meaning of `retrieval.filters.predicate`.

How Milvus compares missing fields, null, numbers and texts in JSON differs between its versions and from Python. So a row
holds its metadata in two other forms: `facts`, hashes of statements such as "lang is en", and `ordered`, numbers and texts as
text with the same order. An expression contains only hashes, whatever names and values a filter has.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import sys
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.engine.base import EngineConditions, check_text
from langgraph_convcoa.retrieval.filters import Filter

_BYTES = ["abcdefghijklmnop"[byte >> 4] + "ABCDEFGHIJKLMNOP"[byte & 15] for byte in range(256)]


class Condition(NamedTuple):
    """The expression of the rows for which a condition is true, and of those for which it is false.

    Neither holds for a row whose value cannot be compared (a text with a number), so `$not` leaves it out too.
    """

    true: str
    false: str


def condition_of(filter: Filter | None) -> str | None:
    """A filter as an expression over `facts` and `ordered`; None if there is no filter."""
    found = _Expressions().condition(filter)
    return None if found is None else found.true


def facts_of(metadata: Mapping[str, Any]) -> list[str]:
    """The hashes of the statements that are true of metadata."""
    found: list[str] = []
    for name, value in metadata.items():
        found.append(_hash("has", name))
        if value is not None:
            found += [_hash("some", name), _hash("is", name, _written(value))]
        if isinstance(value, str):
            found.append(_hash("text", name))
        if isinstance(value, list):
            found += [_hash("holds", name, _written(entry)) for entry in value]
    return [*dict.fromkeys(found)]


def ordered_of(metadata: Mapping[str, Any]) -> dict[str, str]:
    """The numbers and texts of metadata as texts with the same order; InputError for a number beyond float64."""
    kept = {name: value for name, value in metadata.items() if type(value) in (str, int, float)}
    for name, value in kept.items():
        if type(value) is int and abs(value) > sys.float_info.max:
            raise InputError(
                f"The metadata {name!r:.80} is a number beyond 1.8e308, which Milvus does not order; write it as text."
            )
    return {f"k{_hash(name)}": _sortable(value) for name, value in kept.items()}


class _Expressions(EngineConditions[Condition]):
    def all(self, parts: Sequence[Condition]) -> Condition:
        if len(parts) == 1:
            return parts[0]
        true, false = " and ".join(part.true for part in parts), " or ".join(part.false for part in parts)
        return Condition(f"({true or 'part >= 0'})", f"({false or 'part < 0'})")

    def negated(self, part: Condition) -> Condition:
        return Condition(part.false, part.true)

    def exists(self, name: str) -> Condition:
        return self._fact([_hash("has", name)])

    def among(self, name: str, values: Sequence[Any]) -> Condition:
        known = [written for value in values if value is not None if (written := _askable(value))]
        equal = self._fact([_hash("is", name, written) for written in known])
        missing = self.negated(self._fact([_hash("some", name)]))
        return self.any([equal, missing]) if any(value is None for value in values) else equal

    def contains(self, name: str, wanted: Any) -> Condition:
        written = _askable(wanted)
        parts = [self._fact([_hash("holds", name, written)] if written else [])]
        if isinstance(wanted, str):
            within, text = f'({_value(name)} like "t%{_spelled(wanted)}%")', self._fact([_hash("text", name)])
            # For a value that is no text, Milvus may find neither this nor its negation true.
            parts.append(Condition(f"({text.true} and {within})", f"({text.false} or not {within})"))
        return self.any(parts)

    def above_or_below(self, name: str, word: str, bound: str | Real) -> Condition:
        edge, value = _sortable(bound), _value(name)
        kind, above = edge[0], chr(ord(edge[0]) + 1)
        over, under = (">", "<=") if word in ("$gt", "$lte") else (">=", "<")
        ranges = f'({value} {over} "{edge}" and {value} < "{above}")', f'({value} >= "{kind}" and {value} {under} "{edge}")'
        true, other = ranges if word in ("$gt", "$gte") else ranges[::-1]
        return Condition(true, f"({self._fact([_hash('some', name)]).false} or {other})")

    def _fact(self, hashes: Sequence[str]) -> Condition:
        """One of these facts holds."""
        if not hashes:
            return self.any([])
        listed = ", ".join(f'"{one}"' for one in hashes)
        found = f"array_contains(facts, {listed})" if len(hashes) == 1 else f"array_contains_any(facts, [{listed}])"
        return Condition(found, f"not {found}")


def _askable(value: Any) -> str:
    """`_written`; empty if no JSON value equals it."""
    try:
        return _written(value)
    except InputError:
        raise
    except ValueError:
        return ""


def _written(value: Any) -> str:
    """A JSON value as text; values that are equal in Python (1, 1.0 and True) have the same text."""
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
    """A number or a text as ASCII text with the same order, after n or t."""
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
    # An integer that float64 lacks comes after the nearest float below it.
    rest = f"{exact - int(near):x}" if isinstance(exact, int) and math.isfinite(near) and near != exact else ""
    return f"n{bits:016x}" + (f"{len(rest):03x}{rest}" if rest else "")


def _spelled(text: str) -> str:
    """Each byte of a text as a small and a capital letter, so that a match starts at the start of a byte."""
    return "".join(map(_BYTES.__getitem__, text.encode()))


def _value(name: str) -> str:
    return f'ordered["k{_hash(name)}"]'


def _hash(*parts: str) -> str:
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()
