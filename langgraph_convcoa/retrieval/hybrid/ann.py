"""ANN index: an HNSW graph that names candidates among millions of patterns, and the exact scoring of these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.array_file import ArrayFile, write_arrays
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.retrieval.scoring.patterns import Patterns
from langgraph_convcoa.retrieval.scoring.topk import Ranking, search

if TYPE_CHECKING:
    from usearch.index import Index

Sets: TypeAlias = npt.NDArray[np.int64]

Over = Literal["windows", "passages"]
"""The vectors of the graph: one for each window, with its passage's, or one for each passage."""

GONE = -1
"""The key of an entry that was removed."""

_KIND = "approximate stage"
_VERSION = 2
# How many passages are linked at a time, and after how many of them a build can be resumed that is killed.
_AT_ONCE = 2_048
_CHECKPOINT = 32_768
# Up to so many times the candidates, scoring all that is allowed is as fast as asking the graph.
_FEW = 10


class ApproximateSettings(BaseModel):
    """How a retriever searches approximately: `HopfieldRetriever.from_documents(..., approximate=ApproximateSettings(...))`.

    Attributes:
        candidates: How many passages the ANN index names for a query; they are scored exactly. More find more.
        over: Windows or passages; see `ANNIndex`.
        connectivity: Links of a vector in the graph, HNSW's M.
        expansion_add: Breadth of the search for a new vector's neighbours.

    Example:
        >>> ApproximateSettings(candidates=500).over
        'windows'
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    candidates: int = Field(default=200, ge=1)
    over: Over = "windows"
    connectivity: int = Field(default=16, ge=2)
    expansion_add: int = Field(default=128, ge=1)


class ANNIndex:
    """Finds the passages that may score best, without looking at all of them; they are then scored exactly.

    Over windows, the graph (HNSW, Malkov & Yashunin 2018; usearch) holds w y_0 + y_j for every window j, so that its best
    inner product with a query state is the bound w <x, y_0> + max_j <x, y_j> itself (with trained weights
    it is only near it). Over passages it holds y_0 alone: smaller and sooner built, and blind to a passage of which one
    sentence fits. Entries are passages, numbered in the order in which they were added; `keys` has the key of each in its
    corpus, `GONE` where it was removed. At another w than `passage_weight` the candidates are less good, not wrong. Several
    threads may search; whoever changes or first uses a loaded index does so alone.

    Example:
        >>> from langgraph_convcoa.retrieval.scoring.patterns import encode_patterns
        >>> values, scales = encode_patterns(np.eye(4, dtype=np.float32), "float32")
        >>> index = ANNIndex(4)
        >>> index.add(Patterns(values=values, scales=scales, offsets=np.array([0, 2, 4])))
        >>> [entries.tolist() for entries in index.candidates(np.array([[0, 0, 1, 0]], dtype=np.float32), 1)]
        [[1]]
    """

    def __init__(
        self,
        dimension: int,
        settings: ApproximateSettings | None = None,
        *,
        passage_weight: float = 1.0,
        threads: int = 0,
        source: str = "",
    ) -> None:
        self.dimension = dimension
        self.settings = settings or ApproximateSettings()
        self.passage_weight = passage_weight
        self.keys: Sets = np.zeros(0, dtype=np.int64)
        self.source = source
        self._threads = threads
        self._file: ArrayFile | None = None
        # None while the graph is still in a file only.
        self._index: Index | None = _usearch()(
            ndim=dimension,
            metric="ip",
            dtype="bf16",
            connectivity=self.settings.connectivity,
            expansion_add=self.settings.expansion_add,
            multi=True,
        )

    def __len__(self) -> int:
        """How many vectors the graph holds."""
        return len(self._graph())

    def add(
        self,
        patterns: Patterns,
        sets: Sets | None = None,
        keys: Sets | None = None,
        *,
        progress: Progress = False,
        checkpoint: Callable[[], object] | None = None,
    ) -> None:
        """Add some passages, all when None, with keys that are numbered on when None; `checkpoint` is called now and then."""
        if patterns.d != self.dimension:
            raise RetrievalError(f"The patterns have length {patterns.d}, the ANN index {self.dimension}; build it again.")
        chosen = np.arange(patterns.n) if sets is None else sets
        named = len(self.keys) + np.arange(len(chosen)) if keys is None else keys
        index = self._graph(changing=True)
        with track(progress, len(chosen), "Linking") as advance:
            for start in range(0, len(chosen), _AT_ONCE):
                part = chosen[start : start + _AT_ONCE]
                owners, vectors = self._vectors(patterns.select(part))
                index.add(len(self.keys) + owners, vectors, threads=self._threads)
                self.keys = np.concatenate([self.keys, named[start : start + _AT_ONCE]])
                advance(len(part))
                done = start + len(part)
                if checkpoint is not None and done % _CHECKPOINT == 0 and done < len(chosen):
                    checkpoint()

    def remove(self, entries: Sets) -> None:
        """Remove entries from the graph; the others keep their numbers."""
        if len(entries):
            self._graph(changing=True).remove(entries.astype(np.uint64))
            self.keys[entries] = GONE

    def candidates(self, states: Vectors, count: int) -> list[Sets]:
        """Up to `count` entries for each query state (q, d), probably the best first."""
        queries = np.ascontiguousarray(states, dtype=np.float32)
        if queries.ndim != 2 or queries.shape[1] != self.dimension:
            raise RetrievalError(f"The query vectors have shape {queries.shape}, the ANN index {self.dimension} columns.")
        index = self._graph()
        if not len(index) or not len(queries):
            return [np.zeros(0, dtype=np.int64) for _ in queries]
        # A passage may be found by several of its windows.
        wanted = min(count * (3 if self.settings.over == "windows" else 1), len(index))
        found = index.search(queries, wanted, threads=self._threads)
        # For a single state usearch returns its matches bare.
        entries = np.atleast_2d(found.keys)
        counts = getattr(found, "counts", [entries.shape[1]])
        return [_distinct(row[:n].astype(np.int64), count) for row, n in zip(entries, counts, strict=True)]

    def save(self, path: str | Path, *, keys: Sets | None = None, source: str | None = None) -> None:
        """Write the index to one file, which replaces an older one whole or not at all; takes as much memory again.

        `keys` and `source` are those of the entries in another corpus; its own when None.
        """
        graph = np.frombuffer(self._graph().save() or b"", dtype=np.uint8)
        arrays: dict[str, npt.NDArray[Any]] = {"graph": graph, "names": self.keys if keys is None else keys}
        stage = {"dimension": self.dimension, "passage_weight": self.passage_weight}
        stage |= self.settings.model_dump(exclude={"candidates"})
        settings = {"stage": stage, "source": self.source if source is None else source}
        write_arrays(Path(path), arrays, kind=_KIND, version=_VERSION, settings=settings)

    @classmethod
    def load(cls, path: str | Path, *, threads: int = 0) -> ANNIndex:
        """Open a saved index; the graph is memory-mapped, and checked against its checksum, at the first search."""
        file = ArrayFile(Path(path), kind=_KIND, version=_VERSION)
        stage = dict(file.settings["stage"])
        made = {name: stage.pop(name) for name in ("dimension", "passage_weight")}
        index = cls(**made, settings=ApproximateSettings(**stage), threads=threads, source=file.settings["source"])
        index._file, index._index, index.keys = file, None, np.array(file.arrays["names"])
        return index

    def _vectors(self, patterns: Patterns) -> tuple[Sets, Vectors]:
        """The vectors of passages, and the number of the passage of each."""
        rows, starts = patterns.rows(0, len(patterns.values)), patterns.offsets[:-1]
        if self.settings.over == "passages":
            return np.arange(patterns.n), np.ascontiguousarray(rows[starts])
        owners: Sets = np.repeat(np.arange(patterns.n), np.diff(patterns.offsets))
        windows = np.ones(len(rows), dtype=np.bool_)
        windows[starts] = False
        weight = np.float32(self.passage_weight)
        sums: Vectors = rows[windows] + weight * rows[starts[owners[windows]]]
        return owners[windows], sums / (1 + weight)

    def _graph(self, *, changing: bool = False) -> Index:
        """The graph, checked and mapped at the first use, and read into memory before it is changed."""
        if self._file is not None and (self._index is None or changing):
            self._file.check()
            try:
                self._index = _usearch().restore(self._file.arrays["graph"].data, view=not changing)
            except (KeyError, RuntimeError, ValueError) as error:
                raise RetrievalError(f"{self._file.path} cannot be opened ({error}); build the index again.") from None
            if self._index is None or self._index.ndim != self.dimension:
                raise RetrievalError(f"{self._file.path} holds no graph of its dimension; build the index again.")
            self._index.expansion_add = self.settings.expansion_add
            if changing:
                self._file = None
        assert self._index is not None
        return self._index


def approximate_settings(value: object) -> ApproximateSettings | None:
    """The settings that a user gave as `approximate`; True stands for the default ones, None or False for an exact search.

    Example:
        >>> approximate_settings(True) == ApproximateSettings(), approximate_settings(False)
        (True, None)
    """
    if value is None or value is False:
        return None
    if value is True:
        return ApproximateSettings()
    if isinstance(value, ApproximateSettings):
        return value
    try:
        return ApproximateSettings.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(["approximate", *map(str, first["loc"])])
        raise InputError(f"The retriever's setting {place!r}: {first['msg']}.") from None


def needs_graph(pool: int, count: int) -> bool:
    """Whether an index that names `count` of so many passages saves time over a search of all of them."""
    return pool > _FEW * count


def search_candidates(
    patterns: Patterns,
    states: Vectors,
    candidates: Callable[[Vectors, int], list[Sets]],
    *,
    k: int,
    count: int = 200,
    allowed: npt.NDArray[np.bool_] | None = None,
    extra: Vectors | None = None,
    check: Callable[[Sets | None], object] | None = None,
    **settings: Any,
) -> list[Ranking]:
    """The k best of what an ANN index names, each scored exactly; certified only where nothing was left out.

    As many come back as from a search of everything: where a filter leaves few, or the index names too few that are
    allowed, all that is allowed is searched. `candidates` gives about `count` passages for each state; those with the largest
    `extra` are candidates too. `check` is called with the passages that are about to be read, None for all.
    """
    count = max(count, k)
    pool = patterns.n if allowed is None else int(allowed.sum())

    def ranked(chosen: Sets | None, rows: slice) -> list[Ranking]:
        added = None if extra is None else extra[rows]
        if check is not None:
            check(chosen)
        if chosen is None:
            return search(patterns, states[rows], k=k, allowed=allowed, extra=added, **settings)
        added = None if added is None else np.ascontiguousarray(added[:, chosen])
        found = search(patterns.select(chosen), states[rows], k=k, extra=added, **settings)
        whole = len(chosen) == pool
        return [replace(r, indices=chosen[r.indices], certified=r.certified and whole) for r in found]

    if not needs_graph(pool, count):
        return ranked(None if allowed is None else np.flatnonzero(allowed), slice(None))
    named = candidates(states, count)
    # Several windows of one passage may take the places of others.
    enough = k if allowed is None else max(k, count // 4)
    rankings = []
    for row in range(len(states)):
        here, one, asked = slice(row, row + 1), named[row], count
        while len(chosen := one if allowed is None else one[allowed[one]]) < enough and (asked := 4 * asked) < patterns.n:
            one = candidates(states[here], asked)[0]
        if len(chosen) < enough:
            rankings += ranked(None, here)
            continue
        if extra is not None:
            chosen = np.concatenate([chosen, _largest(extra[row], allowed, count)])
        rankings += ranked(np.unique(chosen), here)
    return rankings


def _largest(extra: Vectors, allowed: npt.NDArray[np.bool_] | None, count: int) -> Sets:
    """The allowed passages with the largest further terms above 0."""
    terms = extra if allowed is None else np.where(allowed, extra, 0)
    best = np.argpartition(-terms, count)[:count]
    return best[terms[best] > 0]


def _distinct(entries: Sets, count: int) -> Sets:
    """The first entries, each once, in their order."""
    _, first = np.unique(entries, return_index=True)
    chosen: Sets = entries[np.sort(first)[:count]]
    return chosen


def _usearch() -> type[Index]:
    if True:
        # In this order; see there.
        import onnxruntime  # noqa: F401
    try:
        from usearch.index import Index
    except ImportError:
        raise RetrievalError(
            'The ANN index needs usearch: pip install "langgraph-convcoa[approximate]", or search exactly.'
        ) from None
    found: type[Index] = Index
    return found
