"""Milvus as the engine of a corpus, on a server or in a file."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

import numpy as np

from langgraph_convcoa.errors import InputError, RetrievalError, first_line
from langgraph_convcoa.retrieval.changes import batched
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.engine.base import ServerEngine, Statistics, StoredPassage, end_of, numbered
from langgraph_convcoa.retrieval.engine.milvus import rows as form
from langgraph_convcoa.retrieval.engine.milvus.rows import Row, condition_of, key, statement
from langgraph_convcoa.retrieval.filters import Filter

# Windows that are searched for each wanted passage, and Milvus's limit for one search.
_WINDOWS, _MOST = 3, 16_384
_LONGEST_VECTOR = 12_000
_KEYS = 1_000
# Rows of a message, and bytes of their JSON.
_MOST_ROWS, _MOST_BYTES = 1_000, 16_000_000
# Extra seconds for each written passage, and seconds for `settle`.
_WRITING, _SETTLING = 0.05, 3_600.0
# Schemes of addresses: a server, a server with TLS, a file.
SCHEMES = ("milvus", "milvuss", "milvus+file")
# A function that calls a method of the client for a kind of collection, within the rest of a time-out.
Ask: TypeAlias = Callable[..., Any]

_FORM = "milvus://user:password@host:19530/database?collection=NAME, or milvus+file:///folder/name.db?collection=NAME"
# The client pings an idle connection every 10 s. milvus-lite takes three pings for an attack and closes the connection.
_QUIET = {"grpc.keepalive_time_ms": 2**31 - 1, "grpc.keepalive_permit_without_calls": 0}
_LATE = "{name} did not answer within {limit:g} s; it is too busy, or stopped."
# Patterns in the driver's errors, and the message for each pattern.
_FAILURES = {
    r"unavailable|fail connecting|connection refused|connect failed": (
        "{name} cannot be reached within {limit:g} s; check that the server runs and that the address is right."
    ),
    r"deadline|timeout": _LATE,
    r"open local milvus failed": (
        "{name} cannot be opened; see that its folder is there and that no other process has the file open: several "
        "processes need a server."
    ),
    r"quota|limit exceeded|insufficient memory|no space|disk full": (
        "{name} is full ({reason}); make room, and add the same documents again."
    ),
    r"auth|permission|privilege": "{name} refuses the user, the password or the right to do this; see the address.",
}


class MilvusEngine(ServerEngine):
    """Passages of a tenant in two collections, on a Milvus server (2.5 or newer) or in a file through milvus-lite.

    One collection has a row for each window, for searches. The other has a row for each passage, with all stored data. Milvus
    has no transactions. A document's first passage has the digest; this passage is deleted first and written last. So if a
    writer is killed, the document has no digest, and the next load writes it again. Two writers must not write the same
    document at the same time. Milvus counts the passages that have a word. The mean length is over up to 16,384 passages.

    Args:
        address: milvus://user:password@host:19530/database, milvuss:// for TLS, or milvus+file:///folder/name.db; only one
            process may have that file open. User and password may be in MILVUS_TOKEN instead, as user:password.
        collection: Up to 40 lower-case letters, digits and _.
        tenant: The owner of the passages; passages of other tenants are neither seen nor changed.
        timeout: Seconds until an answer; writing may take 0.05 s more for each passage. `settle` has an hour.
    """

    version = 3
    variables = ("MILVUS_TOKEN",)

    def __init__(self, address: str, *, collection: str, tenant: str = "default", timeout: float = 10.0) -> None:
        super().__init__("Milvus", address, collection, tenant, timeout)
        self._address, self._settings = address, _settings(address)
        self._file = not self._settings["uri"].startswith("http")
        if find_spec("pymilvus") is None or (self._file and find_spec("milvus_lite") is None):
            raise RetrievalError('Milvus needs the extra milvus: pip install "langgraph-convcoa[milvus]"')
        self._whose = key("tenant", tenant)
        self._clients: dict[int, Any] = {}  # A `MilvusClient` for each process: a fork cannot use its parent's.

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), collection=self.collection, tenant=self.tenant, timeout=self.timeout), (self._address,)

    def search(self, vectors: Vectors, k: int, condition: Filter | None = None) -> list[list[str]]:
        where, ask = self._where(condition_of(condition)), self._asking()
        return [self._near(ask, vector, k, where) for vector in np.asarray(vectors, dtype=np.float32).tolist()]

    def words(self, weights: Mapping[str, float], mean_length: float, k: int, condition: Filter | None = None) -> list[str]:
        where, ask = self._where(condition_of(condition)), self._asking()
        return self._named(ask, "passages", "words", form.word_vector(weights), min(k, _MOST), where) if weights else []

    def patterns(self, ids: Sequence[str]) -> list[StoredPassage]:
        found = {name: form.stored_of(row) for name, row in self._rows(self._asking(), "key", ids, "content")}
        return [found[name] for name in dict.fromkeys(ids) if name in found]

    def parts(self, documents: Sequence[str]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        rows = self._rows(self._asking(), "document", documents, "part", "id")
        for name, row in sorted(rows, key=lambda pair: pair[1]["part"]):
            found.setdefault(name, []).append(row["id"])
        return found

    def digests(self, documents: Sequence[str]) -> dict[str, bytes]:
        rows = self._rows(self._asking(), "document", documents, "digest", where="part == 1")
        return {name: bytes.fromhex(row["digest"]) for name, row in rows}

    def put(self, passages: Sequence[StoredPassage]) -> None:
        if not passages:
            return
        made = [form.rows_of(self._whose, part, passage) for part, passage in numbered(passages)]
        rows, windows = [row for row, _ in made], [window for _, own in made for window in own]
        ask = self._asking(_WRITING * len(passages))
        self._check_open(ask)
        ids, documents = {passage.id for passage in passages}, {row["document"] for row in rows}
        there = self._rows(ask, "key", ids, "document")
        if len(ids) < len(passages) or any(row["document"] not in documents for _, row in there):
            raise self._taken()
        self._remove(ask, {passage.document for passage in passages})
        first, others = ([row for row in rows if (row["part"] == 1) is one] for one in (True, False))
        for kind, written in (("passages", others), ("windows", windows), ("passages", first)):
            for message in batched(
                written, _MOST_ROWS, _MOST_BYTES, lambda row: len(json.dumps(row, ensure_ascii=False).encode())
            ):
                ask("upsert", kind, message)

    def settle(self) -> None:
        ask = self._asking(_SETTLING)
        for kind in form.KINDS:
            ask("flush", kind)

    def delete(self, documents: Sequence[str]) -> None:
        if documents:
            self._remove(self._asking(_WRITING * len(documents)), documents)

    def statistics(self, terms: Iterable[str]) -> Statistics:
        ask, filled, asked = self._asking(), self._where("length > 0"), [*dict.fromkeys(terms)]
        counts = self._counts(ask, [*map(statement, asked)])
        lengths = ask("query", "passages", filter=filled, output_fields=["length"], limit=_MOST)
        mean = sum(row["length"] for row in lengths) / max(len(lengths), 1)
        return Statistics(self._count(ask, filled), mean, {term: n for term, n in zip(asked, counts, strict=True) if n})

    def count(self) -> int:
        ask = self._asking()
        return self._count(ask, self._where()) if ask("has_collection", "passages") else 0

    def _where(self, *conditions: str | None) -> str:
        return " and ".join([f'tenant == "{self._whose}"', *filter(None, conditions)])

    def _prepared(self, dimension: int, encoder: str, create: bool) -> bool:
        ask = self._asking()
        if not self._checked(ask, dimension, encoder):
            if not create:
                return False
            if not 2 <= dimension <= _LONGEST_VECTOR:
                raise InputError(f"Milvus holds vectors of 2 to {_LONGEST_VECTOR:,} numbers here, not {dimension}.")
            # The indexes of an empty collection take time too.
            ask, head = self._asking(_WRITING * 200), json.dumps([self.version, dimension, encoder])
            # `_found` looks for the collection of passages, so this collection is made last.
            for kind in form.KINDS:
                try:
                    ask("create_collection", kind, **form.definition(kind, dimension, head, file=self._file))
                except RetrievalError:
                    # Another process may have made it with other settings.
                    if not ask("has_collection", kind):
                        raise
            self._checked(ask, dimension, encoder)
        # Loading is necessary after a restart, or if the process that made the collection was killed.
        for kind in form.KINDS:
            ask("load_collection", kind)
        return True

    def _found(self, server: Ask) -> tuple[int, int, str] | None:
        if not server("has_collection", "passages"):
            return None
        about = server("describe_collection", "passages")
        try:
            # milvus-lite keeps the properties only.
            version, length, name = json.loads(about.get("properties", {}).get("convcoa.head") or about.get("description", ""))
            return int(version), int(length), str(name)
        except (TypeError, ValueError):
            raise RetrievalError(f"{self.name} was not made by this library; name another collection.") from None

    def _near(self, ask: Ask, vector: list[float], k: int, where: str) -> list[str]:
        wanted = min(_WINDOWS * k, _MOST)
        while True:
            hits = self._named(ask, "windows", "vector", vector, wanted, where, ef=min(max(2 * wanted, 100), 32_768))
            found = list(dict.fromkeys(hits))
            # Many windows of a few passages may have filled the result.
            if len(found) >= k or len(hits) < wanted or wanted == _MOST:
                return found[:k]
            wanted = min(4 * wanted, _MOST)

    def _named(self, ask: Ask, kind: str, field: str, vector: object, limit: int, where: str, **breadth: int) -> list[str]:
        options = {"search_params": {"metric_type": "IP", "params": breadth}, "output_fields": ["id"]}
        [hits] = ask("search", kind, data=[vector], anns_field=field, filter=where, limit=limit, **options)
        return [hit["entity"]["id"] for hit in hits]

    def _rows(self, ask: Ask, field: str, names: Iterable[str], *fields: str, where: str = "") -> Iterator[tuple[str, Row]]:
        """Yield (name, row) for each row of the named passages (field "key") or documents (field "document")."""
        keys = {key(self._whose, name): name for name in names}
        for one in self._among(field, keys, where):
            for row in ask("query", "passages", filter=one, output_fields=[field, *fields]):
                yield keys[row[field]], row

    def _among(self, field: str, keys: Iterable[str], where: str = "") -> Iterator[str]:
        for part in batched(keys, _KEYS):
            listed = ", ".join(f'"{one}"' for one in part)
            yield self._where(f"{field} in [{listed}]", where)

    def _remove(self, ask: Ask, documents: Iterable[str]) -> None:
        """Delete all rows of documents, the rows with the digests first."""
        keys = [key(self._whose, name) for name in documents]
        for kind, first in (("passages", "part == 1"), ("windows", ""), ("passages", "")):
            for where in self._among("document", keys, first):
                ask("delete", kind, filter=where)

    def _count(self, ask: Ask, where: str) -> int:
        [row] = ask("query", "passages", filter=where, output_fields=["count(*)"])
        return int(row["count(*)"])

    def _counts(self, ask: Ask, terms: Sequence[str]) -> list[int]:
        if self._file:
            # milvus-lite reads all rows for each count.
            rows = ask("query", "passages", filter=self._where("length > 0"), output_fields=["facts"])
            every = Counter(fact for row in rows for fact in row["facts"])
            return [every[term] for term in terms]
        with ThreadPoolExecutor(8) as pool:
            return [*pool.map(lambda term: self._count(ask, self._where(f'array_contains(facts, "{term}")')), terms)]

    def close(self) -> None:
        if (client := self._clients.pop(os.getpid(), None)) is not None:
            client.close()

    def _asking(self, more: float = 0) -> Ask:
        """A function that calls the client. All its calls share one time-out, which starts now: `timeout` plus `more`."""
        limit = self.timeout + more
        return partial(self._ask, limit, end_of(limit))

    def _ask(self, limit: float, end: float, method: str, kind: str, /, *arguments: Any, **named: Any) -> Any:
        """Call a method of the client on the collection of a kind. The call must end by `end`."""
        import grpc
        from pymilvus.exceptions import MilvusException

        try:
            call = getattr(self._client(end), method)
            left = max(0.001, end - time.monotonic())
            return call(f"convcoa_{self.collection}_{kind}", *arguments, timeout=left, **named)
        except (MilvusException, grpc.RpcError, ValueError) as error:
            token = self._settings.get("token", "")
            # The first line holds the reason. If the client retried, its own words stand before the reason.
            line = first_line(error, {token, token.partition(":")[2]})
            reason = line.rpartition("message=")[2].rstrip(".)>")
            other = _LATE if time.monotonic() >= end else f"{{name}} failed: {type(error).__name__}: {{reason}}."
            said = next((said for words, said in _FAILURES.items() if re.search(words, str(error).lower())), other)
            raise RetrievalError(said.format(name=self.name, limit=limit, reason=reason)) from None

    def _client(self, end: float) -> Any:
        """The client of this process. It must connect by `end`."""
        if (client := self._clients.get(os.getpid())) is not None:
            return client
        from pymilvus import MilvusClient

        # Errors are raised. The loggers would also write them, with the text of the question.
        for name in ("pymilvus", *(["grpc._server"] if self._file else [])):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        left, quiet = max(0.1, end - time.monotonic()), _QUIET if self._file else {}
        made = MilvusClient(**self._settings, dedicated=True, timeout=left, grpc_options=quiet)
        # Another thread may have made one meanwhile.
        if (client := self._clients.setdefault(os.getpid(), made)) is not made:
            made.close()
        return client


def _settings(address: str) -> dict[str, str]:
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port or 19530
    except ValueError:
        host, port, parts = None, 0, urlsplit("")
    path, file = unquote(parts.path), parts.scheme == "milvus+file"
    wrong = parts.netloc or not path.endswith(".db") or "\0" in path if file else not host or "/" in path.strip("/")
    if parts.query or parts.fragment or wrong:
        # A malformed part may be a password: it is not shown.
        raise InputError(f"The address of Milvus cannot be read; write it {_FORM}.")
    if file:
        return {"uri": path}
    # A user name without a password is the API key of a hosted service.
    token = ":".join(unquote(part) for part in (parts.username, parts.password) if part)
    place, secure = f"[{host}]" if ":" in str(host) else host, "https" if parts.scheme == "milvuss" else "http"
    named = {"token": token or os.environ.get("MILVUS_TOKEN", ""), "db_name": path.strip("/")}
    return {"uri": f"{secure}://{place}:{port}", **named}
