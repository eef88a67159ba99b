"""Redaction: hides secrets in the messages of errors."""

from __future__ import annotations

import json
import os
import re
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any
from urllib.parse import quote, quote_plus, unquote

HIDDEN = "[hidden]"
LONGEST = 20_000  # Longest text that is kept, in characters. All patterns take linear time.

_WORDS = (
    r"passw(?:or)?d|passphrase|pwd|secret|token|credentials?|session[-_]?id|signature"
    r"|(?:api|access|account|auth|private|secret|shared|signing|subscription|encryption)[-_ ]?key"
)
_QUOTED = (
    r"\\{1,4}\".{0,4000}?(?:\\{1,4}\"|$)|"
    r"[bru]?\"(?:[^\"\\]|\\.){0,4000}(?:\"|\\?$)|[bru]?'(?:[^'\\]|\\.){0,4000}(?:'|\\?$)|\{[^{}\n]{1,200}\}"
)
_PLAIN = r"[^\s\"'][^\s]*?(?=[\"'\]})>,;.:]*(?:\s|$))"
# In YAML a tag, an anchor or the mark of a block may stand before a value.
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
        # Names and values in any notation. The words of the second pattern have other meanings too, except in `name=value`.
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


def redact(text: str, secrets: Collection[str] = ()) -> str:
    r"""Hide secrets in a text: `secrets`, values of variables such as OPENAI_API_KEY, and all that looks like a secret.

    Args:
        text: A message; it is cut after 20,000 characters.
        secrets: Known secrets. They are also hidden if they are written as in an address or in JSON.

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
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
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
    """The secrets in an object: attributes of it and its parts that are named like a secret or typed `SecretStr`.

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
    """True if a word holds a digit, or a capital letter inside: it is probably no word of a sentence."""
    return any(ch.isdigit() for ch in value) or (value[1:] != value[1:].lower() and not value.isupper())
