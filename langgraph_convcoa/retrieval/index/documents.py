"""The documents of an index, and their passages, in its database."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.documents.split import Span
from langgraph_convcoa.retrieval.index.database import Database, deleted_checksum

_KEYS_PER_QUERY = 500


@dataclass(frozen=True)
class Passage:
    """A passage, and where its windows stand in its text."""

    document: Document
    spans: list[Span]


@dataclass(frozen=True)
class Entry:
    """A document to be stored: its id, what tells its content from another, and its passages."""

    id: str
    digest: bytes
    passages: list[Passage]


class Outdated(RetrievalError):
    """A passage was deleted between the search that found it and its reading."""


class Catalogue(Database):
    """The database with its documents and passages."""

    def put_entries(self, connection: sqlite3.Connection, entries: Iterable[Entry], key: int) -> int:
        """Store documents, their passages numbered from `key` on; the next key is returned."""
        for entry in entries:
            first = key
            for passage in entry.passages:
                body = _packed(passage)
                row = (key, *body, _passage_checksum(key, body))
                connection.execute("INSERT INTO passages VALUES (?, ?, ?, ?, ?, ?)", row)
                key += 1
            connection.execute("INSERT INTO documents VALUES (?, ?, ?, ?)", (entry.id, entry.digest, first, key - 1))
        return key

    def remove(self, connection: sqlite3.Connection, ids: Iterable[str]) -> int:
        """Delete documents by their ids; the new checksum of the deleted ranges is returned."""
        for identity in ids:
            row = connection.execute("DELETE FROM documents WHERE id = ? RETURNING first, last", (identity,)).fetchone()
            connection.execute("DELETE FROM passages WHERE key BETWEEN ? AND ?", row)
            connection.execute("INSERT INTO deleted VALUES (?, ?)", row)
        return deleted_checksum(self.deleted_ranges(connection))

    def digests(self, connection: sqlite3.Connection, ids: Sequence[str]) -> dict[str, bytes]:
        """What tells the content of each of these documents that is there."""
        return dict(_select(connection, "SELECT id, digest FROM documents WHERE id IN", ids))

    def owners(self, connection: sqlite3.Connection, ids: Sequence[str]) -> dict[str, str]:
        """The document that each of these passages is of, of those that are there."""
        query = (
            "SELECT passages.id, documents.id FROM passages JOIN documents"
            " ON documents.first = (SELECT max(first) FROM documents WHERE first <= passages.key) WHERE passages.id IN"
        )
        return dict(_select(connection, query, ids))

    def check_documents(self, ids: Sequence[str]) -> None:
        """See that these documents are there.

        Raises:
            InputError: One is not.
        """
        with self.reading() as connection:
            there = self.digests(connection, ids)
            unknown = next((identity for identity in ids if identity not in there), None)
            owner = self.owners(connection, [unknown]).get(unknown) if unknown is not None else None
        if unknown is not None:
            hint = f": it is a passage of {owner!r}, which can only be deleted as a whole" if owner else ""
            raise InputError(f"There is no document {unknown!r} in the index {self.folder}{hint}; nothing was deleted.")

    def ranges(self, connection: sqlite3.Connection) -> list[tuple[str, int, int]]:
        """Each document's id and its first and last key, in the order of the keys."""
        return connection.execute("SELECT id, first, last FROM documents ORDER BY first").fetchall()

    def count_documents(self, connection: sqlite3.Connection) -> int:
        """How many documents there are."""
        return int(connection.execute("SELECT count(*) FROM documents").fetchone()[0])

    def passages(self, connection: sqlite3.Connection, keys: Sequence[int]) -> dict[int, Passage]:
        """The passages of these keys that are there."""
        rows = _select(connection, "SELECT * FROM passages WHERE key IN", keys)
        return {row[0]: self._passage(row) for row in rows}

    def _passage(self, row: tuple[int, str, str, str, bytes, int]) -> Passage:
        key, identity, text, metadata, spans, checksum = row
        with self.decoding(f"the passage {identity!r}"):
            if _passage_checksum(key, (identity, text, metadata, spans)) != checksum:
                raise self.damaged(f"the passage {identity!r} does not match its checksum")
            document = Document(id=identity, page_content=text, metadata=json.loads(metadata))
            return Passage(document, [(int(a), int(b)) for a, b in np.frombuffer(spans, "<i4").reshape(-1, 2)])


def _packed(passage: Passage) -> tuple[str, str, str, bytes]:
    spans = np.array(passage.spans, dtype="<i4").tobytes()
    return str(passage.document.id), passage.document.page_content, json.dumps(passage.document.metadata), spans


def _select(connection: sqlite3.Connection, query: str, values: Sequence[Any]) -> list[Any]:
    rows = []
    for start in range(0, len(values), _KEYS_PER_QUERY):
        part = values[start : start + _KEYS_PER_QUERY]
        rows += connection.execute(f"{query} ({','.join('?' * len(part))})", part).fetchall()
    return rows


def _passage_checksum(key: int, body: tuple[str, str, str, bytes]) -> int:
    identity, text, metadata, spans = body
    checksum = zlib.crc32(f"{key}\0{identity}\0{metadata}\0".encode("utf-8", "replace"))
    return zlib.crc32(spans, zlib.crc32(text.encode("utf-8", "replace"), checksum))
