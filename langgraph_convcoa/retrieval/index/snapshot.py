"""One state of an index, as a search sees it from its start to its end, whatever is written meanwhile."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast, overload

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.documents.split import Span
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.filters import Filter, allowed_passages
from langgraph_convcoa.retrieval.index.database import Block, Head, Keys
from langgraph_convcoa.retrieval.index.documents import Catalogue, Outdated, Passage
from langgraph_convcoa.retrieval.index.file import RowFile, rows_checksum
from langgraph_convcoa.retrieval.scoring.patterns import Patterns, PatternType

_READ_AT_ONCE = 1000


def pattern_files(database: Catalogue, head: Head) -> tuple[RowFile, RowFile | None]:
    """The pattern file of a generation, and the file of its scales where the type has them."""
    folder, generation = database.folder, head.generation
    values = RowFile(folder / f"patterns.{generation}.bin", head.index, generation, head.dtype, head.dimension)
    if head.dtype != "int8":
        return values, None
    return values, RowFile(folder / f"scales.{generation}.bin", head.index, generation, "float32", 1)


@dataclass(eq=False)
class Checked:
    """Which blocks of patterns have been compared with their checksums, by this process."""

    blocks: set[tuple[int, int, int]] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The memory sets of an index after one of its commits; deleted ones keep their number until the index is compacted.

    Attributes:
        database: Where the passages are.
        head: The state that this is.
        blocks: The blocks of the pattern file.
        offsets: (n + 1,); memory set i is rows offsets[i] to offsets[i + 1].
        keys: (n,), the passage of each memory set, growing.
        alive: (n,), False for what is deleted; None where nothing is.
        checked: Shared by the snapshots of an index.
    """

    database: Catalogue
    head: Head
    blocks: list[Block]
    offsets: npt.NDArray[np.int64]
    keys: Keys
    alive: npt.NDArray[np.bool_] | None
    checked: Checked

    @classmethod
    def load(cls, database: Catalogue, checked: Checked, before: Snapshot | None = None) -> Snapshot:
        """The present state; nothing is read anew that `before` has.

        Raises:
            FileNotFoundError: The pattern file has just been replaced; to be tried again.
            RetrievalError: There is no index, or it is damaged or cut short.
        """
        with database.reading() as connection:
            head = database.head(connection)
            if before is not None and before.head == head:
                before.check_sizes()
                return before
            known = before.blocks[:-1] if before is not None and before.head.generation == head.generation else []
            start = known[-1].first + known[-1].rows if known else 0
            blocks = known + database.blocks(connection, head, start)
            deleted = database.deleted(connection, head)
        nothing = np.zeros(0, dtype=np.int64)
        keys = np.concatenate([nothing, *(block.keys for block in blocks)])
        offsets = np.concatenate([[0], np.cumsum(np.concatenate([nothing, *(block.sizes for block in blocks)]))])
        alive = None
        if len(deleted):
            alive = np.ones(len(keys), dtype=np.bool_)
            lows, highs = np.searchsorted(keys, deleted[:, 0]), np.searchsorted(keys, deleted[:, 1], side="right")
            for low, high in zip(lows, highs, strict=True):
                alive[low:high] = False
        snapshot = cls(database, head, blocks, offsets.astype(np.int64), keys, alive, checked)
        for file in snapshot.files:
            file.check(head.rows)
        # Mapped now: a file that another process replaces goes on being readable through its map.
        _ = snapshot._patterns
        if before is not None and (before.head.generation, before.head.rows) == (head.generation, head.rows):
            # What was computed of the same patterns stays.
            snapshot.__dict__["_patterns"] = before._patterns
        return snapshot

    def __len__(self) -> int:
        return len(self.keys) if self.alive is None else int(self.alive.sum())

    @property
    def dimension(self) -> int:
        """Length d of a pattern."""
        return self.head.dimension

    @property
    def pattern_count(self) -> int:
        """How many patterns there are without those of deleted passages."""
        sizes = np.diff(self.offsets)
        return int(sizes.sum() if self.alive is None else sizes[self.alive].sum())

    @property
    def files(self) -> list[RowFile]:
        """The files that the patterns are in."""
        return [file for file in pattern_files(self.database, self.head) if file is not None]

    @property
    def patterns(self) -> Patterns:
        """The patterns of all sets, the deleted ones too, each block compared with its checksum before its first use.

        Raises:
            RetrievalError: A block does not match its checksum.
        """
        self.check_blocks(self.blocks)
        return self._patterns

    def patterns_for(self, sets: npt.NDArray[np.int64]) -> Patterns:
        """The patterns, where only those of the given sets will be used, and so only their blocks are checked."""
        firsts = np.array([block.first for block in self.blocks])
        numbers = np.unique(np.searchsorted(firsts, self.offsets[sets], side="right") - 1)
        self.check_blocks([self.blocks[number] for number in numbers])
        return self._patterns

    @cached_property
    def _patterns(self) -> Patterns:
        values, *scales = (file.map(self.head.rows) for file in self.files)
        # Few, and asked for as an array that may be written to.
        column = np.array(scales[0][:, 0]) if scales else None
        return Patterns(values=values, scales=column, offsets=self.offsets, dtype=cast(PatternType, self.head.dtype))

    def check_encoder(self, encoder: Encoder) -> None:
        """Raise RetrievalError for an encoder that is not the one the index was built with."""
        head, folder = self.head, self.database.folder
        if _without_arithmetic(encoder.name) != _without_arithmetic(head.encoder):
            raise RetrievalError(
                f"The index {folder} was built with the encoder {head.encoder!r}, not {encoder.name!r}; "
                "give the encoder that it was built with."
            )
        if encoder.dimension != head.dimension:
            raise RetrievalError(
                f"The encoder {encoder.name!r} gives vectors of length {encoder.dimension}, and the index {folder} "
                f"holds vectors of length {head.dimension}; give the encoder that it was built with."
            )

    def check_sizes(self) -> None:
        """Raise RetrievalError when a file has been cut short since: reading past its end would end the process."""
        for file in self.files:
            file.check_size(self.head.rows)

    def check_blocks(self, blocks: Sequence[Block]) -> None:
        """Compare those blocks with their checksums that have not been yet."""
        with self.checked.lock:
            names = [(self.head.generation, block.first, block.patterns) for block in blocks]
            new = [block for block, name in zip(blocks, names, strict=True) if name not in self.checked.blocks]
            if not new:
                return
            with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
                for block, good in zip(new, pool.map(self._matches, new), strict=True):
                    if not good:
                        raise self.database.damaged(
                            f"patterns {block.first} to {block.first + block.rows - 1} do not match their checksum"
                        )
            self.checked.blocks.update(names)

    def _matches(self, block: Block) -> bool:
        patterns, rows = self._patterns, slice(block.first, block.first + block.rows)
        scales = 0 if patterns.scales is None else rows_checksum(patterns.scales[rows])
        return (rows_checksum(patterns.values[rows]), scales) == (block.patterns, block.scales)

    # Passages ---------------------------------------------------------------------------------------------------------

    @property
    def passages(self) -> Sequence[Document]:
        """The passages by number, read when they are asked for; a deleted one is an empty document."""
        return Passages(self)

    def fetch(self, numbers: Sequence[int]) -> list[Passage]:
        """The passages of these memory sets.

        Raises:
            Outdated: One has been deleted since.
            RetrievalError: One is damaged.
        """
        keys = [int(self.keys[number]) for number in numbers]
        with self.database.reading() as connection:
            found = self.database.passages(connection, keys)
            missing = next((key for key in keys if key not in found), None)
            if missing is not None:
                if self.database.head(connection).commits != self.head.commits:
                    raise Outdated(f"The index {self.database.folder} has changed since; search again.")
                raise self.database.damaged(f"passage {missing} is missing")
        return [found[key] for key in keys]

    def set_spans(self, index: int) -> list[Span]:
        """Where the windows of a passage stand in its text."""
        return self.fetch([index])[0].spans

    def allowed(self, condition: Filter | None) -> npt.NDArray[np.bool_] | None:
        """(n,), True for the passages that are there and meet the condition; None where all do.

        All metadata is read for a condition; for one of metadata the answer is kept until the index or the condition changes.
        """
        if condition is None:
            return self.alive
        if isinstance(condition, Mapping):
            kept = self.__dict__.get("_allowed")
            if kept is not None and kept[0] == dict(condition):
                return cast(npt.NDArray[np.bool_], kept[1])
        mask = np.zeros(len(self.keys), dtype=np.bool_)
        for numbers, passages in self.batches():
            mask[numbers] = allowed_passages([passage.document for passage in passages], condition)
        if isinstance(condition, Mapping):
            wanted = {name: value.copy() if hasattr(value, "copy") else value for name, value in condition.items()}
            self.__dict__["_allowed"] = (wanted, mask)
        return mask

    def batches(self) -> Iterator[tuple[npt.NDArray[np.int64], list[Passage]]]:
        """All passages that are not deleted with their numbers, some at a time, so that no writer waits long."""
        numbers = np.arange(len(self.keys)) if self.alive is None else np.flatnonzero(self.alive)
        for start in range(0, len(numbers), _READ_AT_ONCE):
            part = numbers[start : start + _READ_AT_ONCE]
            yield part, self.fetch(part.tolist())


class Passages(Sequence[Document]):
    """The passages of a snapshot by the number of their memory set."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __len__(self) -> int:
        return len(self._snapshot.keys)

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> list[Document]: ...
    def __getitem__(self, index: int | slice) -> Document | list[Document]:
        if isinstance(index, slice):
            return self._read(range(len(self))[index])
        return self._read([range(len(self))[index]])[0]

    def __iter__(self) -> Iterator[Document]:
        for start in range(0, len(self), _READ_AT_ONCE):
            yield from self[start : start + _READ_AT_ONCE]

    def _read(self, numbers: Sequence[int]) -> list[Document]:
        alive = self._snapshot.alive
        there = [number for number in numbers if alive is None or alive[number]]
        found = dict(zip(there, self._snapshot.fetch(there), strict=True))
        return [found[number].document if number in found else Document("") for number in numbers]


def _without_arithmetic(name: str) -> str:
    """An encoder's name but for the type that it computes in: a machine without bfloat16 may open what one with it built."""
    return re.sub(r"\|(?:float32|bfloat16)\|", "|", name)
