"""Writing to an index: pattern rows are appended to a file, then one transaction commits them.

Rows are never changed; compacting or saving writes another file. So a killed writer leaves the state before or after its
transaction.
"""

from __future__ import annotations

import os
import re
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice, tee
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.files import flush_folder
from langgraph_convcoa.retrieval.array_file import checksum
from langgraph_convcoa.retrieval.changes import Selection, check_storable, entries_of
from langgraph_convcoa.retrieval.corpus import Numbers, Passage, View, read
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.embeddings import encoder_settings
from langgraph_convcoa.retrieval.index.database import (
    DATABASE,
    STORED_TYPES,
    Block,
    Head,
    Transaction,
    exists,
    shrink,
    writing,
)
from langgraph_convcoa.retrieval.memory_corpus import Memory
from langgraph_convcoa.retrieval.patterns import Patterns, PatternType, encode_patterns

# Largest number of rows in a block, unless a single passage has more. Each block has one checksum.
BLOCK_ROWS = 4096
_PASSAGES_AT_ONCE = 2048
_LOCK = "writer.lock"
# Files that an unfinished first save leaves.
_REMAINS = re.compile(rf"patterns\.\d+\.bin|{re.escape(_LOCK)}|{re.escape(DATABASE)}(-journal)?")
# Embeddings without a model name get a name with this ending. The ending differs in each process.
_UNNAMED = re.compile(r":[0-9a-f]{32}$")


class WriterLock:
    """The lock for writing to an index. One object of one process holds it at a time; threads of that object take turns."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._threads = threading.RLock()
        self._file = FileLock(folder / _LOCK, timeout=0, thread_local=False)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock; RetrievalError if another process or object writes, or the folder cannot be written to."""
        with self._threads:
            try:
                acquired = self._file.acquire()
            except Timeout:
                raise RetrievalError(
                    f"The index {self._folder} is being written to by another process, or through another object of this one; "
                    "try again when that has ended."
                ) from None
            except OSError as error:
                raise RetrievalError(
                    f"The index {self._folder} cannot be written to ({error.strerror}): check the permissions of the folder."
                ) from error
            with acquired:
                yield


# `append` and `compact` need a caller that holds the writer's lock. After a RetrievalError, the index is unchanged.


def append(folder: Path, chosen: Selection, encoded: Memory) -> None:
    """Add documents and delete the documents that they replace; `encoded` holds the new passages in order."""
    with writing(folder) as database:
        database.remove(chosen.replaced)
        head = database.head()
        keys = np.arange(head.next_key, head.next_key + len(encoded))
        head = _put_patterns(database, folder, head, encoded.patterns, keys)
        names = [entry.id for entry in chosen.entries for _ in entry.passages]
        database.put_passages(head.next_key, zip(names, read(encoded), strict=True))
        database.put_head(replace(head, next_key=head.next_key + len(encoded)))


def compact(folder: Path, head: Head, view: View) -> None:
    """Write the patterns of passages that are not deleted into a new file, which replaces the old file."""
    with writing(folder) as database:
        head = _put_file(database, folder, head, view, view.keys[view.numbers])
        database.put_head(head)
    _remove_others(folder, head.file)
    # If readers keep the database busy, shrinking fails, and its file only stays larger.
    with suppress(RetrievalError):
        shrink(folder)


def write_index(folder: Path, view: View, encoder: Encoder, dtype: PatternType, settings: Mapping[str, Any]) -> None:
    """Write the passages of a view and a retriever's settings as an index; an existing index is replaced.

    InputError if something cannot be stored; RetrievalError for a folder with other files, or an encoder without a name.
    """
    if dtype not in STORED_TYPES:
        raise InputError(f"Patterns cannot be stored as {dtype!r}; use one of {', '.join(STORED_TYPES)}.")
    if _UNNAMED.search(encoder.name):
        raise RetrievalError(
            f"The embeddings {encoder.name.rsplit(':', 1)[0]} have no model name to know them by when the index is opened: "
            "give EmbeddingsEncoder(embeddings, name=...)."
        )
    head = Head(secrets.token_hex(16), dtype, encoder.dimension, encoder.name, encoder_settings(encoder), dict(settings))
    for passage in read(view):
        check_storable(passage.document)
    _prepare(folder)
    with WriterLock(folder).held():
        replaced = exists(folder)
        with writing(folder, create=True) as database:
            if replaced:
                # Keys are never reused: a reader of the old state must not take a new passage for an old one.
                old = database.head()
                head = replace(head, index=old.index, next_key=old.next_key, commits=old.commits)
                database.clear("passages")
            keys = np.arange(head.next_key, head.next_key + len(view))
            head = _put_file(database, folder, head, view, keys)
            database.put_passages(head.next_key, _named(view))
            database.put_head(replace(head, next_key=head.next_key + len(view)))
        _remove_others(folder, head.file)


