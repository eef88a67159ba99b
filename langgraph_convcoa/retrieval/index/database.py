"""The SQLite database of an index: its head, the blocks of its pattern file, and its passages."""

from __future__ import annotations

import json
import re
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document
from pydantic import TypeAdapter

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.files import is_blank, sqlite_connection, sqlite_stamp
from langgraph_convcoa.retrieval.changes import content_digest
from langgraph_convcoa.retrieval.corpus import Numbers, Passage
from langgraph_convcoa.retrieval.patterns import PatternType

# Version of the format; an index of another version is not opened.
_VERSION = 2
DATABASE = "index.sqlite"
# The numpy type in the pattern file for each type of patterns.
STORED_TYPES: dict[PatternType, str] = {"float32": "<f4", "int8": "i1"}
SHARDS_REMOVED = (
    "The search over shards was removed: make one index of the documents (`convcoa index PATH --out DIR`), or load them into "
    "an engine (`convcoa index PATH --to URL`, `HopfieldRetriever.from_engine`)."
)

_APPLICATION_ID = 0x434F4349
_VALUES_PER_QUERY = 500
_FILE = re.compile(r"patterns\.\d+\.bin")
_SCHEMA = (
    "CREATE TABLE head (one INTEGER PRIMARY KEY CHECK (one = 1), body TEXT NOT NULL, checksum INTEGER NOT NULL)",
    "CREATE TABLE blocks (first INTEGER PRIMARY KEY, sizes BLOB NOT NULL, keys BLOB NOT NULL, scales BLOB NOT NULL,"
    " patterns INTEGER NOT NULL, checksum INTEGER NOT NULL)",
    "CREATE TABLE passages (key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, document TEXT NOT NULL, text TEXT NOT NULL,"
    " metadata TEXT NOT NULL, spans BLOB NOT NULL, checksum INTEGER NOT NULL)",
    "CREATE INDEX documents ON passages (document)",
    f"PRAGMA application_id={_APPLICATION_ID}",
    f"PRAGMA user_version={_VERSION}",
)


@dataclass(frozen=True)
class Head:
    """The settings and counts of an index; they change with every commit."""

    index: str  # id of the index
    dtype: PatternType  # type of the stored patterns
    dimension: int  # length d of a pattern
    encoder: str  # the encoder's name
    model: dict[str, str] | None = None  # `encoder_settings`
    settings: dict[str, Any] = field(default_factory=dict)  # settings of the retriever
    file: str = ""  # the pattern file
    rows: int = 0  # valid rows of the pattern file
    next_key: int = 1  # key of the next passage
    commits: int = 0

    @property
    def bytes(self) -> int:
        """Valid bytes of the pattern file."""
        return self.rows * self.dimension * np.dtype(STORED_TYPES[self.dtype]).itemsize


_HEADS = TypeAdapter(Head)


