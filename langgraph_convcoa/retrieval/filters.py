"""Filters on metadata: which passages may be returned."""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError

Filter: TypeAlias = Mapping[str, Any] | Callable[[Document], bool]
"""Metadata that a passage must have, as `predicate` reads it, or a function of the passage."""

_Test: TypeAlias = Callable[[Document], bool]

_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_LOGICAL = ("$and", "$or", "$not")
_OF_A_FIELD = ("$eq", "$ne", *_ORDER, "$between", "$in", "$nin", "$contains", "$exists", "$not")
_DEEPEST = 50


def predicate(condition: Filter) -> _Test:
    """A filter as a function that says of a passage whether it may be returned.

    The keys of a mapping all hold. A field's value is one that must be equal, a list, tuple or set of values of which one
    must be, or a mapping of operators, as LangChain's vector stores have them:

    - `$eq`, `$ne`: equal or not.
    - `$gt`, `$gte`, `$lt`, `$lte`, `$between` (two bounds, both within): order of numbers, texts or dates.
    - `$in`, `$nin`: one of a list or none of it.
    - `$contains`: a list that has the value, or a text that has the text.
    - `$exists`: True where the field is there, False where it is not.
    - `$not`: the operators in it do not all hold.

    `{"$and": [...]}` and `{"$or": [...]}` take lists of filters, functions among them, and `{"$not": ...}` one. A field that
    is missing has the value None: it is equal to nothing else, in no order, and `$ne` and `$nin` hold.

    Raises:
        InputError: An operator is unknown or its value is of the wrong kind; or, on a call, a passage's value cannot be
            compared: a text with a number.

    Example:
        >>> passes = predicate({"year": {"$gte": 2016, "$lt": 2020}, "$or": [{"lang": "en"}, {"lang": {"$exists": False}}]})
        >>> [passes(Document("", metadata=data)) for data in ({"year": 2016}, {"year": 2020}, {"year": 2017, "lang": "de"})]
        [True, False, False]
    """
    return _predicate(condition, 0)


def allowed_passages(passages: Sequence[Document], condition: Filter | None) -> npt.NDArray[np.bool_] | None:
    """(n,), True for the passages that meet the condition; None where there is none.

    Example:
        >>> passages = [Document("a", metadata={"year": 2016}), Document("b", metadata={"year": 2020}), Document("c")]
        >>> allowed_passages(passages, {"year": [2016, 2017]}).tolist()
        [True, False, False]
    """
    if condition is None:
        return None
    passes = predicate(condition)
    return np.array([passes(passage) for passage in passages], dtype=np.bool_)


def _predicate(condition: Filter, depth: int) -> _Test:
    if depth > _DEEPEST:
        raise InputError(f"The filter is nested more than {_DEEPEST} levels deep; write it flatter.")
    if not isinstance(condition, Mapping):
        if not callable(condition):
            raise InputError(f"A filter must be a mapping or a function of a document, not {_shown(condition)}.")
        return lambda document: bool(condition(document))
    return _all([_entry(name, wanted, depth + 1) for name, wanted in condition.items()])


def _entry(name: Any, wanted: Any, depth: int) -> _Test:
    """The test of one key of a filter and what stands there."""
    if not isinstance(name, str):
        raise InputError(f"A filter names fields of the metadata by text, not by {_shown(name)}.")
    if name == "$not":
        return _negated(_predicate(wanted, depth))
    if name in _LOGICAL:
        if not isinstance(wanted, list | tuple) or not wanted:
            raise InputError(f"The filter's {name} takes a list of filters, not {_shown(wanted)}.")
        tests = [_predicate(part, depth) for part in wanted]
        return _all(tests) if name == "$and" else lambda document: any(test(document) for test in tests)
    if name.startswith("$"):
        advice = f"it belongs to a field: {{'field': {{'{name}': ...}}}}" if name in _OF_A_FIELD else _known(_LOGICAL)
        raise InputError(f"The filter's operator {name!r} is not one of filters; {advice}.")
    return _field(name, wanted, depth)


