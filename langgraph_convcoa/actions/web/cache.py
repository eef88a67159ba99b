"""A cache of pages and search results, in memory and, if wanted, in an SQLite file."""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from cachetools import LRUCache

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.files import prepare_sqlite, private_file, private_folder, sqlite_connection

_log = logging.getLogger(__name__)
_APPLICATION_ID = 0x434F5745
_SCHEMA = ("CREATE TABLE entries (key TEXT PRIMARY KEY, expires REAL, value TEXT)",)
_IN_MEMORY = 20_000_000
"""Maximum number of characters of all entries in memory."""
_OF_AN_ENTRY = 200
_ON_DISK = 20_000
_PRUNE_EVERY = 200
_TIMEOUT = 5.0


class WebCache:
    """JSON values by key, each with its own expiry, in memory or in a file; threads and processes may share it.

    Raises RetrievalError if the file cannot be made or is another kind of file. If it cannot be read or written later, a
    warning is logged and the page is fetched.
    """

    def __init__(self, path: str | Path | None = None, *, now: Callable[[], float] = time.time) -> None:
        self.path = None if path is None else Path(path)
        self._now = now
        self._lock = threading.Lock()
        self._memory: LRUCache[str, tuple[float, str]] = LRUCache(_IN_MEMORY, lambda entry: len(entry[1]) + _OF_AN_ENTRY)
        self._writes = 0
        if path is None:
            return
        try:
            private_folder(Path(path).parent)
            private_file(path)
            with sqlite_connection(path, timeout=_TIMEOUT) as connection:
                application, _ = prepare_sqlite(connection, _APPLICATION_ID, 0, _SCHEMA)
        except OSError as error:
            raise RetrievalError(f"The web cache {path} cannot be made: {error.strerror}.") from error
        except sqlite3.Error as error:
            raise RetrievalError(f"The web cache {path} cannot be used ({error}); delete it or name another file.") from error
        if application != _APPLICATION_ID:
            raise RetrievalError(f"{path} is an SQLite file but no web cache; name another file for the cache.")

    def get(self, key: str) -> Any | None:
        """The value of a key; None if the key is unknown, or its value has expired or is damaged."""
        if self.path is None:
            with self._lock:
                expires, text = self._memory.get(key, (0.0, ""))
            return json.loads(text) if expires > self._now() else None
        try:
            with sqlite_connection(self.path, timeout=_TIMEOUT) as connection:
                row = connection.execute("SELECT expires, value FROM entries WHERE key = ?", (key,)).fetchone()
            if row is None:
                return None
            digest, _, text = row[1].partition("\n")
            sound = digest == _digest(key, float(row[0]), text) and row[0] > self._now()
            return json.loads(text) if sound else None
        except (sqlite3.Error, ValueError, TypeError, AttributeError, RecursionError) as error:
            _log.warning("The web cache %s cannot be read (%s); going on without it.", self.path, error)
            return None

    def put(self, key: str, value: Any, seconds: float) -> None:
        if seconds <= 0:
            return
        expires, text = self._now() + seconds, json.dumps(value)
        if self.path is None:
            # An entry larger than the whole memory is not kept.
            with self._lock, suppress(ValueError):
                self._memory[key] = expires, text
            return
        try:
            with sqlite_connection(self.path, timeout=_TIMEOUT) as connection:
                values = (key, expires, f"{_digest(key, expires, text)}\n{text}")
                connection.execute("INSERT OR REPLACE INTO entries (key, expires, value) VALUES (?, ?, ?)", values)
                if self._writes % _PRUNE_EVERY == 0:
                    connection.execute("DELETE FROM entries WHERE expires <= ?", (self._now(),))
                    newest = "SELECT key FROM entries ORDER BY expires DESC LIMIT -1 OFFSET ?"
                    connection.execute(f"DELETE FROM entries WHERE key IN ({newest})", (_ON_DISK,))  # noqa: S608 - constant
            self._writes += 1
        except sqlite3.Error as error:
            _log.warning("The web cache %s cannot be written (%s); going on without it.", self.path, error)


def _digest(key: str, expires: float, value: str) -> str:
    """SHA-256 of an entry, which shows damage."""
    return hashlib.sha256(f"{key}\n{expires!r}\n{value}".encode("utf-8", "replace")).hexdigest()