@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive rows of the pattern file with one checksum: the rows of whole passages."""

    first: int  # first row
    sizes: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, dtype=np.int32))  # rows of each passage
    # Keys of the passages: 1 or more, never reused, in rising order; negative for deleted passages.
    keys: Numbers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    scales: npt.NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, dtype=np.float32))  # scales of int8 rows
    patterns: int = 0  # CRC-32 of the rows

    @property
    def rows(self) -> slice:
        """The rows of the block in the pattern file."""
        return slice(self.first, self.first + int(self.sizes.sum()))


def damaged(folder: Path, reason: str) -> RetrievalError:
    """The error for a damaged index."""
    what = " ".join(reason.split())
    return RetrievalError(f"The index {folder} is damaged ({what}); restore it from a copy, or build it again.")


def check_not_shards(folder: Path) -> None:
    """Raise RetrievalError for a folder of shards, which earlier releases made."""
    if folder.is_dir() and any(map(is_index, folder.glob("shard-*-of-*"))):
        raise RetrievalError(f"{folder} holds shards of an earlier release. {SHARDS_REMOVED}")


def is_index(path: str | Path) -> bool:
    """True if a folder holds an index of any version and state."""
    return (Path(path) / DATABASE).is_file()


def exists(folder: Path) -> bool:
    """True if there is an index. An unfinished first save does not count."""
    if not is_index(folder):
        return False
    with _connected(folder) as connection:
        return not is_blank(connection)


def shrink(folder: Path) -> None:
    """Give free space back to the disk."""
    with _connected(folder) as connection:
        connection.execute("VACUUM")


@contextmanager
def reading(folder: Path) -> Iterator[Transaction]:
    """Open the database for a `with` block that reads one state of it."""
    with _connected(folder) as connection:
        connection.execute("BEGIN")
        yield Transaction(connection, folder)


@contextmanager
def writing(folder: Path, *, create: bool = False) -> Iterator[Transaction]:
    """Open the database for a `with` block; its changes are committed if it ends without an error."""
    with _connected(folder, create=create) as connection:
        connection.execute("PRAGMA synchronous=EXTRA")
        # Deleted text is overwritten in the file.
        connection.execute("PRAGMA secure_delete=ON")
        connection.execute("BEGIN IMMEDIATE")
        if create and is_blank(connection):
            for statement in _SCHEMA:
                connection.execute(statement)
        yield Transaction(connection, folder)
        connection.execute("COMMIT")


class Transaction:
    """One state of an index's database, and changes to it within `writing`."""

    def __init__(self, connection: sqlite3.Connection, folder: Path) -> None:
        self._connection = connection
        self._folder = folder
        application, version = sqlite_stamp(connection)
        if application != _APPLICATION_ID:
            if is_blank(connection):
                raise RetrievalError(f"{folder} holds an index whose first save was not finished; build it again.")
            raise RetrievalError(f"{folder / DATABASE} is damaged or the database of another program; name another folder.")
        if version != _VERSION:
            raise RetrievalError(
                f"The index {folder} is of version {version}, and this library reads version {_VERSION}; remove the "
                "folder and build the index again, or install the version of the library that made it."
            )

    def check_integrity(self) -> None:
        """Raise RetrievalError if SQLite finds its file damaged."""
        finding = str(self._connection.execute("PRAGMA integrity_check(1)").fetchone()[0])
        if finding != "ok":
            raise damaged(self._folder, finding)

    def head(self) -> Head:
        """The head, compared with its checksum."""
        row = self._connection.execute("SELECT body, checksum FROM head").fetchone()
        with self._decoding("its head"):
            if row is None or _checksum(row[0]) != row[1]:
                raise damaged(self._folder, "its head does not match its checksum")
            return _head(row[0])

    def put_head(self, head: Head) -> None:
        """Store the head, with its count of commits increased by one."""
        body = json.dumps(asdict(replace(head, commits=head.commits + 1)))
        self._connection.execute("INSERT OR REPLACE INTO head VALUES (1, ?, ?)", (body, _checksum(body)))

    def blocks(self) -> list[Block]:
        """All blocks of the pattern file in order; RetrievalError if one is missing."""
        end = 0
        found = [self._block(row) for row in self._connection.execute("SELECT * FROM blocks ORDER BY first")]
        for block in found:
            if block.first != end:
                raise damaged(self._folder, f"the block of patterns at row {end} is missing")
            end = block.rows.stop
        if end != (rows := self.head().rows):
            raise damaged(self._folder, f"its blocks hold {end} patterns of {rows}")
        return found

    def last_block(self) -> Block:
        """The last block; an empty block if nothing is stored."""
        row = self._connection.execute("SELECT * FROM blocks ORDER BY first DESC LIMIT 1").fetchone()
        return Block(0) if row is None else self._block(row)

    def put_block(self, block: Block) -> None:
        """Store a block; it replaces a block with the same first row."""
        arrays = block.sizes.astype("<i4"), block.keys.astype("<i8"), block.scales.astype("<f4")
        row: tuple[Any, ...] = (block.first, *(array.tobytes() for array in arrays), block.patterns)
        self._connection.execute("INSERT OR REPLACE INTO blocks VALUES (?, ?, ?, ?, ?, ?)", (*row, _checksum(*row)))

    def clear(self, table: str) -> None:
        """Remove all blocks or all passages."""
        self._connection.execute(f"DELETE FROM {table}")  # noqa: S608 -- a name of this package

    def _block(self, row: tuple[Any, ...]) -> Block:
        with self._decoding("its list of blocks"):
            first, sizes, keys, scales, patterns, checksum = row
            if _checksum(*row[:-1]) != checksum:
                raise damaged(self._folder, f"the record of the block of patterns at row {first} does not match its checksum")
            arrays = np.frombuffer(sizes, "<i4"), np.frombuffer(keys, "<i8"), np.frombuffer(scales, "<f4")
            return Block(first, *arrays, patterns)

    def put_passages(self, first_key: int, passages: Iterable[tuple[str, Passage]]) -> None:
        """Store passages, each with the id of its document, under keys from `first_key` on."""
        for key, (name, passage) in enumerate(passages, first_key):
            document, spans = passage.document, np.array(passage.spans, dtype="<i4").tobytes()
            row = (key, str(document.id), name, document.page_content, json.dumps(document.metadata), spans)
            self._connection.execute("INSERT INTO passages VALUES (?, ?, ?, ?, ?, ?, ?)", (*row, _checksum(*row)))

    def remove(self, ids: Iterable[str]) -> None:
        """Delete the passages of documents, and mark them in the blocks."""
        gone = [key for keys in self.keys_of(list(ids)).values() for key in keys]
        self._connection.executemany("DELETE FROM passages WHERE key = ?", [(key,) for key in gone])
        for block in self.blocks() if gone else ():
            dead = np.isin(block.keys, gone)
            if dead.any():
                self.put_block(replace(block, keys=np.where(dead, -block.keys, block.keys)))

    def keys_of(self, ids: Sequence[str]) -> dict[str, list[int]]:
        """For each of these documents that exists, the keys of its passages."""
        found: dict[str, list[int]] = {}
        for name, key in self._select("SELECT document, key FROM passages WHERE document IN", ids):
            found.setdefault(name, []).append(key)
        return found

    def digests(self, ids: Sequence[str]) -> dict[str, bytes]:
        """The `content_digest` of each of these documents that exists."""
        keys = self.keys_of(ids)
        passages = self.passages([key for own in keys.values() for key in own])
        with self._decoding("its list of documents"):
            return {name: content_digest(passages[key].document for key in sorted(own)) for name, own in keys.items()}

    def owners(self, ids: Sequence[str]) -> dict[str, str]:
        """The id of the document of each passage that exists."""
        return dict(self._select("SELECT id, document FROM passages WHERE id IN", ids))

    def documents(self) -> list[tuple[str, dict[str, Any], list[int]]]:
        """Each document's id, the metadata of its first passage, and the keys of its passages."""
        found: dict[str, tuple[str, dict[str, Any], list[int]]] = {}
        with self._decoding("its list of documents"):
            for key, name, metadata in self._connection.execute("SELECT key, document, metadata FROM passages ORDER BY key"):
                if name not in found:
                    found[name] = (name, json.loads(metadata), [])
                found[name][2].append(key)
        return [*found.values()]

    def without_texts(self) -> Iterator[tuple[int, Document]]:
        """The key of each passage, and the passage without its text."""
        with self._decoding("its metadata"):
            for key, identity, metadata in self._connection.execute("SELECT key, id, metadata FROM passages"):
                yield key, Document(id=identity, page_content="", metadata=json.loads(metadata))

    def count(self) -> int:
        """The number of passages."""
        return int(self._connection.execute("SELECT count(*) FROM passages").fetchone()[0])

    def passages(self, keys: Sequence[int]) -> dict[int, Passage]:
        """The passages with these keys; missing keys are skipped."""
        return {row[0]: self._passage(row) for row in self._select("SELECT * FROM passages WHERE key IN", keys)}

    def named(self, ids: Sequence[str]) -> list[Document]:
        """The passages whose own id, or whose document's id, is one of these ids, in order."""
        rows = {
            row[0]: row
            for column in ("document", "id")
            for row in self._select(f"SELECT * FROM passages WHERE {column} IN", ids)  # noqa: S608 -- a name of this package
        }
        return [self._passage(rows[key]).document for key in sorted(rows)]

    def _passage(self, row: tuple[Any, ...]) -> Passage:
        _, identity, _, text, metadata, spans, checksum = row
        with self._decoding(f"the passage {identity!r}"):
            if _checksum(*row[:-1]) != checksum:
                raise damaged(self._folder, f"the passage {identity!r} does not match its checksum")
            document = Document(id=identity, page_content=text, metadata=json.loads(metadata))
            return Passage(document, [(a, b) for a, b in np.frombuffer(spans, "<i4").reshape(-1, 2).tolist()])

    def _select(self, query: str, values: Sequence[Any]) -> list[Any]:
        rows = []
        for start in range(0, len(values), _VALUES_PER_QUERY):
            part = values[start : start + _VALUES_PER_QUERY]
            rows += self._connection.execute(f"{query} ({','.join('?' * len(part))})", part).fetchall()
        return rows

    @contextmanager
    def _decoding(self, what: str) -> Iterator[None]:
        """Raise errors of decoding as errors of a damaged index."""
        try:
            yield
        except (TypeError, ValueError, AttributeError, KeyError, OverflowError, RecursionError) as error:
            raise damaged(self._folder, f"{what} cannot be read: {type(error).__name__}") from error