def _field(name: str, wanted: Any, depth: int) -> _Test:
    if isinstance(wanted, Mapping) and any(isinstance(key, str) and key.startswith("$") for key in wanted):
        return _all([_operator(name, key, value, depth) for key, value in wanted.items()])
    if isinstance(wanted, list | tuple | set | frozenset):
        return _operator(name, "$in", wanted, depth)
    return _operator(name, "$eq", wanted, depth)


def _operator(name: str, word: Any, wanted: Any, depth: int) -> _Test:
    """The test of one operator on a field."""
    match word:
        case "$eq":
            return lambda document: bool(document.metadata.get(name) == wanted)
        case "$ne":
            return lambda document: bool(document.metadata.get(name) != wanted)
        case "$in" | "$nin":
            test = _membership(name, word, wanted)
            return test if word == "$in" else _negated(test)
        case "$exists":
            if not isinstance(wanted, bool):
                raise InputError(f"The filter's $exists under {name!r} takes True or False, not {_shown(wanted)}.")
            return lambda document: (name in document.metadata) is wanted
        case "$contains":
            return lambda document: _contains(document.metadata.get(name), wanted)
        case "$not":
            if depth > _DEEPEST:
                raise InputError(f"The filter is nested more than {_DEEPEST} levels deep; write it flatter.")
            return _negated(_field(name, wanted, depth + 1))
        case "$between":
            if not isinstance(wanted, list | tuple) or len(wanted) != 2:
                raise InputError(f"The filter's $between under {name!r} takes two bounds, not {_shown(wanted)}.")
            return _all([_order(name, "$gte", wanted[0]), _order(name, "$lte", wanted[1])])
        case str() if word in _ORDER:
            return _order(name, word, wanted)
    raise InputError(f"The filter's operator {word!r} under {name!r} is unknown; {_known(_OF_A_FIELD)}.")


def _order(name: str, word: str, wanted: Any) -> _Test:
    kind, holds = _kind(wanted), _ORDER[word]
    if kind is None:
        raise InputError(f"The filter's {word} under {name!r} takes a number, a text or a date, not {_shown(wanted)}.")

    def test(document: Document) -> bool:
        value = document.metadata.get(name)
        if value is None or value != value:
            return False
        try:
            if _kind(value) == kind:
                return bool(holds(value, wanted))
        except TypeError:  # a time with a zone and one without
            pass
        found = f"{name!r} of the passage {document.id!r} is {_shown(value)}"
        raise InputError(f"The filter's {word} compares with {_shown(wanted)}, and {found}; these have no order.")

    return test


def _membership(name: str, word: str, wanted: Any) -> _Test:
    if not isinstance(wanted, list | tuple | set | frozenset):
        raise InputError(f"The filter's {word} under {name!r} takes a list of values, not {_shown(wanted)}.")
    values = list(wanted)
    try:
        hashed = frozenset(values)
    except TypeError:
        return lambda document: document.metadata.get(name) in values

    def test(document: Document) -> bool:
        value = document.metadata.get(name)
        try:
            return value in hashed
        except TypeError:  # a list is equal to nothing that has a hash
            return False

    return test


def _contains(value: Any, wanted: Any) -> bool:
    if isinstance(value, str):
        return isinstance(wanted, str) and wanted in value
    return isinstance(value, list | tuple | set | frozenset) and any(entry == wanted for entry in value)


def _kind(value: Any) -> str | None:
    """What a value can be in order with; None where it has none."""
    if isinstance(value, str):
        return "text"
    if isinstance(value, bool):
        return None
    if isinstance(value, Real):
        # A number that is no float, however large, is no NaN.
        return None if value != value else "number"
    if isinstance(value, datetime):
        return "time"
    return "date" if isinstance(value, date) else None


def _all(tests: Sequence[_Test]) -> _Test:
    return tests[0] if len(tests) == 1 else lambda document: all(test(document) for test in tests)


def _negated(test: _Test) -> _Test:
    return lambda document: not test(document)


def _known(words: Sequence[str]) -> str:
    return f"known are {', '.join(words)}"


def _shown(value: Any) -> str:
    kinds = {"text": "the text ", "number": "the number "}
    return f"{kinds.get(_kind(value) or '', '')}{reprlib.repr(value)}"
