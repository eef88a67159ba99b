"""A cache of encoded patterns on disk, by content, so that documents are encoded once."""

from __future__ import annotations

import hashlib
import logging
import sqlite3
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.files import prepare_sqlite, private_file, private_folder, sqlite_connection
from langgraph_convcoa.retrieval.encoders.base import Encoder, Vectors, normalised
from langgraph_convcoa.retrieval.progress import Progress, track

_LOGGER = logging.getLogger(__name__)
_APPLICATION_ID = 0x434F4341
_VERSION = 1
_SCHEMA = ("CREATE TABLE patterns (key BLOB PRIMARY KEY, checksum INTEGER, vector BLOB)",)
_AT_ONCE = 512
_KEYS_PER_QUERY = 500


class PatternCache:
    """Vectors of texts in an SQLite file, keyed by the encoder's name and the text.

    Several processes may share a file, which is made if it is missing. Vectors are written in batches, so a killed run
    resumes where it stopped. A vector that fails its checksum is encoded again. RetrievalError if the file is damaged, is
    not a pattern cache, or cannot be opened or made.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            private_folder(self.path.parent)
            private_file(self.path)
        except OSError as error:
            reason = f"cannot be made or used ({error.strerror}); name another file"
            raise RetrievalError(f"The pattern cache {self.path} {reason}.") from error
        with sqlite_connection(self.path, error=self._error) as connection:
            application, version = prepare_sqlite(connection, _APPLICATION_ID, _VERSION, _SCHEMA)
        if application != _APPLICATION_ID:
            raise RetrievalError(f"{self.path} is an SQLite file but no pattern cache; name another file for the cache.")
        if version != _VERSION:
            raise RetrievalError(f"The pattern cache {self.path} is of version {version}, not {_VERSION}; delete the file.")

    def __len__(self) -> int:
        with sqlite_connection(self.path, error=self._error) as connection:
            return int(connection.execute("SELECT count(*) FROM patterns").fetchone()[0])

    def read(self, name: str, texts: Sequence[str], out: Vectors) -> list[int]:
        """Copy the stored vectors of distinct texts to `out`; returns the indexes of the texts that are not stored."""
        rows = {_key(name, text): index for index, text in enumerate(texts)}
        keys, size = list(rows), out.shape[1] * 4
        with sqlite_connection(self.path, error=self._error) as connection:
            for start in range(0, len(keys), _KEYS_PER_QUERY):
                part = keys[start : start + _KEYS_PER_QUERY]
                marks = ",".join("?" * len(part))
                query = f"SELECT key, checksum, vector FROM patterns WHERE key IN ({marks})"  # noqa: S608 -- marks only
                for key, checksum, vector in connection.execute(query, part):
                    if len(vector) == size and zlib.crc32(vector, zlib.crc32(key)) == checksum:
                        out[rows.pop(key)] = np.frombuffer(vector, dtype="<f4")
        return list(rows.values())

    def write(self, name: str, texts: Sequence[str], vectors: Vectors) -> bool:
        """Store vectors. Returns False, with a warning, if the disk is full or the file is locked for too long."""
        entries = []
        for text, vector in zip(texts, vectors, strict=True):
            key, blob = _key(name, text), vector.astype("<f4").tobytes()
            entries.append((key, zlib.crc32(blob, zlib.crc32(key)), blob))
        try:
            with sqlite_connection(self.path) as connection:
                connection.executemany("INSERT OR REPLACE INTO patterns (key, checksum, vector) VALUES (?, ?, ?)", entries)
        except sqlite3.OperationalError as error:
            _LOGGER.warning("The pattern cache %s cannot be written (%s); going on without it.", self.path, error)
            return False
        except sqlite3.DatabaseError as error:
            raise self._error(error) from error
        return True

    def _error(self, error: Exception) -> RetrievalError:
        if isinstance(error, sqlite3.OperationalError):
            return RetrievalError(f"The pattern cache {self.path} cannot be used: {error}.")
        return RetrievalError(f"The pattern cache {self.path} is damaged or no cache ({error}); delete it and run again.")


def encode_texts(encoder: Encoder, texts: Sequence[str], cache: PatternCache | None, progress: Progress = False) -> Vectors:
    """Vectors (n, d) of passages; equal texts are encoded once, and texts in the cache not at all."""
    place = {text: index for index, text in enumerate(dict.fromkeys(texts))}
    unique = list(place)
    vectors = np.zeros((len(unique), encoder.dimension), dtype=np.float32)
    missing = list(range(len(unique))) if cache is None else cache.read(encoder.name, unique, vectors)
    # Longest first, for batches of similar length.
    missing.sort(key=lambda i: len(unique[i]), reverse=True)
    with track(progress, len(missing), "Encoding") as advance:
        for start in range(0, len(missing), _AT_ONCE):
            batch = missing[start : start + _AT_ONCE]
            chosen = [unique[i] for i in batch]
            vectors[batch] = normalised(encoder.encode_passages(chosen), len(chosen), encoder.dimension, encoder.name)
            # After one failure, the cache is not written again.
            if cache is not None and not cache.write(encoder.name, chosen, vectors[batch]):
                cache = None
            advance(len(batch))
    return vectors[np.array([place[text] for text in texts], dtype=np.int64)]


def _key(name: str, text: str) -> bytes:
    return hashlib.sha256(f"{name}\0{text}".encode("utf-8", "surrogatepass")).digest()
