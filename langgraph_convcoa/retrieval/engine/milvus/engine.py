"""Milvus as the engine of a corpus."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain

import numpy as np

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.encoders.base import Vectors, without_arithmetic
from langgraph_convcoa.retrieval.engine.base import Engine, Statistics, StoredPassage, check_tenant
from langgraph_convcoa.retrieval.engine.milvus.conditions import condition_of
from langgraph_convcoa.retrieval.engine.milvus.connections import Ask, Connections, place_of
from langgraph_convcoa.retrieval.engine.milvus.rows import (
    FILLED,
    LENGTH_BITS,
    Row,
    key,
    length_bit,
    passage_key,
    rows_of,
    stored_of,
    term_hash,
    word_vector,
)
from langgraph_convcoa.retrieval.engine.milvus.schema import (
    LONGEST_VECTOR,
    check_head,
    definitions,
    head_of,
    names_of,
)
from langgraph_convcoa.retrieval.filters import Filter

# Windows are fetched, and a passage may be found by several of its own; Milvus names no more than so many.
_WINDOWS, _MOST = 3, 16_384
# Keys in one expression, and rows in one message, whose bytes are bounded too.
_KEYS, _ROWS, _BYTES = 1_000, 1_000, 16_000_000
# Writing takes longer than a search: so many seconds more a passage.
_WRITING = 0.05
# Questions at a time for the numbers of words, and the seconds for which these are kept.
_AT_ONCE, _KEPT = 8, 30.0
_FLUSH = 3_600.0


class MilvusEngine(Engine):
    """Passages of a tenant in two collections of a Milvus server (2.5 or newer) or of a file by milvus-lite.

    One has a row for each window, which is what a search names; the other one for each passage, with all that is stored of it.
    Milvus has no transactions. A document that is put is first removed, its first passage before all else, and then written,
    its first passage, which has the digest, last: whoever reads meanwhile does not find it or finds passages that are whole,
    and after a kill it has no digest, so that the next load writes it again. Two must not write one document at a time.
    How many passages have a word is counted by Milvus, and kept for 30 s, in which what other processes write is not seen.

    Args:
        address: milvus://user:password@host:19530/database, milvuss:// for TLS, or milvus+file:///folder/name.db, which one
            process may have open. User and password may be in MILVUS_TOKEN instead, as user:password.
        collection: Up to 40 lower-case letters, digits and _.
        tenant: Whose passages these are; those of others are neither seen nor changed.
        timeout: Seconds until an answer; writing a passage may take 0.05 s more each. `settle` has an hour.
    """

    variables = ("MILVUS_TOKEN",)

    def __init__(self, address: str, *, collection: str, tenant: str = "default", timeout: float = 10.0) -> None:
        if not timeout > 0:
            raise InputError(f"timeout must be a number of seconds above 0, not {timeout!r}.")
        self._names = names_of(collection)
        self.collection, self.tenant = collection, check_tenant(tenant)
        self._name = f"The collection {collection!r} in Milvus{place_of(address)}"
        self._connections = Connections(address, timeout=float(timeout), label=self._name)
        self._whose = key("tenant", tenant)
        self._opened: tuple[int, str] | None = None
        self._counted: dict[str, tuple[float, int]] = {}

    @property
    def timeout(self) -> float:
        return self._connections.timeout

    @property
    def name(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"MilvusEngine(collection={self.collection!r}, tenant={self.tenant!r})"

    def open(self, dimension: int, encoder: str, *, create: bool = False) -> None:
        encoder = without_arithmetic(encoder)
        if self._opened == (dimension, encoder):
            return
        ask = self._connections.asking()
        if not self._checked(ask, dimension, encoder):
            if not create:
                raise self._not_there()
            self._create(dimension, encoder)
        else:
            # After a restart, or a kill while it was made.
            for name in self._names:
                ask("load_collection", name)
        self._opened = (dimension, encoder)

    def search(self, vectors: Vectors, k: int, condition: Filter | None = None) -> list[list[str]]:
        where, ask = self._where(condition_of(condition)), self._connections.asking()
        return [self._near(ask, vector, k, where) for vector in np.asarray(vectors, dtype=np.float32).tolist()]

    def words(self, weights: Mapping[str, float], mean_length: float, k: int, condition: Filter | None = None) -> list[str]:
        where = self._where(condition_of(condition))
        if not weights:
            return []
        [hits] = self._connections.asking()(
            "search",
            self._names.passages,
            data=[word_vector(weights)],
            anns_field="words",
            filter=where,
            limit=min(k, _MOST),
            search_params={"metric_type": "IP"},
            output_fields=["id"],
        )
        return [hit["entity"]["id"] for hit in hits]

    def patterns(self, ids: Sequence[str]) -> list[StoredPassage]:
        keys = {passage_key(self._whose, name): name for name in ids}
        rows = self._rows("passages", "key", [*keys], ["key", "content", "vectors", "digest"])
        found = {keys[row["key"]]: stored_of(row) for row in rows}
        return [found[name] for name in dict.fromkeys(ids) if name in found]

    def parts(self, documents: Sequence[str]) -> dict[str, list[str]]:
        keys = self._keys(documents)
        found: dict[str, list[str]] = {}
        rows = self._rows("passages", "document", [*keys], ["document", "part", "id"])
        for row in sorted(rows, key=lambda row: row["part"]):
            found.setdefault(keys[row["document"]], []).append(row["id"])
        return found

    def digests(self, documents: Sequence[str]) -> dict[str, bytes]:
        keys = self._keys(documents)
        rows = self._rows("passages", "document", [*keys], ["document", "digest"], " and part == 1")
        return {keys[row["document"]]: bytes.fromhex(row["digest"]) for row in rows}

    def put(self, passages: Sequence[StoredPassage]) -> None:
        if not passages:
            return
        parts: dict[str, int] = {}
        first: list[Row] = []
        others: list[Row] = []
        windows: list[Row] = []
        for passage in passages:
            parts[passage.document] = part = parts.get(passage.document, 0) + 1
            rows = rows_of(self._whose, part, passage)
            (first if part == 1 else others).append(rows.passage)
            windows += rows.windows
        ask = self._writing(len(passages))
        if self._opened is None or not self._checked(ask, *self._opened):
            raise RetrievalError(f"{self.name} is not open, or not there any more.")
        self._check_owners(ask, [*first, *others])
        self._remove(ask, [*self._keys([*parts])])
        for name, written in (
            (self._names.passages, others),
            (self._names.windows, windows),
            (self._names.passages, first),
        ):
            for batch in _messages(written):
                ask("upsert", name, batch)
        self._counted = {}

    def bulk(self, batches: Iterable[Sequence[StoredPassage]]) -> Generator[int]:
        for batch in batches:
            self.put(batch)
            yield len(batch)

    def settle(self) -> None:
        ask = self._connections.asking(_FLUSH)
        for name in self._names:
            ask("flush", name)
        self._counted = {}

    def delete(self, documents: Sequence[str]) -> None:
        if documents:
            self._remove(self._writing(len(documents)), [*self._keys(documents)])
            self._counted = {}

    def statistics(self, terms: Iterable[str]) -> Statistics:
        hashes = {term_hash(term): term for term in terms}
        bits = [length_bit(bit) for bit in range(LENGTH_BITS)]
        found = self._frequencies([*hashes, FILLED, *bits])
        filled, words = found[FILLED], sum(found[name] << bit for bit, name in enumerate(bits))
        frequencies = {term: found[name] for name, term in hashes.items() if found[name]}
        return Statistics(filled, words / max(filled, 1), frequencies)

    def count(self) -> int:
        ask = self._connections.asking()
        return self._count(ask, self._where(None)) if ask("has_collection", self._names.passages) else 0

    def close(self) -> None:
        self._connections.close()

    def _where(self, condition: str | None) -> str:
        """The tenant, and the condition."""
        return f'tenant == "{self._whose}"' + ("" if condition is None else f" and ({condition})")

    def _keys(self, documents: Iterable[str]) -> dict[str, str]:
        return {key(self._whose, name): name for name in documents}

    def _not_there(self) -> RetrievalError:
        return RetrievalError(f"{self.name} is not there; add documents to make it, or name another collection.")

    def _writing(self, passages: int) -> Ask:
        return self._connections.asking(self._connections.timeout + _WRITING * passages)

    def _checked(self, ask: Ask, dimension: int, encoder: str) -> bool:
        """Whether the collection is there; RetrievalError where it is of another version, encoder or dimension."""
        if not ask("has_collection", self._names.passages):
            return False
        head = head_of(ask("describe_collection", self._names.passages), self.name)
        check_head(head, dimension, encoder, self.name)
        return True

    def _create(self, dimension: int, encoder: str) -> None:
        if not 2 <= dimension <= LONGEST_VECTOR:
            raise InputError(f"Milvus holds vectors of 2 to {LONGEST_VECTOR:,} numbers here, not {dimension}.")
        # The indexes of a new collection are empty, and yet they take their time.
        ask = self._writing(200)
        made = definitions(dimension, encoder, file=self._connections.file)
        # What is asked for first is made last.
        for kind in ("windows", "passages"):
            name = getattr(self._names, kind)
            try:
                ask("create_collection", name, **made[kind])
            except RetrievalError:
                # Another may have made it at the same time; it is checked below.
                if not ask("has_collection", name):
                    raise
        if not self._checked(ask, dimension, encoder):
            raise self._not_there()

    def _near(self, ask: Ask, vector: list[float], k: int, where: str) -> list[str]:
        wanted = min(_WINDOWS * k, _MOST)
        while True:
            [hits] = ask(
                "search",
                self._names.windows,
                data=[vector],
                anns_field="vector",
                filter=where,
                limit=wanted,
                search_params={"metric_type": "IP", "params": {"ef": min(max(2 * wanted, 100), 32_768)}},
                output_fields=["id"],
            )
            found = dict.fromkeys(hit["entity"]["id"] for hit in hits)
            # Many windows of few passages may have taken all places.
            if len(found) >= k or len(hits) < wanted or wanted == _MOST:
                return [*found][:k]
            wanted = min(4 * wanted, _MOST)

    def _rows(self, kind: str, field: str, values: Sequence[str], fields: list[str], more: str = "") -> list[Row]:
        return self._listed(self._connections.asking(), kind, field, values, fields, more)

    def _listed(
        self,
        ask: Ask,
        kind: str,
        field: str,
        values: Sequence[str],
        fields: list[str],
        more: str = "",
        most: int | None = None,
    ) -> list[Row]:
        """The rows in which a field is one of some keys."""
        limit = {} if most is None else {"limit": most}
        return [
            row
            for where in self._among(field, values, more)
            for row in ask("query", getattr(self._names, kind), filter=where, output_fields=fields, **limit)
        ]

    def _among(self, field: str, values: Sequence[str], more: str = "") -> Iterator[str]:
        for start in range(0, len(values), _KEYS):
            listed = ", ".join(f'"{value}"' for value in values[start : start + _KEYS])
            yield f"{self._where(None)} and {field} in [{listed}]{more}"

    def _check_owners(self, ask: Ask, rows: Sequence[Row]) -> None:
        """RetrievalError where a passage has the id of another."""
        owners = {row["key"]: row["document"] for row in rows}
        there = self._listed(ask, "passages", "key", [*owners], ["key", "document"])
        documents = {*owners.values()}
        taken = any(row["document"] not in documents for row in there)
        if len(owners) < len(rows) or taken:
            raise RetrievalError(
                f"{self.name} has a passage of another document under one of these ids, or a document was written twice; "
                "give every document an id of its own."
            )

    def _remove(self, ask: Ask, documents: Sequence[str]) -> None:
        """Delete all rows of documents, of which keys are given; those that have the digests first."""
        for kind, more in (("passages", " and part == 1"), ("windows", ""), ("passages", "")):
            if self._listed(ask, kind, "document", documents, ["key"], more, most=1):
                for where in self._among("document", documents, more):
                    ask("delete", getattr(self._names, kind), filter=where)

    def _count(self, ask: Ask, where: str) -> int:
        [row] = ask("query", self._names.passages, filter=where, output_fields=["count(*)"])
        return int(row["count(*)"])

    def _frequencies(self, terms: Sequence[str]) -> dict[str, int]:
        """In how many passages each of some terms stands."""
        kept, now = self._counted, time.monotonic()
        asked = [term for term in dict.fromkeys(terms) if term not in kept or kept[term][0] < now - _KEPT]
        if asked:
            ask = self._connections.asking()
            if self._connections.file:
                # milvus-lite reads all rows for each count.
                rows = ask("query", self._names.passages, filter=self._where(None), output_fields=["terms"])
                every = Counter(term for row in rows for term in row["terms"])
                counts = [every[term] for term in asked]
            else:
                counts = self._counts(ask, asked)
            kept |= {term: (now, found) for term, found in zip(asked, counts, strict=True)}
        return {term: kept[term][1] for term in terms}

    def _counts(self, ask: Ask, terms: Sequence[str]) -> list[int]:
        """In how many passages each of some terms stands, by the index of the server."""
        count: Callable[[str], int] = partial(self._count, ask)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return [*pool.map(count, (self._where(f'array_contains(terms, "{term}")') for term in terms))]


def _messages(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Rows in messages that Milvus takes."""
    batch: list[Row] = []
    size = 0
    for row in rows:
        own = _size(row)
        if batch and (len(batch) == _ROWS or size + own > _BYTES):
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += own
    if batch:
        yield batch


def _size(row: Row) -> int:
    """About how many bytes a row has, of texts those of UTF-8; rather more than less."""
    texts = chain(
        [row["id"]], row["ordered"].values(), *(row.get(name, ()) for name in ("content", "vectors", "facts", "terms"))
    )
    numbers = 4 * len(row.get("vector", ())) + 12 * len(row.get("words", ()))
    return sum(map(_bytes, texts)) + 30 * len(row["ordered"]) + numbers + 1_000


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
