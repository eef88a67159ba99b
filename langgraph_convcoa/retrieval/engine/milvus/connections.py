"""The connection to a Milvus server or file: shared by threads, bounded in time, with errors in words of ours."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.errors.redaction import redact
from langgraph_convcoa.retrieval.engine.deadline import end_of

if TYPE_CHECKING:
    from pymilvus import MilvusClient

SCHEMES = ("milvus", "milvuss", "milvus+file")
"""Schemes of addresses: of a server, of one that is reached by TLS, and of a file."""

_FORM = "milvus://user:password@host:19530/database?collection=NAME, or milvus+file:///folder/name.db?collection=NAME"
_EXTRA = 'Milvus needs the extra milvus: pip install "langgraph-convcoa[milvus]"'
_FULL = ("quota", "limit exceeded", "insufficient memory", "no space", "disk full")

_QUIET = {"grpc.keepalive_time_ms": 2**31 - 1, "grpc.keepalive_permit_without_calls": 0}
"""For a file: the client would ping an idle connection every 10 s; the server of a file takes that for an attack after
three, closes the connection, and what is asked at that moment fails."""

Ask = Callable[..., Any]
"""Calls a method of the client by its name, in what is left of the time-out."""


class Connections:
    """Asks one server, within a time-out, by a client that is made for the first question of a process."""

    def __init__(self, address: str, *, timeout: float, label: str) -> None:
        self.timeout, self.label = timeout, label
        self._settings = _settings(address)
        self.file = not self._settings["uri"].startswith("http")
        if find_spec("pymilvus") is None or (self.file and find_spec("milvus_lite") is None):
            raise RetrievalError(_EXTRA)
        self._client: MilvusClient | None = None
        self._guard, self._process = threading.Lock(), os.getpid()

    def __getstate__(self) -> dict[str, Any]:
        return {"timeout": self.timeout, "label": self.label, "_settings": self._settings, "file": self.file}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._clear()

    def asking(self, timeout: float | None = None) -> Ask:
        """What asks the server until the time-out, counted from now, is over."""
        limit = self.timeout if timeout is None else timeout
        end = end_of(limit)

        def ask(method: str, *arguments: Any, **named: Any) -> Any:
            return self._asked(method, arguments, named, limit, end)

        return ask

    def close(self) -> None:
        """Give up the client; it is made again when something is asked."""
        with self._guard:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _asked(self, method: str, arguments: tuple[Any, ...], named: dict[str, Any], limit: float, end: float) -> Any:
        import grpc
        from pymilvus.exceptions import MilvusException

        try:
            client = self._connected(end)
            left = end - time.monotonic()
            if left <= 0:
                raise RetrievalError(f"{self.label} did not answer within {limit:g} s; it is too busy, or stopped.")
            return getattr(client, method)(*arguments, timeout=left, **named)
        except (MilvusException, grpc.RpcError, ValueError) as error:
            raise self._worded(error, limit, end) from None

    def _connected(self, end: float) -> MilvusClient:
        from pymilvus import MilvusClient

        # Whatever goes wrong is raised; it would write it to the standard error as well, with what was asked.
        logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
        if self._process != os.getpid():
            # After a fork the client is the parent's.
            self._clear()
        with self._guard:
            if self._client is None:
                # Milvus in a file writes that it has no such methods as the client tries first.
                logger = logging.getLogger("grpc._server")
                level = logger.level
                logger.setLevel(logging.CRITICAL if self.file else level)
                try:
                    self._client = MilvusClient(
                        **self._settings,
                        dedicated=True,
                        timeout=max(0.1, end - time.monotonic()),
                        grpc_options=_QUIET if self.file else {},
                    )
                finally:
                    logger.setLevel(level)
            return self._client

    def _clear(self) -> None:
        self._client, self._guard, self._process = None, threading.Lock(), os.getpid()

    def _worded(self, error: Exception, limit: float, end: float) -> RetrievalError:
        text = str(getattr(error, "message", "") or error).strip()
        # Of several lines the first says it; of a retry what was tried.
        line = (text.splitlines() or [type(error).__name__])[0].rpartition("message=")[2]
        token = self._settings.get("token", "")
        reason = redact(line, {token, token.partition(":")[2]})[:200].rstrip(".")
        low = text.lower()
        if any(word in low for word in ("unavailable", "fail connecting", "connection refused", "connect failed")):
            return RetrievalError(
                f"{self.label} cannot be reached within {limit:g} s; see that the server runs, and the address."
            )
        if "deadline" in low or "timeout" in low or time.monotonic() >= end:
            return RetrievalError(f"{self.label} did not answer within {limit:g} s; it is too busy, or stopped.")
        if "open local milvus failed" in low:
            return RetrievalError(
                f"{self.label} cannot be opened; see that its folder is there and that no other process has the file open: "
                "several processes need a server."
            )
        if any(word in low for word in _FULL):
            return RetrievalError(f"{self.label} is full ({reason}); make room, and put the same again.")
        if "auth" in low or "permission" in low or "privilege" in low:
            return RetrievalError(f"{self.label} refuses the user, the password or the right to do this; see the address.")
        if "not found" in low or "can't find collection" in low or "not exist" in low:
            return RetrievalError(f"{self.label} is not there; add documents to make it, or name another collection.")
        return RetrievalError(f"{self.label} failed: {type(error).__name__}: {reason}.")


def place_of(address: str) -> str:
    """Where the server is, without user, password or options."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(address)
        name = parts.hostname or Path(unquote(parts.path)).name
        return f" at {name}" if name else ""
    return ""


def _settings(address: str) -> dict[str, str]:
    """An address as arguments of the client."""
    # What is malformed may be a password: nothing of it is shown.
    malformed = InputError(f"The address of Milvus cannot be read; write it {_FORM}.")
    try:
        parts = urlsplit(address)
        host, port, user, password = parts.hostname, parts.port or 19530, parts.username or "", parts.password or ""
    except ValueError:
        raise malformed from None
    if parts.query or parts.fragment:
        raise malformed
    if parts.scheme == "milvus+file":
        if parts.netloc or not parts.path.endswith(".db") or "\0" in unquote(parts.path):
            raise malformed
        return {"uri": unquote(parts.path)}
    database = unquote(parts.path.strip("/"))
    if not host or "/" in database:
        raise malformed
    place = f"[{host}]" if ":" in host else host
    secure = "https" if parts.scheme == "milvuss" else "http"
    # A user without a password is a key of a service.
    token = ":".join(unquote(part) for part in (user, password) if part)
    return {"uri": f"{secure}://{place}:{port}", "token": token or os.environ.get("MILVUS_TOKEN", ""), "db_name": database}
