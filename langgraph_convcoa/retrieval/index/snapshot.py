"""A snapshot: one state of an index, fixed during a search."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.array_file import checksum
from langgraph_convcoa.retrieval.corpus import Listed, Numbers, Passage, StaleSnapshot, read
from langgraph_convcoa.retrieval.encoders.base import Encoder, without_arithmetic
from langgraph_convcoa.retrieval.filters import Filter, predicate
from langgraph_convcoa.retrieval.index.database import STORED_TYPES, Block, Head, Keys, damaged, reading
from langgraph_convcoa.retrieval.scoring.patterns import Patterns

_KEPT_MASKS = 16

Checked = set[tuple[str, int, int]]
"""Blocks whose checksums were compared: pattern file, first row and checksum."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The `View` of an index after a commit; deleted passages keep their numbers until `compact`."""

    folder: Path
    head: Head
    blocks: list[Block]
    keys: Keys  # (n,), key of each passage, in rising order.
    alive: npt.NDArray[np.bool_] | None  # (n,), False for deleted passages; None if all exist.
    checked: Checked  # Shared by the snapshots of an index.
    _patterns: Patterns
    _masks: list[tuple[dict[str, Any], npt.NDArray[np.bool_]]] = field(default_factory=list)

    @classmethod
    def load(cls, folder: Path, checked: Checked, before: Snapshot | None = None) -> Snapshot:
        """Load the present state; `before` if nothing changed. FileNotFoundError if the pattern file was just replaced."""
        with reading(folder) as database:
            head = database.head()
            blocks = before.blocks if before is not None and before.head == head else database.blocks()
        file = folder / head.file
        # Reading past the end of a mapped file would end the process.
        if (held := file.stat().st_size) < head.bytes:
            raise RetrievalError(
                f"{file} is cut short: it has {held} of {head.bytes} bytes; restore it from a copy, or build the index again."
            )
        if before is not None and before.head == head:
            return before
        keys = _joined([block.keys for block in blocks], np.int64)
        if before is not None and head == replace(before.head, commits=head.commits, settings=head.settings):
            # Only deletions or settings changed: the patterns and the values computed from them stay.
            patterns = before._patterns
        else:
            offsets = np.concatenate([[0], np.cumsum(_joined([block.sizes for block in blocks], np.int64))])
            scales = _joined([block.scales for block in blocks], np.float32) if head.dtype == "int8" else None
            # Mapped now: a removed file stays readable through its map.
            patterns = Patterns(_mapped(file, head), offsets, scales, head.dtype)
        alive = keys > 0
        return cls(folder, head, blocks, np.abs(keys), None if alive.all() else alive, checked, patterns)

    def __len__(self) -> int:
        return len(self.keys) if self.alive is None else int(self.alive.sum())

    @property
    def source(self) -> str:
        return self.head.index

    @property
    def dimension(self) -> int:
        return self.head.dimension

    @property
    def numbers(self) -> Numbers:
        return np.arange(len(self.keys)) if self.alive is None else np.flatnonzero(self.alive)

    @property
    def pattern_count(self) -> int:
        """Number of patterns of passages that are not deleted."""
        return int(np.diff(self._patterns.offsets)[self.numbers].sum())

    @property
    def patterns(self) -> Patterns:
        self._check(self.blocks)
        return self._patterns

    def patterns_for(self, sets: Numbers) -> Patterns:
        firsts = np.array([block.first for block in self.blocks])
        numbers = np.unique(np.searchsorted(firsts, self._patterns.offsets[sets], side="right") - 1)
        self._check([self.blocks[number] for number in numbers])
        return self._patterns

    def _check(self, blocks: Sequence[Block]) -> None:
        names = [(self.head.file, block.first, block.patterns) for block in blocks]
        new = [block for block, name in zip(blocks, names, strict=True) if name not in self.checked]
        if not new:
            return
        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
            sums = pool.map(lambda block: checksum(self._patterns.values[block.rows]), new)
            for block, found in zip(new, sums, strict=True):
                if found != block.patterns:
                    rows = f"patterns {block.rows.start} to {block.rows.stop - 1}"
                    raise damaged(self.folder, f"{rows} of {self.head.file} do not match their checksum")
        self.checked.update(names)

    def check_encoder(self, encoder: Encoder) -> None:
        head = self.head
        if without_arithmetic(encoder.name) != without_arithmetic(head.encoder):
            raise RetrievalError(
                f"The index {self.folder} was built with the encoder {head.encoder!r}, not {encoder.name!r}; "
                "give the encoder that it was built with."
            )
        if encoder.dimension != head.dimension:
            raise RetrievalError(
                f"The encoder {encoder.name!r} gives vectors of length {encoder.dimension}, and the index {self.folder} "
                f"holds vectors of length {head.dimension}; give the encoder that it was built with."
            )

    def fetch(self, numbers: Sequence[int]) -> list[Passage]:
        keys = self.keys[np.asarray(numbers, dtype=np.int64)].tolist()
        with reading(self.folder) as database:
            found = database.passages(keys)
            missing = next((key for key in keys if key not in found), None)
            if missing is not None:
                if database.head().commits != self.head.commits:
                    raise StaleSnapshot(f"The index {self.folder} has changed since; search again.")
                raise damaged(self.folder, f"passage {missing} is missing")
        return [found[key] for key in keys]

    def listed(self) -> list[Listed]:
        with reading(self.folder) as database:
            found = database.documents()
        numbers = dict(zip(self.keys.tolist(), range(len(self.keys)), strict=True))
        # Passages that another process has added since are left out.
        there = ((name, metadata, [numbers[key] for key in keys if key in numbers]) for name, metadata, keys in found)
        return [Listed(name, metadata, own) for name, metadata, own in there if own]

    def allowed(self, condition: Filter | None) -> npt.NDArray[np.bool_] | None:
        """(n,), True for the passages that are not deleted and meet the condition; None if all do.

        For a mapping all metadata are read, for a function all passages; the results of the last mappings are kept.
        """
        if condition is None:
            return self.alive
        if isinstance(condition, Mapping):
            known = next((mask for wanted, mask in tuple(self._masks) if wanted == dict(condition)), None)
            if known is not None:
                return known
        passes = predicate(condition)
        if isinstance(condition, Mapping) and not _has_functions(condition):
            with reading(self.folder) as database:
                found = [key for key, document in database.without_texts() if passes(document)]
            mask = np.isin(self.keys, found)
            self._masks[:] = [(copy.deepcopy(dict(condition)), mask), *self._masks[: _KEPT_MASKS - 1]]
            return mask
        mask = np.zeros(len(self.keys), dtype=np.bool_)
        for number, passage in zip(self.numbers.tolist(), read(self), strict=True):
            mask[number] = passes(passage.document)
        return mask

    def verify(self) -> None:
        """Compare the database, all patterns and all passages with their checksums; RetrievalError says what fails."""
        with reading(self.folder) as database:
            database.check_integrity()
        for passage, size in zip(read(self), np.diff(self.patterns.offsets)[self.numbers], strict=True):
            if len(passage.spans) + 1 != size:
                raise damaged(self.folder, f"the passage {passage.document.id!r} has lost a window")
        with reading(self.folder) as database:
            if database.head().commits == self.head.commits and database.count() != len(self):
                raise damaged(self.folder, "its patterns and passages do not agree")


def _has_functions(condition: Any) -> bool:
    """True if a filter has functions, whose answers may change."""
    if isinstance(condition, Mapping):
        return any(map(_has_functions, condition.values()))
    return callable(condition) or (isinstance(condition, list | tuple) and any(map(_has_functions, condition)))


def _joined(arrays: Sequence[npt.NDArray[Any]], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    return np.concatenate([np.zeros(0, dtype=dtype), *arrays])


def _mapped(file: Path, head: Head) -> npt.NDArray[Any]:
    shape, dtype = (head.rows, head.dimension), STORED_TYPES[head.dtype]
    if not head.rows:
        return np.zeros(shape, dtype=dtype)
    # As a plain array: slices of a memmap are slow.
    return np.memmap(file, dtype=dtype, mode="r", shape=shape).view(np.ndarray)
