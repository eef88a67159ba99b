"""Filters on metadata: a reader of the filter language for all corpora, and the filters of passages in memory."""

from __future__ import annotations

import operator
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from numbers import Real
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError

Filter: TypeAlias = Mapping[str, Any] | Callable[[Document], bool]
"""Conditions on a passage's metadata (see `predicate`), or a function of the passage."""

_Test: TypeAlias = Callable[[Document], bool]
_Condition = TypeVar("_Condition")

_ORDER = {"$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le}
_LOGICAL = ("$and", "$or", "$not")
_OF_A_FIELD = ("$eq", "$ne", *_ORDER, "$between", "$in", "$nin", "$contains", "$exists", "$not")
_DEEPEST = 50
_LISTS = (list, tuple, set, frozenset)


class FilterEvaluator(ABC, Generic[_Condition]):
    """Reads the filter language. A subclass makes the conditions: tests of a passage, SQL or expressions of an engine."""

    @abstractmethod
    def all(self, parts: Sequence[_Condition]) -> _Condition:
        """The condition that every part holds; true without parts."""

    @abstractmethod
    def negated(self, part: _Condition) -> _Condition:
        """The condition that the part does not hold."""

    @abstractmethod
    def among(self, name: str, values: Sequence[Any]) -> _Condition:
        """The condition that a field equals one of the values; a missing field counts as None."""

    @abstractmethod
    def exists(self, name: str) -> _Condition:
        """The condition that a field exists."""

    @abstractmethod
    def contains(self, name: str, wanted: Any) -> _Condition:
        """The condition that a field is a list that has the value, or a text that has the text in it."""

    @abstractmethod
    def ordered(self, name: str, word: str, bound: Any) -> _Condition:
        """The condition that a field is above or below a number, text or date; `word` is $gt, $gte, $lt or $lte."""

    @abstractmethod
    def function(self, test: Callable[[Document], bool]) -> _Condition:
        """The condition that a function accepts the passage."""

    def any(self, parts: Sequence[_Condition]) -> _Condition:
        """The condition that at least one part holds."""
        return self.negated(self.all([self.negated(part) for part in parts]))

    def read(self, condition: Filter, depth: int = 0) -> _Condition:
        """Read a filter; InputError for an unknown operator or a value of the wrong kind."""
        _check_depth(depth)
        if isinstance(condition, Mapping):
            return self.all([self._entry(name, wanted, depth + 1) for name, wanted in condition.items()])
        if not callable(condition):
            raise InputError(f"A filter must be a mapping or a function of a document, not {_shown(condition)}.")
        return self.function(condition)

    def _entry(self, name: Any, wanted: Any, depth: int) -> _Condition:
        if not isinstance(name, str):
            raise InputError(f"A filter names fields of the metadata by text, not by {_shown(name)}.")
        if name == "$not":
            return self.negated(self.read(wanted, depth))
        if name in _LOGICAL:
            if not isinstance(wanted, list | tuple) or not wanted:
                raise InputError(f"The filter's {name} takes a list of filters, not {_shown(wanted)}.")
            parts = [self.read(part, depth) for part in wanted]
            return self.all(parts) if name == "$and" else self.any(parts)
        if name.startswith("$"):
            advice = f"it belongs to a field: {{'field': {{'{name}': ...}}}}" if name in _OF_A_FIELD else _known(_LOGICAL)
            raise InputError(f"The filter's operator {name!r} is not one of filters; {advice}.")
        return self._field(name, wanted, depth)

    def _field(self, name: str, wanted: Any, depth: int) -> _Condition:
        if isinstance(wanted, Mapping) and any(isinstance(key, str) and key.startswith("$") for key in wanted):
            return self.all([self._operator(name, key, value, depth) for key, value in wanted.items()])
        return self.among(name, list(wanted) if isinstance(wanted, _LISTS) else [wanted])

    def _operator(self, name: str, word: Any, wanted: Any, depth: int) -> _Condition:
        match word:
            case "$eq":
                return self.among(name, [wanted])
            case "$ne":
                return self.negated(self.among(name, [wanted]))
            case "$in" | "$nin":
                if not isinstance(wanted, _LISTS):
                    raise InputError(f"The filter's {word} under {name!r} takes a list of values, not {_shown(wanted)}.")
                found = self.among(name, list(wanted))
                return found if word == "$in" else self.negated(found)
            case "$exists":
                if not isinstance(wanted, bool):
                    raise InputError(f"The filter's $exists under {name!r} takes True or False, not {_shown(wanted)}.")
                return self.exists(name) if wanted else self.negated(self.exists(name))
            case "$contains":
                return self.contains(name, wanted)
            case "$not":
                _check_depth(depth)
                return self.negated(self._field(name, wanted, depth + 1))
            case "$between":
                if not isinstance(wanted, list | tuple) or len(wanted) != 2:
                    raise InputError(f"The filter's $between under {name!r} takes two bounds, not {_shown(wanted)}.")
                return self.all([self._bound(name, "$gte", wanted[0]), self._bound(name, "$lte", wanted[1])])
            case str() if word in _ORDER:
                return self._bound(name, word, wanted)
        raise InputError(f"The filter's operator {word!r} under {name!r} is unknown; {_known(_OF_A_FIELD)}.")

    def _bound(self, name: str, word: str, bound: Any) -> _Condition:
        if _kind(bound) is None:
            raise InputError(f"The filter's {word} under {name!r} takes a number, a text or a date, not {_shown(bound)}.")
        return self.ordered(name, word, bound)


def predicate(condition: Filter) -> _Test:
    """A filter as a function that is True for the passages that may be returned.

    All keys of a mapping must hold. A key names a field; its value is one value, a list, tuple or set of possible values, or a
    mapping of operators, as in LangChain's vector stores:

    - `$eq`, `$ne`: equal or not.
    - `$gt`, `$gte`, `$lt`, `$lte`, `$between` (two bounds, both within): order of numbers, texts or dates.
    - `$in`, `$nin`: one of the values in a list, or none of them.
    - `$contains`: the field is a list that has the value, or a text that has the text in it.
    - `$exists`: True if the field must exist, False if it must not.
    - `$not`: a mapping of operators that do not all hold.

    `{"$and": [...]}` and `{"$or": [...]}` take lists of filters or functions; `{"$not": ...}` takes one filter or function. A
    missing field has the value None: it equals nothing else and has no order, so `$ne` and `$nin` hold.

    Raises:
        InputError: An operator is unknown or its value has the wrong kind; on a call, a passage's value cannot be compared.

    Example:
        >>> passes = predicate({"year": {"$gte": 2016, "$lt": 2020}, "$or": [{"lang": "en"}, {"lang": {"$exists": False}}]})
        >>> [passes(Document("", metadata=data)) for data in ({"year": 2016}, {"year": 2020}, {"year": 2017, "lang": "de"})]
        [True, False, False]
    """
    return _Tests().read(condition)


def allowed_passages(passages: Sequence[Document], condition: Filter | None) -> npt.NDArray[np.bool_] | None:
    """(n,), True for the passages that meet the condition; None without a condition."""
    if condition is None:
        return None
    passes = predicate(condition)
    return np.array([passes(passage) for passage in passages], dtype=np.bool_)


class _Tests(FilterEvaluator[_Test]):
    def all(self, parts: Sequence[_Test]) -> _Test:
        return parts[0] if len(parts) == 1 else lambda document: all(test(document) for test in parts)

    def negated(self, part: _Test) -> _Test:
        return lambda document: not part(document)

    def among(self, name: str, values: Sequence[Any]) -> _Test:
        try:
            known: Any = frozenset(values)
        except TypeError:
            known = values

        def test(document: Document) -> bool:
            try:
                return document.metadata.get(name) in known
            except TypeError:  # A list has no hash, and equals no known value.
                return False

        return test

    def exists(self, name: str) -> _Test:
        return lambda document: name in document.metadata

    def contains(self, name: str, wanted: Any) -> _Test:
        def test(document: Document) -> bool:
            value = document.metadata.get(name)
            if isinstance(value, str):
                return isinstance(wanted, str) and wanted in value
            return isinstance(value, _LISTS) and any(entry == wanted for entry in value)

        return test

    def ordered(self, name: str, word: str, bound: Any) -> _Test:
        kind, holds = _kind(bound), _ORDER[word]

        def test(document: Document) -> bool:
            value = document.metadata.get(name)
            if value is None or value != value:
                return False
            try:
                if _kind(value) == kind:
                    return bool(holds(value, bound))
            except TypeError:  # One time has a zone, the other has none.
                pass
            found = f"{name!r} of the passage {document.id!r} is {_shown(value)}"
            raise InputError(f"The filter's {word} compares with {_shown(bound)}, and {found}; these have no order.")

        return test

    def function(self, test: Callable[[Document], bool]) -> _Test:
        return lambda document: bool(test(document))


def _kind(value: Any) -> str | None:
    """The kind of values that a value can be compared with; None if it has no order."""
    if isinstance(value, str):
        return "text"
    if isinstance(value, bool):
        return None
    if isinstance(value, Real):
        # Only NaN differs from itself; `math.isnan` fails for a very large integer.
        return None if value != value else "number"
    if isinstance(value, datetime):
        return "time"
    return "date" if isinstance(value, date) else None


def _check_depth(depth: int) -> None:
    if depth > _DEEPEST:
        raise InputError(f"The filter is nested more than {_DEEPEST} levels deep; write it flatter.")


def _known(words: Sequence[str]) -> str:
    return f"known are {', '.join(words)}"


def _shown(value: Any) -> str:
    kinds = {"text": "the text ", "number": "the number "}
    return f"{kinds.get(_kind(value) or '', '')}{reprlib.repr(value)}"
