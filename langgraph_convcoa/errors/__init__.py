"""The exceptions of the library, the first line of an error, and checks of words, numbers and packages.

Every error that a user can fix is a `ConvCoAError`. Its message is one line that says what to do; the command line prints it
and exits with code 2. Messages are redacted when the error is created.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from importlib.util import find_spec
from typing import TypeVar

from langgraph_convcoa.errors.redaction import redact as redact

_Word = TypeVar("_Word", bound=str)
_LONGEST = 4_000  # Longest message, in characters: it may repeat the content of a damaged file.
_LONGEST_LINE = 300


class ConvCoAError(Exception):
    """Base of all errors of this library; its message is redacted.

    Example:
        >>> str(ConvCoAError("the server at https://ana:pw@example.org refused"))
        'the server at https://[hidden]@example.org refused'
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*(_short(redact(part)) if isinstance(part, str) else part for part in args))


class InputError(ConvCoAError, ValueError):
    """The question, the settings or another argument cannot be used as given."""


class DocumentError(ConvCoAError):
    """A document or a folder of documents cannot be read."""


class RetrievalError(ConvCoAError):
    """The retriever cannot encode or search what it was given."""


class ModelError(ConvCoAError):
    """A chat model cannot be built or did not answer (unknown name, missing key, refused, timed out)."""


class StoreError(ConvCoAError):
    """A conversation store cannot be opened, read or written."""


class ThreadBusyError(StoreError):
    """Another program is in a turn of the thread."""


def first_line(error: BaseException, secrets: Collection[str] = (), *, named: bool = False) -> str:
    r"""The first line of an error's message, without secrets; the name of its class if there is no message.

    `secrets` are hidden, and all that looks like a secret. With `named` the name of the class stands before the message.

    Example:
        >>> first_line(KeyError()), first_line(ValueError("It is full.\nTry again."), named=True)
        ('KeyError', 'ValueError: It is full.')
    """
    kind = type(error).__name__
    # sqlglot underlines words with terminal codes.
    lines = redact(re.sub(r"\x1b\[\d*m", "", str(error)).strip(), secrets).splitlines() or [""]
    line = lines[0][:_LONGEST_LINE]
    return f"{kind}: {line}" if named and line else line or kind


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def check_least(settings: object, **least: float) -> None:
    """Raise InputError if a field of settings is below its lowest value, infinite or NaN. A field may be None."""
    for name, lowest in least.items():
        number = getattr(settings, name)
        if number is not None and not lowest <= number < math.inf:
            raise InputError(f"{name} must be at least {lowest}, not {number}.")


def require(what: str, extra: str, *packages: str) -> None:
    """Raise InputError if a package of an extra is not installed. No package is imported."""
    for package in packages:
        if find_spec(package) is None:
            name = package.replace("_", "-")
            raise InputError(f'{what} needs {name}: pip install "langgraph-convcoa[{extra}]"')


def one_of(setting: str, value: str, known: Sequence[_Word]) -> _Word:
    """The value, if it is one of the words.

    Raises:
        InputError: The value is not one of the words.

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
