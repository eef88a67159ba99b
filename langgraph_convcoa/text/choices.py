"""Settings that are one of a few words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from langgraph_convcoa.errors import InputError

_Word = TypeVar("_Word", bound=str)


def one_of(setting: str, value: str, known: Sequence[_Word]) -> _Word:
    """The value, known to be one of the words.

    Raises:
        InputError: It is none of them.

    Example:
        >>> one_of("dtype", "int8", ("float32", "int8"))
        'int8'
        >>> one_of("dtype", "int4", ("float32", "int8"))
        Traceback (most recent call last):
        langgraph_convcoa.errors.InputError: dtype must be one of float32, int8, not 'int4'.
    """
    for word in known:
        if word == value:
            return word
    raise InputError(f"{setting} must be one of {', '.join(known)}, not {value!r}.")
