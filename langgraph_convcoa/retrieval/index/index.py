"""An index: passages and their patterns in a folder, searched without being read into memory."""

from __future__ import annotations

import copy
import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.array_file import checksum
from langgraph_convcoa.retrieval.changes import Committed, batches_of, check_deletable, distinct, documents_of, select
from langgraph_convcoa.retrieval.corpus import Corpus, Listed, Numbers, Passage, StaleSnapshot, read
from langgraph_convcoa.retrieval.encoders.base import Encoder, without_arithmetic
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.filters import Filter, predicate
from langgraph_convcoa.retrieval.graph.index import GraphFollower
from langgraph_convcoa.retrieval.graph.settings import GraphSettings, graph_settings
from langgraph_convcoa.retrieval.hybrid.follower import BM25Follower
from langgraph_convcoa.retrieval.index.database import STORED_TYPES, Block, Head, damaged, exists, reading, writing
from langgraph_convcoa.retrieval.index.writer import WriterLock, append, compact, write_index
from langgraph_convcoa.retrieval.memory_corpus import empty_memory, encoded_memory
from langgraph_convcoa.retrieval.patterns import Patterns, PatternType
from langgraph_convcoa.retrieval.progress import Progress, track

_LOGGER = logging.getLogger(__name__)
# Files of the BM25 index and the evidence graph. Passages missing in a file are read at the first query that needs the file.
LEXICAL_FILE, GRAPH_FILE = "lexical.safetensors", "graph.safetensors"
_KEPT_MASKS = 16
_OPENINGS = 5
# Blocks whose checksums were compared: pattern file, first row and checksum.
Checked = set[tuple[str, int, int]]


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The `View` of an index after a commit; deleted passages keep their numbers until `compact`."""

    folder: Path
    head: Head
    blocks: list[Block]
    keys: Numbers  # (n,), key of each passage, in rising order.
    alive: npt.NDArray[np.bool_] | None  # (n,), False for deleted passages; None if all exist.
    checked: Checked  # Shared by the snapshots of an index.
    _patterns: Patterns
    _masks: list[tuple[dict[str, Any], npt.NDArray[np.bool_]]] = field(default_factory=list)

    @classmethod
    def load(cls, folder: Path, checked: Checked, before: Snapshot | None = None) -> Snapshot:
        """Load the current state, or return `before` if unchanged. FileNotFoundError if the pattern file was just replaced."""
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
        if before is not None and head == replaced(before.head, commits=head.commits, settings=head.settings):
            # Only deletions or settings changed: the patterns and the values computed from them stay.
            patterns = before._patterns
        else:
            offsets = np.concatenate([[0], np.cumsum(_joined([block.sizes for block in blocks], np.int64))])
            scales = _joined([block.scales for block in blocks], np.float32) if head.dtype == "int8" else None
            shape, dtype = (head.rows, head.dimension), STORED_TYPES[head.dtype]
            # A file that is mapped now stays readable if it is removed. Slices of a plain array are faster than of a memmap.
            rows = np.memmap(file, dtype, "r", shape=shape).view(np.ndarray) if head.rows else np.zeros(shape, dtype)
            patterns = Patterns(rows, offsets, scales, head.dtype)
        alive = keys > 0
        return cls(folder, head, blocks, np.abs(keys), None if alive.all() else alive, checked, patterns)

    def __len__(self) -> int:
        return len(self.keys) if self.alive is None else int(self.alive.sum())

    @property
    def source(self) -> str:
        return self.head.index

    @property
    def numbers(self) -> Numbers:
        return np.arange(len(self.keys)) if self.alive is None else np.flatnonzero(self.alive)

    @property
    def pattern_count(self) -> int:
        """Number of patterns of passages that are not deleted."""
        return int(np.diff(self._patterns.offsets)[self.numbers].sum())

    @cached_property
    def patterns(self) -> Patterns:
        names = [(self.head.file, block.first, block.patterns) for block in self.blocks]
        new = [block for block, name in zip(self.blocks, names, strict=True) if name not in self.checked]
        if not new:
            return self._patterns
        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
            sums = pool.map(lambda block: checksum(self._patterns.values[block.rows]), new)
            for block, found in zip(new, sums, strict=True):
                if found != block.patterns:
                    rows = f"patterns {block.rows.start} to {block.rows.stop - 1}"
                    raise damaged(self.folder, f"{rows} of {self.head.file} do not match their checksum")
        self.checked.update(names)
        return self._patterns

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

        A mapping is compared with all metadata; a function reads all passages. The results of the last mappings are kept.
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


class Index(Corpus):
    """An index in a folder: a memory-mapped file of patterns, and a database of documents, metadata and settings.

    Opening reads no pattern; each block of patterns is compared with its checksum before its first use. Any number of
    processes may read while one writes; they see a commit at their next search. A killed process leaves the index as it was
    after its last commit. RetrievalError if there is no index, or if it has another version or is damaged.
    """

    path: Path
    bm25: BM25Follower
    graph: GraphFollower

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = WriterLock(self.path)
        self._checked: Checked = set()
        self._guard = threading.Lock()
        self.bm25 = BM25Follower(self.path / LEXICAL_FILE, self._lock.held)
        self.graph = GraphFollower(self.path / GRAPH_FILE, self._lock.held)
        self._current: Snapshot | None = None
        self.snapshot()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path,)

    def __repr__(self) -> str:
        # The number comes from the last snapshot, so that nothing is read.
        held = "" if self._current is None else f", passages={len(self._current)}"
        return f"Index({str(self.path)!r}{held})"

    def snapshot(self) -> Snapshot:
        with self._guard:
            for _ in range(_OPENINGS):
                try:
                    self._current = Snapshot.load(self.path, self._checked, self._current)
                    return self._current
                except FileNotFoundError as error:
                    # The file was replaced after the head was read, or it is lost.
                    missing = error
            raise RetrievalError(f"{missing.filename} is missing; restore it from a copy, or build the index again.")

    @property
    def head(self) -> Head:
        """The encoder, type, dimension, settings and counts of the index."""
        return self.snapshot().head

    def verify(self) -> None:
        """Read everything and compare checksums; RetrievalError says what is damaged."""
        with self._guard:
            self._current, self._checked = None, set()
        self.snapshot().verify()

    def ingest(
        self,
        documents: Iterable[Document],
        encoder: Encoder,
        *,
        replace: bool = False,
        cache: PatternCache | None = None,
        progress: Progress = False,
    ) -> Iterator[Committed]:
        """Add documents in batches of up to 256; each yielded result is on the disk. Memory use is that of one batch.

        A document with the same id and content as a stored one is skipped without being encoded, so a killed run can be run
        again. After an error, earlier batches stay. Otherwise as `Corpus.ingest`.
        """
        self.snapshot().check_encoder(encoder)
        total = len(documents) if isinstance(documents, Sized) else None
        empty = updated = 0
        with self._lock.held(), track(progress, total, "Indexing") as advance:
            for batch in batches_of(documents):
                empty += sum(not document.page_content.strip() for document in batch)
                done = self._commit(batch, encoder, replace, cache)
                updated += done.updated
                yield done
                advance(len(batch))
        if empty:
            _LOGGER.warning("Left out %d document(s) without text.", empty)
        if updated:
            self._purge()
        self.bm25.keep_up(self.snapshot())
        self.graph.keep_up(self.snapshot())

    def delete(self, ids: Iterable[str]) -> list[str]:
        """Delete the documents with these ids, and return the ids that existed; `compact` removes their patterns.

        InputError for the id of a part of a longer document; nothing is deleted then.
        """
        names = distinct(ids)
        if not names:
            return []
        with self._lock.held():
            with writing(self.path) as database:
                names = check_deletable(names, database.keys_of(names), database.owners)
                if names:
                    database.remove(names)
                    database.put_head(database.head())
            if names:
                self._purge()
        return names

    def documents(self, ids: Iterable[str]) -> list[Document]:
        names = distinct(ids)
        with reading(self.path) as database:
            return documents_of(names, database.named(names))

    def compact(self) -> None:
        """Write the patterns again without those of deleted passages; readers keep their state."""
        with self._lock.held():
            state = self.snapshot()
            compact(self.path, state.head, state)
            self.remove_unused()
            self._purge()

    def save_lexical(self) -> bool:
        """Write the BM25 index to the folder, so that the next process does not read all passages; False if that fails.

        `ingest` updates an existing file if much is missing in it (more than 256 passages and 1 in 200). A deletion, an update
        and `compact` always update it, so that no deleted word stays.
        """
        return self.bm25.save(self.snapshot())

    def save_graph(self) -> bool:
        """Write the evidence graph to the folder, as `save_lexical` writes the BM25 index."""
        return self.graph.save(self.snapshot())

    def put_settings(self, settings: Mapping[str, Any]) -> None:
        """Store a retriever's settings with the index; an evidence graph that they switch off is removed."""
        with self._lock.held():
            with writing(self.path) as database:
                database.put_head(replaced(database.head(), settings=dict(settings)))
            self.remove_unused()

    def default_settings(self) -> dict[str, Any]:
        """The saved setting `graph`. An index made without an evidence graph gets none: a graph takes time and memory."""
        return {"graph": self.head.settings.get("graph")}

    def keep_settings(self, path: str | Path, settings: Mapping[str, Any], dtype: PatternType | None) -> bool:
        if self.path.resolve() != Path(path).resolve():
            return False
        if dtype not in (None, self.head.dtype):
            raise InputError(f"The index {path} cannot become {dtype} in its place; save to another folder.")
        self.put_settings(settings)
        return True

    def _purge(self) -> None:
        """Remove deleted documents from the files of the BM25 index and the evidence graph."""
        self.bm25.purge(self.snapshot())
        self.graph.purge(self.snapshot())

    def remove_unused(self) -> None:
        """Remove an evidence graph that is switched off."""
        if self.head.settings.get("graph") in (None, False):
            self.graph.discard()

    def _commit(self, documents: list[Document], encoder: Encoder, replace: bool, cache: PatternCache | None) -> Committed:
        with reading(self.path) as database:
            dtype = database.head().dtype
            chosen = select(documents, encoder, replace=replace, digests=database.digests, owners=database.owners)
        if chosen.entries:
            passages = [passage for entry in chosen.entries for passage in entry.passages]
            append(self.path, chosen, encoded_memory(passages, encoder, dtype, cache, progress=False))
        return chosen.done


