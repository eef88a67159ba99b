"""The connection to a Milvus server or file: shared by threads, with a time-out and errors in plain words."""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote, urlsplit

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.errors.redaction import redact
from langgraph_convcoa.retrieval.engine.base import end_of

if TYPE_CHECKING:
    from pymilvus import MilvusClient

SCHEMES = ("milvus", "milvuss", "milvus+file")
"""Schemes of addresses: a server, a server with TLS, a file."""

Ask: TypeAlias = Callable[..., Any]
"""A function that calls a method of the client by name, within the rest of a time-out."""

_FORM = "milvus://user:password@host:19530/database?collection=NAME, or milvus+file:///folder/name.db?collection=NAME"
# The client pings an idle connection every 10 s. milvus-lite takes three pings for an attack and closes it.
_QUIET = {"grpc.keepalive_time_ms": 2**31 - 1, "grpc.keepalive_permit_without_calls": 0}
_LATE = "{label} did not answer within {limit:g} s; it is too busy, or stopped."
_FAILURES = {
    r"unavailable|fail connecting|connection refused|connect failed": (
        "{label} cannot be reached within {limit:g} s; see that the server runs, and the address."
    ),
    r"deadline|timeout": _LATE,
    r"open local milvus failed": (
        "{label} cannot be opened; see that its folder is there and that no other process has the file open: several "
        "processes need a server."
    ),
    r"quota|limit exceeded|insufficient memory|no space|disk full": (
        "{label} is full ({reason}); make room, and put the same again."
    ),
    r"auth|permission|privilege": "{label} refuses the user, the password or the right to do this; see the address.",
}
"""Patterns in the driver's errors, and the message for each pattern."""


class Connections:
    """Calls one server within a time-out. Each process makes its own client at its first call."""

    def __init__(self, address: str, *, timeout: float, label: str) -> None:
        self.timeout, self.label, self._address = timeout, label, address
        self.settings = _settings(address)
        self.file = not self.settings["uri"].startswith("http")
        if find_spec("pymilvus") is None or (self.file and find_spec("milvus_lite") is None):
            raise RetrievalError('Milvus needs the extra milvus: pip install "langgraph-convcoa[milvus]"')
        self._clear()

    def _clear(self) -> None:
        self._client: MilvusClient | None = None
        self._guard, self._process = threading.Lock(), os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), self._address, timeout=self.timeout, label=self.label), ()

    def asking(self, timeout: float | None = None) -> Ask:
        """A function that calls the server, with a time-out that starts now."""
        limit = self.timeout if timeout is None else timeout
        return partial(self.ask, limit, end_of(limit))

    def ask(self, limit: float, end: float, method: str, /, *arguments: Any, **named: Any) -> Any:
        """Call a method of the client, which must end by `end`, and return its result."""
        import grpc
        from pymilvus.exceptions import MilvusException

        try:
            client = self._connected(end)
            left = end - time.monotonic()
            if left <= 0:
                raise RetrievalError(_LATE.format(label=self.label, limit=limit))
            return getattr(client, method)(*arguments, timeout=left, **named)
        except (MilvusException, grpc.RpcError, ValueError) as error:
            raise self._worded(error, limit, end) from None

    def close(self) -> None:
        """Close the client; a later call makes a new one."""
        with self._guard:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _connected(self, end: float) -> MilvusClient:
        """The client of this process, which must connect by `end`."""
        from pymilvus import MilvusClient

        # Errors are raised. The loggers would also write them, with the text of the question.
        for name in ("pymilvus", *(["grpc._server"] if self.file else [])):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        if self._process != os.getpid():
            # After a fork the client is the parent's.
            self._clear()
        with self._guard:
            if self._client is None:
                left, quiet = max(0.1, end - time.monotonic()), _QUIET if self.file else {}
                self._client = MilvusClient(**self.settings, dedicated=True, timeout=left, grpc_options=quiet)
            return self._client

    def _worded(self, error: Exception, limit: float, end: float) -> RetrievalError:
        text = str(getattr(error, "message", "") or error).strip()
        # The first line has the reason; a retry wraps it.
        line = (text.splitlines() or [type(error).__name__])[0].rpartition("message=")[2]
        token = self.settings.get("token", "")
        reason = redact(line, {token, token.partition(":")[2]})[:200].rstrip(".")
        late = _LATE if time.monotonic() >= end else f"{{label}} failed: {type(error).__name__}: {{reason}}."
        said = next((said for words, said in _FAILURES.items() if re.search(words, text.lower())), late)
        return RetrievalError(said.format(label=self.label, limit=limit, reason=reason))


def _settings(address: str) -> dict[str, str]:
    """An address as arguments of the client."""
    # A malformed part may be a password: it is not shown.
    malformed = InputError(f"The address of Milvus cannot be read; write it {_FORM}.")
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port or 19530
    except ValueError:
        raise malformed from None
    path, file = unquote(parts.path), parts.scheme == "milvus+file"
    wrong = parts.netloc or not path.endswith(".db") or "\0" in path if file else not host or "/" in path.strip("/")
    if parts.query or parts.fragment or wrong:
        raise malformed
    if file:
        return {"uri": path}
    # A user name without a password is the API key of a hosted service.
    token = ":".join(unquote(part) for part in (parts.username, parts.password) if part)
    place, secure = f"[{host}]" if ":" in str(host) else host, "https" if parts.scheme == "milvuss" else "http"
    named = {"token": token or os.environ.get("MILVUS_TOKEN", ""), "db_name": path.strip("/")}
    return {"uri": f"{secure}://{place}:{port}", **named}
