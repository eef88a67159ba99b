"""Milvus as the engine of a corpus, and the connection to a server or file, with a time-out and errors in plain words."""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

import numpy as np

from langgraph_convcoa.errors import InputError, RetrievalError, redact
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.engine.base import ServerEngine, Statistics, StoredPassage, end_of, numbered
from langgraph_convcoa.retrieval.engine.milvus import rows as form
from langgraph_convcoa.retrieval.engine.milvus.rows import Row, condition_of, key
from langgraph_convcoa.retrieval.filters import Filter

# Windows that are searched for each wanted passage, and Milvus's limit for one search.
_WINDOWS, _MOST = 3, 16_384
_LONGEST_VECTOR = 12_000
_KEYS = 1_000
# Extra seconds for each written passage, and seconds for `settle`.
_WRITING, _SETTLING = 0.05, 3_600.0
# Schemes of addresses: a server, a server with TLS, a file.
SCHEMES = ("milvus", "milvuss", "milvus+file")
# A function that calls a method of the client by name, within the rest of a time-out.
Ask: TypeAlias = Callable[..., Any]

_FORM = "milvus://user:password@host:19530/database?collection=NAME, or milvus+file:///folder/name.db?collection=NAME"
# The client pings an idle connection every 10 s. milvus-lite takes three pings for an attack and closes it.
_QUIET = {"grpc.keepalive_time_ms": 2**31 - 1, "grpc.keepalive_permit_without_calls": 0}
_LATE = "{label} did not answer within {limit:g} s; it is too busy, or stopped."
# Patterns in the driver's errors, and the message for each pattern.
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