def open_or_create(
    path: str | Path, encoder: Encoder, dtype: PatternType | None = None, settings: Mapping[str, Any] | None = None
) -> Index:
    """Open the index in a folder, or make an empty one with a retriever's settings (see `write_index`).

    An existing index keeps its settings, except those of the graph. RetrievalError if it has another encoder or type, or
    cannot be opened or made.
    """
    settings = settings or {}
    if not exists(Path(path)):
        write_index(Path(path), empty_memory(), encoder, dtype or "float32", settings)
        return Index(path)
    index = Index(path)
    index.snapshot().check_encoder(encoder)
    if dtype not in (None, index.head.dtype):
        raise RetrievalError(f"The index {path} stores its patterns as {index.head.dtype}, not {dtype}; name another folder.")
    index.remove_unused()
    graph = graph_settings(settings.get("graph"))
    if graph is not None:
        put_graph(index, graph)
    return index


def save_index(
    corpus: Corpus, path: str | Path, encoder: Encoder, settings: Mapping[str, Any], *, dtype: PatternType | None = None
) -> None:
    """Save a corpus as an index with a retriever's settings, its BM25 index and, if the settings want it, its graph."""
    view = corpus.snapshot()
    write_index(Path(path), view, encoder, dtype or view.patterns.dtype, settings)
    saved = Index(path)
    saved.remove_unused()
    saved.save_lexical()
    if graph_settings(settings.get("graph")) is not None:
        saved.save_graph()


def put_graph(index: Index, settings: GraphSettings | None) -> None:
    """Store the settings of the evidence graph with an index."""
    kept = None if settings is None else settings == GraphSettings() or settings.model_dump()
    if index.head.settings.get("graph") != kept:
        index.put_settings({**index.head.settings, "graph": kept})


def _has_functions(condition: Any) -> bool:
    """True if a filter has functions, whose answers may change."""
    if isinstance(condition, Mapping):
        return any(map(_has_functions, condition.values()))
    return callable(condition) or (isinstance(condition, list | tuple) and any(map(_has_functions, condition)))


def _joined(arrays: Sequence[npt.NDArray[Any]], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    return np.concatenate([np.zeros(0, dtype=dtype), *arrays])
