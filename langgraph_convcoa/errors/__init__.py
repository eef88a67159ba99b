"""The exceptions of the library, messages without secrets, and checks of words, numbers and packages.

Every error that a user can fix is a `ConvCoAError`. Its message is one line that says what to do; the command line prints it
and exits with code 2. Messages are redacted when the error is created.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import quote, quote_plus, unquote

_Word = TypeVar("_Word", bound=str)
_LONGEST_MESSAGE = 4_000  # Longest message, in characters. A message may quote a damaged file.
HIDDEN = "[hidden]"
LONGEST = 20_000  # Longest text that `redact` returns, in characters. Every pattern takes linear time.

_WORDS = (
    r"passw(?:or)?d|passphrase|pwd|secret|token|credentials?|session[-_]?id|signature"
    r"|(?:api|access|account|auth|private|secret|shared|signing|subscription|encryption)[-_ ]?key"
)
_QUOTED = (
    r"\\{1,4}\".{0,4000}?(?:\\{1,4}\"|$)|"
    r"[bru]?\"(?:[^\"\\]|\\.){0,4000}(?:\"|\\?$)|[bru]?'(?:[^'\\]|\\.){0,4000}(?:'|\\?$)|\{[^{}\n]{1,200}\}"
)
_PLAIN = r"[^\s\"'][^\s]*?(?=[\"'\]})>,;.:]*(?:\s|$))"
# In YAML, a tag, an anchor or the mark of a block may stand before a value.
_TAG = r"(?:(?:!{1,2}[\w:/.,-]{0,40}|&\w{1,40}|[|>][+-]?\d?)\s{1,40})?"
_VALUE = rf"(?!\[hidden\]){_TAG}(?:{_QUOTED}|{_PLAIN})"
_IS = r"(?:\\{0,4}[\"']\s{0,5}(?:[:=,]|=>)|\s{0,5}(?:[:=]|=>|%3[aAdD]))\s{0,5}"
_SCHEMES = r"(?:Basic|Bearer|Token|Digest|Negotiate|NTLM|ApiKey|Api-Key|AWS4-HMAC-SHA256|SharedAccessSignature)"
_PATTERNS = tuple(
    (re.compile(pattern, re.IGNORECASE | re.MULTILINE), replacement)
    for pattern, replacement in (
        (r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]{0,20000}(?:-----END [A-Z ]{0,40}-----)?", HIDDEN),
        # Headers with their scheme. A cookie or a digest is hidden to the end of the line.
        (rf"(authorization{_IS})(?:{_QUOTED}|Digest\s[^\n]{{0,4000}}|(?:{_SCHEMES}\s{{1,5}})?{_PLAIN})", rf"\g<1>{HIDDEN}"),
        (rf"((?:set-)?cookie{_IS})(?:{_QUOTED}|[^\n]{{1,4000}})", rf"\g<1>{HIDDEN}"),
        (rf"\bbearer\s{{1,5}}{_VALUE}", HIDDEN),
        # Names and values in any notation. The words of the next pattern are common, so a quote or a `=` must follow them.
        (rf"((?:{_WORDS}){_IS}){_VALUE}", rf"\g<1>{HIDDEN}"),
        (
            rf"((?:key|sig|(?<![a-z])(?:pass|pw|auth))(?:\\{{0,4}}[\"']\s{{0,5}}[:=,]\s{{0,5}}|=|%3d)){_VALUE}",
            rf"\g<1>{HIDDEN}",
        ),
        (rf"(<[\w:.-]{{0,40}}(?:{_WORDS}|key)(?:\s[^<>]{{0,200}})?>)[^<]{{1,4000}}", rf"\g<1>{HIDDEN}"),
        (rf"(--[a-z-]{{0,40}}(?:{_WORDS}|key)\s{{1,5}}){_VALUE}", rf"\g<1>{HIDDEN}"),
        # User and password in an address; a password may hold a slash or an @.
        (
            r"(?<=://)(?!user(?::password)?@|reader@)"
            r"(?:[^\s/?#:@]{0,200}:(?!\d{1,5}[/?#])[^\s]{1,200}|[^\s/?#@]{1,200})@",
            f"{HIDDEN}@",
        ),
        (
            r"(?<![\w/@.])(?!mailto:)[a-z][\w.+%-]{0,60}(?::(?!//)[^\s@:\"'<>]{1,200}){1,2}@(?=[a-z\[]|\d{1,3}\.\d)",
            f"{HIDDEN}@",
        ),
        # Keys in the formats of providers.
        (
            r"\b(?:sk-|pk-|rk_|gh[oprsu]_|github_pat_|glpat-|xox[a-z]-|hf_|gsk_|tvly-|nvapi-|npm_|pypi-|dckr_pat_|[rs]k_(?:live|test)_|AKIA|ASIA|AIza|ya29\.|eyJ[\w-]{5,2000}\.)"
            r"[\w./+=*-]{3,4000}",
            HIDDEN,
        ),
    )
)
_LOOSE = re.compile(
    rf"((?:{_WORDS}|{_SCHEMES})(?:\s{{1,3}}(?:provided|given|used|was|is|of)){{0,2}}:?\s{{1,5}}[\"'(]?)([\w.+/=~-]{{6,4000}})",
    re.IGNORECASE,
)
_NAMES = re.compile(rf"(?:{_WORDS}|(?:^|_)(?:key|pass|auth))s?$", re.IGNORECASE)
_VARIABLES = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD)$")
_SHORTEST = 8
_DEEPEST, _MOST = 4, 2_000


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
    """The retriever cannot encode its input or cannot search."""


class ModelError(ConvCoAError):
    """A chat model cannot be built or did not answer (unknown name, missing key, refused, timed out)."""


class StoreError(ConvCoAError):
    """A conversation store cannot be opened, read or written."""


class ThreadBusyError(StoreError):
    """Another program is running a turn of the thread."""


def first_line(error: BaseException, secrets: Collection[str] = (), *, named: bool = False) -> str:
    r"""The first line of an error's message, without secrets; the name of its class if there is no message.

    `secrets` and all that looks like a secret are hidden. With `named`, the name of the class stands before the message.

    Example:
        >>> first_line(KeyError()), first_line(ValueError("It is full.\nTry again."), named=True)
        ('KeyError', 'ValueError: It is full.')
    """
    kind = type(error).__name__
    # sqlglot underlines words with terminal codes.
    lines = redact(re.sub(r"\x1b\[\d*m", "", str(error)).strip(), secrets).splitlines() or [""]
    line = lines[0][:300]
    return f"{kind}: {line}" if named and line else line or kind


def _short(text: str, most: int = _LONGEST_MESSAGE) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def redact(text: str, secrets: Collection[str] = ()) -> str:
    r"""Hide secrets in a text: `secrets`, values of variables such as OPENAI_API_KEY, and all that looks like a secret.

    The text is cut after 20,000 characters. `secrets` are hidden in the escaped forms of addresses and JSON, too.

    Example:
        >>> redact("401 for https://ana:pw@example.org/?key=x4 with Authorization: Basic YW5hOnB3")
        '401 for https://[hidden]@example.org/?key=[hidden] with Authorization: [hidden]'
        >>> redact("the user swordfish was refused", ["swordfish"])
        'the user [hidden] was refused'
    """
    kept = (value for name, value in os.environ.items() if _VARIABLES.search(name) and len(value) >= _SHORTEST)
    for secret in sorted({*secrets, *kept}, key=len, reverse=True):
        for form in {secret, quote(secret, safe=""), quote_plus(secret), unquote(secret), json.dumps(secret)[1:-1]}:
            if form:
                text = text.replace(form, HIDDEN)
    text = _short(text, LONGEST)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return _LOOSE.sub(lambda found: found[1] + (HIDDEN if _looks_secret(found[2]) else found[2]), text)


def is_ambiguous(address: str) -> bool:
    """True if an address has two @, or an @ after a slash: a driver may then show a part of the password as the host.

    Example:
        >>> [is_ambiguous(f"postgresql://me:{password}@db/docs") for password in ("a%40b", "a@b", "a/b")]
        [False, True, True]
    """
    server, _, path = address.partition("://")[2].partition("?")[0].partition("/")
    return server.count("@") > 1 or "@" in path


def secrets_of(thing: object) -> set[str]:
    """The secrets in an object and its parts: attributes that are named like a secret or have the type `SecretStr`.

    Example:
        >>> from types import SimpleNamespace
        >>> secrets_of(SimpleNamespace(client=SimpleNamespace(api_key="x4y5z6"), url="example.org"))
        {'x4y5z6'}
    """
    found: set[str] = set()
    left: deque[tuple[str, object, int]] = deque([("", thing, 0)])
    seen: set[int] = set()
    while left and len(seen) < _MOST:
        name, value, depth = left.popleft()
        if callable(reveal := getattr(type(value), "get_secret_value", None)):
            value, name = reveal(value), "secret"
        if isinstance(value, str):
            if _NAMES.search(name) and len(value) >= _SHORTEST // 2:
                found.add(value)
        elif id(value) not in seen and depth <= _DEEPEST and not isinstance(value, bytes | int | float | None):
            seen.add(id(value))
            left += [(own, part, depth + 1) for own, part in _parts(name, value)]
    return found


def _parts(name: str, value: object) -> Iterator[tuple[str, Any]]:
    # Another thread may change the object.
    with suppress(RuntimeError):
        if isinstance(value, Mapping):
            yield from ((str(key), part) for key, part in islice(value.items(), _MOST))
        elif hasattr(value, "_asdict"):
            yield from value._asdict().items()
        elif isinstance(value, list | tuple | set | frozenset):
            yield from ((name, part) for part in islice(value, _MOST))
        else:
            yield from islice(getattr(value, "__dict__", {}).items(), _MOST)


def _looks_secret(value: str) -> bool:
    """True if a word contains a digit or a capital letter after the first letter, as few words of a sentence do."""
    return any(ch.isdigit() for ch in value) or (value[1:] != value[1:].lower() and not value.isupper())


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
    """Return the value if it is a known word. Raises InputError otherwise.

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
