"""Writing to an index: rows to its pattern file and to the disk, then one transaction that makes them count.

The pattern file is rows one after another, appended and never changed; compacting or saving writes another file. Whatever a
writer is killed in the middle of, the index is as it was before that transaction, or as it is after it.
"""

from __future__ import annotations

import os
import re
import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from filelock import FileLock, Timeout

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.files import flush_folder
from langgraph_convcoa.retrieval.corpus import View, read
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.choice import encoder_settings
from langgraph_convcoa.retrieval.index.database import DATABASE, Block, Head, Keys, exists, reading, writing
from langgraph_convcoa.retrieval.index.documents import Entry, StoredSets, check_storable, entries_of
from langgraph_convcoa.retrieval.index.snapshot import STORED_TYPES, rows_checksum
from langgraph_convcoa.retrieval.scoring.patterns import Patterns, PatternType, decode_patterns, encode_patterns

BLOCK_ROWS = 4096
"""How many rows have one checksum, or those of one passage where they are more."""

_PASSAGES_AT_ONCE = 2048
_LOCK = "writer.lock"
# What an unfinished first save leaves behind.
_REMAINS = re.compile(rf"patterns\.\d+\.bin|{re.escape(_LOCK)}|{re.escape(DATABASE)}(-journal)?")
# The name that embeddings without a model name are given: another one in every process.
_UNNAMED = re.compile(r":[0-9a-f]{32}$")


class WriterLock:
    """The right to write to an index: one object of one process at a time, whose threads wait for each other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._threads = threading.RLock()
        self._file = FileLock(folder / _LOCK, timeout=0, thread_local=False)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock.

        Raises:
            RetrievalError: Another process or object is writing, or the folder cannot be written to.
        """
        with self._threads:
            try:
                self._file.acquire()
            except Timeout:
                raise RetrievalError(
                    f"The index {self._folder} is being written to by another process, or through another object of this one; "
                    "try again when that has ended."
                ) from None
            except OSError as error:
                raise RetrievalError(
                    f"The index {self._folder} cannot be written to ({error.strerror}): check the permissions of the folder."
                ) from error
            try:
                yield
            finally:
                self._file.release()


# Each of these holds while the caller holds the writer's lock. --------------------------------------------------------------


def append(folder: Path, entries: Sequence[Entry], sets: StoredSets, removed: Sequence[str] = ()) -> None:
    """Add documents and delete others, in one transaction.

    Args:
        folder: The index.
        entries: Documents, none of whose ids is there unless it is removed too.
        sets: The patterns of all their passages.
        removed: Ids of documents that are there.

    Raises:
        RetrievalError: It cannot be written; the index is as it was.
    """
    with writing(folder) as database:
        head = database.head()
        _write_rows(folder / head.file, sets.values, head)
        database.remove(removed)
        keys = np.arange(head.next_key, head.next_key + len(sets.sizes))
        database.put_blocks(_blocks(sets, keys, database.last_block() or _empty(head.rows)))
        next_key = database.put_entries(entries, head.next_key)
        database.put_head(replace(head, rows=head.rows + len(sets.values), next_key=next_key))


def remove(folder: Path, ids: Sequence[str]) -> None:
    """Delete documents that are there, in one transaction."""
    with writing(folder) as database:
        database.remove(ids)
        database.put_head(database.head())


def rewrite(folder: Path, head: Head, parts: Iterable[tuple[Keys, StoredSets]], entries: Iterable[Entry] | None) -> None:
    """Write patterns into a new file and make it that of the index, in one transaction.

    Args:
        folder: The index; made where there is none.
        head: What the index is to be, of the commits that it has had.
        parts: The keys and patterns of all passages, some at a time, in the order of the keys.
        entries: The documents, in place of those that are there; None to leave them as they are.

    Raises:
        RetrievalError: It cannot be written; the index is as it was.
    """
    # Named by the commit that it belongs to, so that no file that readers may have open is written over.
    head = replace(head, file=f"patterns.{head.commits + 1}.bin", rows=0)
    blocks: list[Block] = []
    with writing(folder, create=True) as database:
        _write_rows(folder / head.file, np.zeros((0, head.dimension)), head)
        for keys, sets in parts:
            _write_rows(folder / head.file, sets.values, head)
            blocks += _blocks(sets, keys, blocks.pop() if blocks else _empty(0))
            head = replace(head, rows=head.rows + len(sets.values))
        flush_folder(folder)
        database.put_blocks(blocks, all_of_them=True)
        if entries is not None:
            database.clear()
            head = replace(head, next_key=database.put_entries(entries, head.next_key))
        database.put_head(head)
    flush_folder(folder)
    for path in folder.glob("patterns.*.bin"):
        if path.name != head.file:
            # Where it cannot be removed while a reader has it open, a later writer does.
            with suppress(OSError):
                path.unlink()


