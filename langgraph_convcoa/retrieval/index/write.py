"""Writing to an index: rows to the pattern file and to the disk, then one transaction that makes them count.

Whatever a writer is killed in the middle of, the index is as it was before that transaction, or as it is after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.index.database import Block, Head, Keys
from langgraph_convcoa.retrieval.index.documents import Catalogue, Entry
from langgraph_convcoa.retrieval.index.file import RowFile, flush_folder, rows_checksum
from langgraph_convcoa.retrieval.index.snapshot import pattern_files
from langgraph_convcoa.retrieval.scoring.patterns import Patterns

BLOCK_ROWS = 4096
"""How many rows have one checksum, or one memory set where that is larger."""

_SETS_AT_ONCE = 2048


@dataclass(frozen=True)
class StoredSets:
    """Memory sets as they are stored: their rows one after another, the scales of int8 rows, and the size of each set."""

    values: npt.NDArray[Any]
    scales: npt.NDArray[np.float32] | None
    sizes: npt.NDArray[np.int64]


def append(database: Catalogue, entries: Sequence[Entry], sets: StoredSets, removed: Sequence[str]) -> None:
    """Add documents and delete others, in one transaction. The writer's lock must be held.

    Args:
        database: The index.
        entries: Documents, none of whose ids is there unless it is removed too.
        sets: The patterns of all their passages.
        removed: Ids of documents that are there.

    Raises:
        RetrievalError: It cannot be written; the index is as it was.
    """
    with database.reading() as connection:
        head = database.head(connection)
        last = database.last_block(connection, head)
    values, scales = pattern_files(database, head)
    with writable(database):
        try:
            values.write(head.rows, sets.values)
            if scales is not None and sets.scales is not None:
                scales.write(head.rows, sets.scales[:, None])
        except OSError:
            for file in (values, scales):
                with suppress(OSError):
                    if file is not None:
                        file.write(head.rows, np.zeros((0, file.columns)))
            raise
    keys = np.arange(head.next_key, head.next_key + len(sets.sizes))
    blocks = [_block(head.rows + first, part, numbers) for first, part, numbers in _parts(sets, keys)]
    if blocks and last is not None and last.rows + blocks[0].rows <= BLOCK_ROWS:
        blocks[0] = _joined(last, blocks[0], sets)
    with database.writing() as connection:
        deleted = database.remove(connection, removed) if removed else head.deleted
        next_key = database.put_entries(connection, entries, head.next_key)
        for block in blocks:
            database.put_block(connection, block)
        rows = head.rows + int(sets.sizes.sum())
        changed = replace(head, rows=rows, next_key=next_key, commits=head.commits + 1, deleted=deleted)
        database.put_head(connection, changed)


def remove(database: Catalogue, ids: Sequence[str]) -> None:
    """Delete documents that are there, in one transaction. The writer's lock must be held."""
    with database.writing() as connection:
        head = database.head(connection)
        deleted = database.remove(connection, ids)
        database.put_head(connection, replace(head, commits=head.commits + 1, deleted=deleted))


def rewrite(database: Catalogue, head: Head, sets: Iterable[tuple[Keys, StoredSets]], entries: Iterable[Entry] | None) -> None:
    """Put the memory sets into files of a new generation, then make them the index, in one transaction.

    The writer's lock must be held.

    Args:
        database: The index; made where there is none.
        head: What the index is to be; its generation is that of the new files.
        sets: The memory sets of the passages with these keys, which grow.
        entries: The documents, in place of those that are there; None to leave them as they are.

    Raises:
        RetrievalError: It cannot be written; the index is as it was.
    """
    files = pattern_files(database, head)
    blocks: list[Block] = []
    with writable(database):
        for file in files:
            if file is not None:
                file.create()
        rows = 0
        for keys, part in sets:
            files[0].write(rows, part.values)
            if files[1] is not None and part.scales is not None:
                files[1].write(rows, part.scales[:, None])
            blocks += [_block(rows + first, chunk, numbers) for first, chunk, numbers in _parts(part, keys)]
            rows += len(part.values)
        flush_folder(database.folder)
    with database.writing(create=True) as connection:
        if entries is None:
            database.clear(connection, "blocks", "deleted")
            next_key = head.next_key
        else:
            database.clear(connection)
            next_key = database.put_entries(connection, entries, head.next_key)
        for block in blocks:
            database.put_block(connection, block)
        database.put_head(connection, replace(head, rows=rows, next_key=next_key, commits=head.commits + 1, deleted=0))
    flush_folder(database.folder)
    _remove_other_files(database, files)


def gathered(patterns: Patterns, numbers: npt.NDArray[np.int64]) -> Iterator[tuple[npt.NDArray[np.int64], StoredSets]]:
    """The memory sets of these numbers as they are stored, some at a time, with their numbers."""
    for start in range(0, len(numbers), _SETS_AT_ONCE):
        part = numbers[start : start + _SETS_AT_ONCE]
        chosen = patterns.select(part)
        yield part, StoredSets(chosen.values, chosen.scales, np.diff(chosen.offsets))


@contextmanager
def writable(database: Catalogue) -> Iterator[None]:
    """Errors of the file system as one line."""
    try:
        yield
    except OSError as error:
        raise RetrievalError(
            f"The index {database.folder} cannot be written ({error.strerror or error}): make room on the disk or check the "
            "permissions; what was committed before is kept."
        ) from error


def _parts(sets: StoredSets, keys: Keys) -> Iterator[tuple[int, StoredSets, Keys]]:
    """Memory sets in parts of about a block, each with its first row and its keys."""
    ends = np.cumsum(sets.sizes)
    first, row = 0, 0
    while first < len(sets.sizes):
        last = max(first + 1, int(np.searchsorted(ends, row + BLOCK_ROWS, side="right")))
        end = int(ends[last - 1])
        scales = None if sets.scales is None else sets.scales[row:end]
        yield row, StoredSets(sets.values[row:end], scales, sets.sizes[first:last]), keys[first:last]
        first, row = last, end


def _block(first: int, sets: StoredSets, keys: Keys) -> Block:
    scales = 0 if sets.scales is None else rows_checksum(sets.scales)
    return Block(first, sets.sizes, keys, rows_checksum(sets.values), scales)


def _joined(last: Block, new: Block, sets: StoredSets) -> Block:
    """Two blocks as one, so that many small additions do not make many small blocks."""
    rows = slice(0, new.rows)
    scales = 0 if sets.scales is None else rows_checksum(sets.scales[rows], last.scales)
    sizes, keys = np.concatenate([last.sizes, new.sizes]), np.concatenate([last.keys, new.keys])
    return Block(last.first, sizes, keys, rows_checksum(sets.values[rows], last.patterns), scales)


def _remove_other_files(database: Catalogue, used: Sequence[RowFile | None]) -> None:
    names = {file.path.name for file in used if file is not None}
    for pattern in ("patterns.*.bin", "scales.*.bin"):
        for path in database.folder.glob(pattern):
            if path.name not in names:
                # Where it cannot be removed while a reader has it open, the next writer does.
                with suppress(OSError):
                    path.unlink()