def _head(text: str) -> Head:
    """Parse the text of a head; ValueError if a value is invalid, even if the checksum is right."""
    head = _HEADS.validate_json(text, strict=True)
    counts = (head.dimension - 1, head.rows, head.next_key - 1, head.commits)
    if not all(0 <= count < 2**53 for count in counts) or (head.rows and not _FILE.fullmatch(head.file)):
        raise ValueError("a count or the file is out of range")
    # Earlier releases, which had an approximate search, saved this setting.
    head.settings.pop("approximate", None)
    return head


@contextmanager
def _connected(folder: Path, *, create: bool = False) -> Iterator[sqlite3.Connection]:
    """Open a new connection for each use, since threads and forks cannot share it; uncommitted changes are rolled back."""
    if not create and not is_index(folder):
        check_not_shards(folder)
        raise RetrievalError(f"{folder} holds no index; make one with `convcoa index PATH --out {folder}`.")

    def worded(error: Exception) -> RetrievalError:
        if isinstance(error, sqlite3.OperationalError):
            return RetrievalError(f"The index {folder} cannot be used: {_advice(str(error))}.")
        return damaged(folder, str(error))

    # A reader may write too: it undoes a killed writer's transaction.
    with sqlite_connection(folder / DATABASE, "rwc" if create else "rw", autocommit=True, error=worded) as connection:
        yield connection


def _advice(reason: str) -> str:
    if "full" in reason or "disk I/O" in reason:
        return f"{reason}: make room on the disk; what was committed before is kept"
    if "locked" in reason:
        return f"{reason}: another process is writing to it; try again when that has ended"
    if "readonly" in reason or "unable to open" in reason:
        return f"{reason}: check the permissions of the folder"
    return reason


def _checksum(*values: int | str | bytes) -> int:
    total = 0
    for value in values:
        total = zlib.crc32(value if isinstance(value, bytes) else f"{value}\0".encode("utf-8", "replace"), total)
    return total
