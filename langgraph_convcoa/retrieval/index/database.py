"""The database of an index: its connections, and what it says of the pattern file."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from langgraph_convcoa.errors import RetrievalError

FORMAT_VERSION = 1
"""Version of the index as a whole; an index of another one is not opened."""

DATABASE = "index.sqlite"

_APPLICATION_ID = 0x434F4349
_WAIT_SECONDS = 30.0
_SCHEMA = (
    "CREATE TABLE head (one INTEGER PRIMARY KEY CHECK (one = 1), body TEXT NOT NULL, checksum INTEGER NOT NULL)",
    "CREATE TABLE blocks (first INTEGER PRIMARY KEY, sizes BLOB NOT NULL, keys BLOB NOT NULL, patterns INTEGER NOT NULL,"
    " scales INTEGER NOT NULL, checksum INTEGER NOT NULL)",
    "CREATE TABLE documents (id TEXT PRIMARY KEY, digest BLOB NOT NULL, first INTEGER NOT NULL UNIQUE, last INTEGER NOT NULL)",
    "CREATE TABLE passages (key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, text TEXT NOT NULL, metadata TEXT NOT NULL,"
    " spans BLOB NOT NULL, checksum INTEGER NOT NULL)",
    "CREATE TABLE deleted (first INTEGER PRIMARY KEY, last INTEGER NOT NULL)",
)
_TABLES = ("head", "blocks", "documents", "passages", "deleted")

Keys = npt.NDArray[np.int64]
"""Numbers of passages, given once and never again; in the order of the patterns they only grow."""


@dataclass(frozen=True)
class Head:
    """The one row that says what an index is; it changes with every commit.

    Attributes:
        index: The id that all files of the index carry.
        dtype: How patterns are stored.
        dimension: Length of a pattern.
        encoder: The encoder's name, its fingerprint.
        model: How to make that encoder again, where that can be told.
        settings: The retriever's settings.
        generation: Which pattern files are in use.
        rows: How many of their rows count.
        next_key: The key of the next passage.
        commits: How often the index has changed.
        deleted: Checksum of the deleted ranges.
    """

    index: str
    dtype: str
    dimension: int
    encoder: str
    model: dict[str, str] | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    generation: int = 1
    rows: int = 0
    next_key: int = 1
    commits: int = 0
    deleted: int = 0


@dataclass(frozen=True)
class Block:
    """Rows of the pattern file under one checksum: whole memory sets.

    Attributes:
        first: The first of its rows.
        sizes: Rows of each memory set.
        keys: The passage of each memory set.
        patterns: CRC-32 of the rows.
        scales: CRC-32 of their scales, 0 where there are none.
    """

    first: int
    sizes: npt.NDArray[np.int64]
    keys: Keys
    patterns: int
    scales: int = 0

    @property
    def rows(self) -> int:
        """How many rows."""
        return int(self.sizes.sum())

    def checksum(self) -> int:
        """CRC-32 of what the database says of the block."""
        sizes, keys = self.sizes.astype("<i4").tobytes(), self.keys.astype("<i8").tobytes()
        return zlib.crc32(keys, zlib.crc32(sizes, zlib.crc32(f"{self.first}\0{self.patterns}\0{self.scales}".encode())))


class Database:
    """The database of the index in a folder; a connection of its own for every use, so that threads and forks share none.

    Args:
        folder: The folder of the index.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / DATABASE

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection that sees one state of the index throughout, and that writers wait for.

        Raises:
            RetrievalError: There is no index, it is of another version, damaged, or cannot be read.
        """
        # May write, since a reader must undo what a killed writer left half done; it never makes the file.
        with self._connected("rw") as connection:
            connection.execute("BEGIN")
            self._check(connection)
            yield connection

    @contextmanager
    def writing(self, *, create: bool = False) -> Iterator[sqlite3.Connection]:
        """A connection whose changes come to stand all at once when the block ends without an error, or not at all."""
        with self._connected("rwc" if create else "rw") as connection:
            connection.execute("PRAGMA synchronous=EXTRA")
            # What is deleted shall be gone from the file too.
            connection.execute("PRAGMA secure_delete=ON")
            connection.execute("BEGIN IMMEDIATE")
            if create and self._blank(connection):
                for statement in _SCHEMA:
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version={FORMAT_VERSION}")
            self._check(connection)
            yield connection
            connection.execute("COMMIT")

    def exists(self) -> bool:
        """Whether there is an index, of whatever version and state; an unfinished first save is none."""
        if not self.path.is_file():
            return False
        with self._connected("rw") as connection:
            return not self._blank(connection)

    def shrink(self) -> None:
        """Give the space of what was deleted back to the disk."""
        with self._connected("rw") as connection:
            connection.execute("VACUUM")

    def integrity(self) -> str:
        """What SQLite finds amiss in its file; "ok" when nothing."""
        with self._connected("rw") as connection:
            return str(connection.execute("PRAGMA integrity_check(1)").fetchone()[0])

    @contextmanager
    def _connected(self, mode: str) -> Iterator[sqlite3.Connection]:
        if mode != "rwc" and not self.path.is_file():
            raise RetrievalError(f"{self.folder} holds no index; make one with `convcoa index PATH --out {self.folder}`.")
        try:
            # Rolls back on closing what was not committed.
            uri = f"{self.path.absolute().as_uri()}?mode={mode}"
            with closing(sqlite3.connect(uri, uri=True, timeout=_WAIT_SECONDS, isolation_level=None)) as connection:
                yield connection
        except sqlite3.OperationalError as error:
            raise RetrievalError(f"The index {self.folder} cannot be used: {_advice(error)}.") from error
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise self.damaged(str(error)) from error

    def damaged(self, reason: str) -> RetrievalError:
        """The error for what does not fit together."""
        return RetrievalError(f"The index {self.folder} is damaged ({reason}); restore it from a copy, or build it again.")

    def _blank(self, connection: sqlite3.Connection) -> bool:
        return connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None

    def _check(self, connection: sqlite3.Connection) -> None:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if application != _APPLICATION_ID:
            if self._blank(connection):
                raise RetrievalError(f"{self.folder} holds an index whose first save was not finished; build it again.")
            raise RetrievalError(f"{self.path} is damaged or the database of another program; name another folder.")
        if version != FORMAT_VERSION:
            raise RetrievalError(
                f"The index {self.folder} is of version {version}, and this library reads version {FORMAT_VERSION}; "
                "build the index again, or install the version of the library that made it."
            )

    # The head, blocks and deleted ranges ------------------------------------------------------------------------------

    def head(self, connection: sqlite3.Connection) -> Head:
        """What the index is at present."""
        row = connection.execute("SELECT body, checksum FROM head").fetchone()
        with self.decoding("its head"):
            if row is None or zlib.crc32(row[0].encode()) != row[1]:
                raise self.damaged("its head does not match its checksum")
            return Head(**json.loads(row[0]))

    def put_head(self, connection: sqlite3.Connection, head: Head) -> None:
        """Store the head."""
        body = json.dumps(asdict(head))
        connection.execute("INSERT OR REPLACE INTO head VALUES (1, ?, ?)", (body, zlib.crc32(body.encode())))

    def blocks(self, connection: sqlite3.Connection, head: Head, start: int = 0) -> list[Block]:
        """The blocks of the pattern file from row `start` on, in order; they are checked to follow one another to the end."""
        found, end = [], start
        for first, sizes, keys, patterns, scales, checksum in connection.execute(
            "SELECT * FROM blocks WHERE first >= ? ORDER BY first", (start,)
        ):
            with self.decoding("its list of blocks"):
                block = Block(
                    first, np.frombuffer(sizes, "<i4").astype(np.int64), np.frombuffer(keys, "<i8"), patterns, scales
                )
                if block.checksum() != checksum or first != end or len(block.keys) != len(block.sizes):
                    raise self.damaged(f"what it says of the block of patterns at row {first} does not match its checksum")
            end += block.rows
            found.append(block)
        if end != head.rows:
            raise self.damaged(f"its blocks hold {end} patterns of {head.rows}")
        return found

    def last_block(self, connection: sqlite3.Connection, head: Head) -> Block | None:
        """The block at the end, if there is any."""
        row = connection.execute("SELECT max(first) FROM blocks").fetchone()
        return self.blocks(connection, head, row[0])[-1] if row[0] is not None else None

    def put_block(self, connection: sqlite3.Connection, block: Block) -> None:
        """Store a block, in place of one that starts at the same row."""
        sizes, keys = block.sizes.astype("<i4").tobytes(), block.keys.astype("<i8").tobytes()
        row = (block.first, sizes, keys, block.patterns, block.scales, block.checksum())
        connection.execute("INSERT OR REPLACE INTO blocks VALUES (?, ?, ?, ?, ?, ?)", row)

    def deleted(self, connection: sqlite3.Connection, head: Head) -> Keys:
        """The ranges of keys that are deleted, (m, 2), first and last."""
        ranges = self.deleted_ranges(connection)
        if deleted_checksum(ranges) != head.deleted:
            raise self.damaged("its list of deleted documents does not match its checksum")
        return ranges

    def deleted_ranges(self, connection: sqlite3.Connection) -> Keys:
        """The ranges as they are stored."""
        rows = connection.execute("SELECT first, last FROM deleted ORDER BY first").fetchall()
        with self.decoding("its list of deleted documents"):
            return np.array(rows, dtype=np.int64).reshape(-1, 2)

    def clear(self, connection: sqlite3.Connection, *tables: str) -> None:
        """Empty tables, all when none is named."""
        for table in tables or _TABLES:
            connection.execute(f"DELETE FROM {table}")  # noqa: S608 -- names of this module

    @contextmanager
    def decoding(self, what: str) -> Iterator[None]:
        """Errors of reading as damage: a changed bit may make a value one of another type."""
        try:
            yield
        except (TypeError, ValueError, AttributeError, KeyError, OverflowError) as error:
            raise self.damaged(f"{what} cannot be read: {type(error).__name__}") from error


def is_index(path: str | Path) -> bool:
    """Whether a folder holds an index, of whatever version and state."""
    return (Path(path) / DATABASE).is_file()


def deleted_checksum(ranges: Keys) -> int:
    """CRC-32 of the deleted ranges, (m, 2)."""
    return zlib.crc32(ranges.astype("<i8").tobytes())


def _advice(error: sqlite3.OperationalError) -> str:
    reason = str(error)
    if "full" in reason or "disk I/O" in reason:
        return f"{reason}: make room on the disk; what was committed before is kept"
    if "locked" in reason:
        return f"{reason}: another process is writing to it; try again when that has ended"
    if "readonly" in reason or "unable to open" in reason:
        return f"{reason}: check the permissions of the folder"
    return reason