def save_memory(
    view: View,
    path: str | Path,
    encoder: Encoder,
    *,
    dtype: PatternType | None = None,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Save passages and patterns as an index, in place of the one that may be there, in one transaction.

    Args:
        view: Of these passages; deleted ones are left out.
        path: A folder that is empty, does not exist or holds an index.
        encoder: What they were encoded with.
        dtype: How patterns are stored; as they are when None.
        settings: Settings of a retriever, kept with it.

    Raises:
        InputError: There is no such type, or an id or metadata cannot be stored.
        RetrievalError: The folder cannot be used, or the encoder has no name; an index that was there is as it was.
    """
    folder = Path(path)
    head = new_head(encoder, dtype or view.patterns.dtype, settings)
    for passage in read(view):
        check_storable(passage.document)
    prepare_folder(folder)
    with WriterLock(folder).held():
        if exists(folder):
            with reading(folder) as database:
                there = database.head()
            # Keys go on growing, so that a reader of the old state never takes a new passage for one of its own.
            head = replace(head, next_key=there.next_key, commits=there.commits, index=there.index)
        keys = head.next_key + np.arange(len(view))
        rewrite(folder, head, stored_sets(view.patterns, view.numbers, keys, head.dtype), entries_of(read(view)))


def new_head(encoder: Encoder, dtype: PatternType, settings: Mapping[str, Any] | None) -> Head:
    """The head of an index of nothing.

    Raises:
        InputError: There is no such type.
        RetrievalError: The encoder has no name to compare it by when the index is opened again.
    """
    if dtype not in STORED_TYPES:
        raise InputError(f"Patterns cannot be stored as {dtype!r}; use one of {', '.join(STORED_TYPES)}.")
    if _UNNAMED.search(encoder.name):
        raise RetrievalError(
            f"The embeddings {encoder.name.rsplit(':', 1)[0]} have no model name to know them by when the index is opened: "
            "give EmbeddingsEncoder(embeddings, name=...)."
        )
    stated = encoder_settings(encoder)
    return Head(secrets.token_hex(16), dtype, encoder.dimension, encoder.name, stated, dict(settings or {}))


def prepare_folder(folder: Path) -> None:
    """Make a folder for an index where it is missing.

    Raises:
        RetrievalError: It cannot be made, or holds something that is no index.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # An owner may keep files in the folder of an index.
        names = [] if exists(folder) else sorted(file.name for file in folder.iterdir())
    except OSError as error:
        raise RetrievalError(f"The folder {folder} cannot be used for an index ({error.strerror}); name another.") from error
    other = next((name for name in names if not _REMAINS.fullmatch(name)), None)
    if other is not None:
        raise RetrievalError(f"The folder {folder} holds other files ({other}); name an empty one for the index.")


def stored_sets(
    patterns: Patterns, numbers: npt.NDArray[np.int64], keys: Keys, dtype: PatternType
) -> Iterator[tuple[Keys, StoredSets]]:
    """The patterns of the passages of these numbers as they are stored, some at a time, with their keys."""
    for start in range(0, len(numbers), _PASSAGES_AT_ONCE):
        part = slice(start, start + _PASSAGES_AT_ONCE)
        chosen = patterns.select(numbers[part])
        values, scales = chosen.values, chosen.scales
        if dtype != patterns.dtype:
            values, scales = encode_patterns(decode_patterns(values, scales, patterns.dtype), dtype)
        yield keys[part], StoredSets(values, scales, np.diff(chosen.offsets))


def _write_rows(path: Path, rows: npt.NDArray[Any], head: Head) -> None:
    """Put rows on the disk after those that count, in place of what a killed writer left there.

    Raises:
        RetrievalError: They cannot be written.
    """
    data = np.ascontiguousarray(rows, dtype=STORED_TYPES[head.dtype])
    place = head.rows * head.dimension * data.itemsize
    try:
        with path.open("r+b" if place else "wb") as stream:
            stream.truncate(place)
            stream.seek(place)
            stream.write(data.reshape(-1).view(np.uint8).data)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        # What part of it was written takes no room.
        with suppress(OSError):
            os.truncate(path, place)
        raise RetrievalError(
            f"The index {path.parent} cannot be written ({error.strerror or error}): make room on the disk or check the "
            "permissions; what was committed before is kept."
        ) from error


def _empty(first: int) -> Block:
    """A block of nothing, at this row."""
    return Block(first, np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32))


def _blocks(sets: StoredSets, keys: Keys, block: Block) -> Iterator[Block]:
    """Patterns as blocks, the first of them joined to a block that they follow, where there is room."""
    ends = np.cumsum(sets.sizes)
    start = row = 0
    while start < len(ends):
        held = block.rows.stop - block.first
        # A block holds the rows of one passage, however many they are.
        stop = max(int(np.searchsorted(ends, row + BLOCK_ROWS - held, side="right")), start + (not held))
        end = int(ends[stop - 1]) if stop > start else row
        scales = [] if sets.scales is None else [sets.scales[row:end]]
        block = Block(
            block.first,
            np.concatenate([block.sizes, sets.sizes[start:stop].astype(np.int32)]),
            np.concatenate([block.keys, keys[start:stop]]),
            np.concatenate([block.scales, *scales]),
            rows_checksum(sets.values[row:end], block.patterns),
        )
        yield block
        start, row, block = stop, end, _empty(block.rows.stop)