class MilvusEngine(ServerEngine):
    """Passages of a tenant in two collections of a Milvus server (2.5 or newer) or of a file by milvus-lite.

    One collection has a row for each window, for searches. The other has a row for each passage, with all stored data. Milvus
    has no transactions. A document's first passage has the digest; this passage is deleted first and written last. So if a
    writer is killed, the document has no digest, and the next load writes it again. Two writers must not write one document
    at the same time. Milvus counts the passages with a word. The mean length is taken over up to 16,384 passages.

    Args:
        address: milvus://user:password@host:19530/database, milvuss:// for TLS, or milvus+file:///folder/name.db, which one
            process may have open. User and password may be in MILVUS_TOKEN instead, as user:password.
        collection: Up to 40 lower-case letters, digits and _.
        tenant: The owner of the passages; passages of other tenants are neither seen nor changed.
        timeout: Seconds until an answer; writing may take 0.05 s more for each passage. `settle` has an hour.
    """

    version = 2
    variables = ("MILVUS_TOKEN",)

    def __init__(self, address: str, *, collection: str, tenant: str = "default", timeout: float = 10.0) -> None:
        super().__init__("Milvus", address, collection, tenant, timeout)
        self._connections: Connections = Connections(address, timeout=self.timeout, label=self.name)
        self._names = {kind: f"convcoa_{collection}_{kind}" for kind in ("passages", "windows")}
        self._whose = key("tenant", tenant)

    def search(self, vectors: Vectors, k: int, condition: Filter | None = None) -> list[list[str]]:
        where, ask = self._where(condition_of(condition)), self._connections.asking()
        return [self._near(ask, vector, k, where) for vector in np.asarray(vectors, dtype=np.float32).tolist()]

    def words(self, weights: Mapping[str, float], mean_length: float, k: int, condition: Filter | None = None) -> list[str]:
        where, ask = self._where(condition_of(condition)), self._connections.asking()
        return self._named(ask, "passages", "words", form.word_vector(weights), min(k, _MOST), where) if weights else []

    def patterns(self, ids: Sequence[str]) -> list[StoredPassage]:
        keys = {key(self._whose, name): name for name in ids}
        rows = self._rows("key", [*keys], ["key", "content"])
        found = {keys[row["key"]]: form.stored_of(row) for row in rows}
        return [found[name] for name in dict.fromkeys(ids) if name in found]

    def parts(self, documents: Sequence[str]) -> dict[str, list[str]]:
        keys = {key(self._whose, name): name for name in documents}
        found: dict[str, list[str]] = {}
        for row in sorted(self._rows("document", [*keys], ["document", "part", "id"]), key=lambda row: row["part"]):
            found.setdefault(keys[row["document"]], []).append(row["id"])
        return found

    def digests(self, documents: Sequence[str]) -> dict[str, bytes]:
        keys = {key(self._whose, name): name for name in documents}
        rows = self._rows("document", [*keys], ["document", "digest"], " and part == 1")
        return {keys[row["document"]]: bytes.fromhex(row["digest"]) for row in rows}

    def put(self, passages: Sequence[StoredPassage]) -> None:
        if not passages:
            return
        made = [form.rows_of(self._whose, part, passage) for part, passage in numbered(passages)]
        rows, windows = [row for row, _ in made], [window for _, own in made for window in own]
        ask = self._writing(len(passages))
        self._check_open(ask)
        keys, documents = {row["key"] for row in rows}, {row["document"] for row in rows}
        there = self._rows("key", [*keys], ["document"], ask=ask)
        if len(keys) < len(passages) or any(row["document"] not in documents for row in there):
            raise self._taken()
        self._remove(ask, {passage.document for passage in passages})
        first, others = ([row for row in rows if (row["part"] == 1) is one] for one in (True, False))
        for kind, written in (("passages", others), ("windows", windows), ("passages", first)):
            for message in form.messages(written):
                ask("upsert", self._names[kind], message)

    def settle(self) -> None:
        ask = self._connections.asking(_SETTLING)
        for name in self._names.values():
            ask("flush", name)

    def delete(self, documents: Sequence[str]) -> None:
        if documents:
            self._remove(self._writing(len(documents)), documents)

    def statistics(self, terms: Iterable[str]) -> Statistics:
        ask, filled, asked = self._connections.asking(), self._where("length > 0"), [*dict.fromkeys(terms)]
        counts = self._counts(ask, [*map(form.term_hash, asked)])
        lengths = ask("query", self._names["passages"], filter=filled, output_fields=["length"], limit=_MOST)
        mean = sum(row["length"] for row in lengths) / max(len(lengths), 1)
        return Statistics(self._count(ask, filled), mean, {term: n for term, n in zip(asked, counts, strict=True) if n})

    def count(self) -> int:
        ask = self._connections.asking()
        return self._count(ask, self._where(None)) if ask("has_collection", self._names["passages"]) else 0

    def _where(self, condition: str | None) -> str:
        """An expression for the tenant and the condition."""
        return f'tenant == "{self._whose}"' + ("" if condition is None else f" and ({condition})")

    def _writing(self, passages: int) -> Ask:
        return self._connections.asking(self.timeout + _WRITING * passages)

    def _prepared(self, dimension: int, encoder: str, create: bool) -> bool:
        ask = self._connections.asking()
        if not self._checked(ask, dimension, encoder):
            if not create:
                return False
            # The indexes of an empty collection take time too.
            ask = self._writing(200)
            self._create(ask, dimension, encoder)
            self._checked(ask, dimension, encoder)
        # Necessary after a restart, or if the process that made the collection was killed.
        for name in self._names.values():
            ask("load_collection", name)
        return True

    def _found(self, server: Ask) -> tuple[int, int, str] | None:
        if not server("has_collection", self._names["passages"]):
            return None
        about = server("describe_collection", self._names["passages"])
        try:
            # milvus-lite keeps the properties only.
            version, length, name = json.loads(about.get("properties", {}).get("convcoa.head") or about.get("description", ""))
            return int(version), int(length), str(name)
        except (TypeError, ValueError):
            raise RetrievalError(f"{self.name} was not made by this library; name another collection.") from None

    def _create(self, ask: Ask, dimension: int, encoder: str) -> None:
        if not 2 <= dimension <= _LONGEST_VECTOR:
            raise InputError(f"Milvus holds vectors of 2 to {_LONGEST_VECTOR:,} numbers here, not {dimension}.")
        made = form.definitions(dimension, json.dumps([self.version, dimension, encoder]), file=self._connections.file)
        # `_found` looks for the collection of passages, so that is made last.
        for kind in ("windows", "passages"):
            try:
                ask("create_collection", self._names[kind], **made[kind])
            except RetrievalError:
                # Another process may have made it with other settings.
                if not ask("has_collection", self._names[kind]):
                    raise

    def _near(self, ask: Ask, vector: list[float], k: int, where: str) -> list[str]:
        wanted = min(_WINDOWS * k, _MOST)
        while True:
            hits = self._named(ask, "windows", "vector", vector, wanted, where)
            found = list(dict.fromkeys(hits))
            # Many windows of a few passages may have filled the result.
            if len(found) >= k or len(hits) < wanted or wanted == _MOST:
                return found[:k]
            wanted = min(4 * wanted, _MOST)

    def _named(self, ask: Ask, kind: str, field: str, vector: object, limit: int, where: str) -> list[str]:
        """The passages' ids in the rows with the greatest products."""
        breadth = {"params": {"ef": min(max(2 * limit, 100), 32_768)}} if kind == "windows" else {}
        options = {"search_params": {"metric_type": "IP", **breadth}, "output_fields": ["id"]}
        [hits] = ask("search", self._names[kind], data=[vector], anns_field=field, filter=where, limit=limit, **options)
        return [hit["entity"]["id"] for hit in hits]

    def _rows(self, field: str, values: Sequence[str], fields: list[str], more: str = "", ask: Ask | None = None) -> list[Row]:
        """The rows of passages whose `field` is one of `values`."""
        ask, name = ask or self._connections.asking(), self._names["passages"]
        wheres = self._among(field, values, more)
        return [row for where in wheres for row in ask("query", name, filter=where, output_fields=fields)]

    def _among(self, field: str, values: Sequence[str], more: str = "") -> Iterator[str]:
        for start in range(0, len(values), _KEYS):
            listed = ", ".join(f'"{value}"' for value in values[start : start + _KEYS])
            yield f"{self._where(None)} and {field} in [{listed}]{more}"

    def _remove(self, ask: Ask, documents: Iterable[str]) -> None:
        """Delete all rows of documents, the rows with the digests first."""
        keys = [key(self._whose, name) for name in documents]
        for kind, more in (("passages", " and part == 1"), ("windows", ""), ("passages", "")):
            for where in self._among("document", keys, more):
                ask("delete", self._names[kind], filter=where)

    def _count(self, ask: Ask, where: str) -> int:
        [row] = ask("query", self._names["passages"], filter=where, output_fields=["count(*)"])
        return int(row["count(*)"])

    def _counts(self, ask: Ask, terms: Sequence[str]) -> list[int]:
        """The number of passages with each of these hashed words."""
        if self._connections.file:
            # milvus-lite reads all rows for each count.
            rows = ask("query", self._names["passages"], filter=self._where(None), output_fields=["terms"])
            every = Counter(term for row in rows for term in row["terms"])
            return [every[term] for term in terms]
        with ThreadPoolExecutor(8) as pool:
            return [*pool.map(lambda term: self._count(ask, self._where(f'array_contains(terms, "{term}")')), terms)]


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
        self._client: Any = None  # A `MilvusClient`.
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

    def _connected(self, end: float) -> Any:
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