def _prepare(folder: Path) -> None:
    """Make a folder for an index if it is missing; RetrievalError if it holds other files."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Users may keep other files in the folder of an existing index.
        names = [] if exists(folder) else sorted(file.name for file in folder.iterdir())
    except OSError as error:
        raise RetrievalError(f"The folder {folder} cannot be used for an index ({error.strerror}); name another.") from error
    other = next((name for name in names if not _REMAINS.fullmatch(name)), None)
    if other is not None:
        raise RetrievalError(f"The folder {folder} holds other files ({other}); name an empty one for the index.")


def _named(view: View) -> Iterator[tuple[str, Passage]]:
    """The passages of a view, each with the id of its document."""
    passages, grouped = tee(read(view))
    for entry in entries_of(passage.document for passage in grouped):
        for passage in islice(passages, len(entry.passages)):
            yield entry.id, passage


def _put_file(database: Transaction, folder: Path, head: Head, view: View, keys: Numbers) -> Head:
    """Write the patterns of a view's passages under these keys into a new file."""
    # The file is named by its commit, so no file that readers have open is overwritten.
    head = replace(head, file=f"patterns.{head.commits + 1}.bin", rows=0)
    database.clear("blocks")
    patterns, numbers = view.patterns, view.numbers
    try:
        _write_rows(folder, head, b"")
        for start in range(0, len(keys), _PASSAGES_AT_ONCE):
            part = slice(start, start + _PASSAGES_AT_ONCE)
            chosen = patterns.select(numbers[part])
            if chosen.dtype != head.dtype:
                values, scales = encode_patterns(chosen.rows(0, len(chosen.values)), head.dtype)
                chosen = Patterns(values, chosen.offsets, scales, head.dtype)
            head = _put_patterns(database, folder, head, chosen, keys[part])
    except RetrievalError:
        with suppress(OSError):
            (folder / head.file).unlink()
        raise
    flush_folder(folder)
    return head


def _put_patterns(database: Transaction, folder: Path, head: Head, patterns: Patterns, keys: Numbers) -> Head:
    """Append the patterns of passages with these keys and store their blocks; returns the head with the new count of rows."""
    _write_rows(folder, head, patterns.values.reshape(-1).view(np.uint8).data)
    for block in _blocks(patterns, keys, database.last_block()):
        database.put_block(block)
    return replace(head, rows=head.rows + len(patterns.values))


def _write_rows(folder: Path, head: Head, data: bytes | memoryview) -> None:
    """Write data after the valid rows; rows that a killed writer left there are overwritten."""
    path = folder / head.file
    try:
        with path.open("r+b" if head.bytes else "wb") as stream:
            stream.truncate(head.bytes)
            stream.seek(head.bytes)
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        # Remove the part that was written.
        with suppress(OSError):
            os.truncate(path, head.bytes)
        raise RetrievalError(
            f"The index {folder} cannot be written ({error.strerror or error}): make room on the disk or check the "
            "permissions; what was committed before is kept."
        ) from error


def _blocks(patterns: Patterns, keys: Numbers, block: Block) -> Iterator[Block]:
    """Divide patterns into blocks. The first block extends the last stored block (`block`) if that has room."""
    ends = patterns.offsets[1:]
    start = row = 0
    while start < len(ends):
        held = block.rows.stop - block.first
        # A block holds at least one passage.
        stop = max(int(np.searchsorted(ends, row + BLOCK_ROWS - held, side="right")), start + (not held))
        end = int(patterns.offsets[stop])
        scales = [] if patterns.scales is None else [patterns.scales[row:end]]
        if end > row:
            yield Block(
                block.first,
                np.concatenate([block.sizes, np.diff(patterns.offsets[start : stop + 1]).astype(np.int32)]),
                np.concatenate([block.keys, keys[start:stop]]),
                np.concatenate([block.scales, *scales]),
                checksum(patterns.values[row:end], block.patterns),
            )
        start, row, block = stop, end, Block(block.rows.stop + end - row)


def _remove_others(folder: Path, file: str) -> None:
    flush_folder(folder)
    for path in folder.glob("patterns.*.bin"):
        if path.name != file:
            # A file that a reader has open is removed by a later writer.
            with suppress(OSError):
                path.unlink()
