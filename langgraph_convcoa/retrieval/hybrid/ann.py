"""An approximate first stage for memories of millions of patterns: an HNSW graph that names candidates."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.array_file import ArrayFile, write_arrays
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.retrieval.scoring.patterns import Patterns

if TYPE_CHECKING:
    from usearch.index import Index

Over = Literal["windows", "passages"]
"""What the graph holds: a vector for each window, with its passage's, or one for each passage."""

_KIND = "approximate stage"
_VERSION = 2
_BATCH = 16_384
_SETTINGS = ("dimension", "over", "passage_weight", "connectivity", "expansion_add")


class ApproximateSettings(BaseModel):
    """How a retriever searches approximately: `HopfieldRetriever.from_documents(..., approximate=ApproximateSettings(...))`.

    Attributes:
        candidates: How many memory sets the graph names for a query; they are scored exactly. More find more.
        over: Windows or passages; see `ApproximateStage`.
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


class ApproximateStage:
    """Finds the memory sets that may score best, without looking at all of them; they are then scored exactly.

    Over windows, the graph (HNSW, Malkov & Yashunin 2018; usearch) holds w y_0 + y_j for every window j, so that its best
    inner product with a query state is the bound w <x, y_0> + max_j <x, y_j> itself (with trained weights
    it is only near it). Over passages it holds y_0 alone: smaller and sooner built, and blind to a passage of which one
    sentence fits. Several threads may search; whoever changes the stage does so alone.

    Args:
        dimension: Length d of a pattern.
        over: Windows or passages.
        passage_weight: w of the search; at another one the candidates are less good, not wrong.
        connectivity: Links of a vector in the graph, HNSW's M.
        expansion_add: Breadth of the search for a new vector's neighbours.
        threads: Threads for building and batches; all when 0.

    Attributes:
        names: Of a loaded stage, what it was saved with.
        source: Of a loaded stage, what it was saved with.

    Raises:
        RetrievalError: usearch is not installed.
        InputError: A setting is out of range.

    Example:
        >>> from langgraph_convcoa.retrieval.scoring.patterns import encode_patterns
        >>> values, scales = encode_patterns(np.eye(4, dtype=np.float32), "float32")
        >>> stage = ApproximateStage(4)
        >>> stage.add(Patterns(values=values, scales=scales, offsets=np.array([0, 2, 4])))
        >>> [keys.tolist() for keys in stage.candidates(np.array([[0, 0, 1, 0]], dtype=np.float32), 1)]
        [[1]]
    """

    def __init__(
        self,
        dimension: int,
        *,
        over: Over = "windows",
        passage_weight: float = 1.0,
        connectivity: int = 16,
        expansion_add: int = 128,
        threads: int = 0,
    ) -> None:
        if over not in ("windows", "passages"):
            raise InputError(f"An approximate stage is over windows or passages, not {over!r}.")
        if dimension < 1 or connectivity < 2 or expansion_add < 1:
            raise InputError("dimension and expansion_add must be at least 1, connectivity at least 2.")
        if not 0 <= passage_weight < np.inf:
            raise InputError(f"passage_weight must be a number of at least 0, not {passage_weight}.")
        self.dimension = dimension
        self.over: Over = over
        self.passage_weight = passage_weight
        self.connectivity, self.expansion_add = connectivity, expansion_add
        self.names: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.source = ""
        self._threads = threads
        self._lock = threading.RLock()
        self._file: ArrayFile | None = None
        # None while the graph is still in a file only.
        self._index: Index | None = _usearch()(
            ndim=dimension,
            metric="ip",
            dtype="bf16",
            connectivity=connectivity,
            expansion_add=expansion_add,
            multi=True,
        )

    def __len__(self) -> int:
        """How many vectors the graph holds."""
        return len(self._graph())

    def add(
        self,
        patterns: Patterns,
        keys: npt.NDArray[np.int64] | None = None,
        *,
        start: int = 0,
        progress: Progress = False,
    ) -> None:
        """Put memory sets into the graph, from number `start` on.

        Args:
            patterns: n memory sets.
            keys: (n,), what `candidates` names them by, at least 0 and each once; their numbers when None.
            start: The first that is new.
            progress: A bar, a callback or nothing.

        Raises:
            RetrievalError: The patterns are not of the stage's dimension, or the keys not one a set.
        """
        if patterns.d != self.dimension:
            raise RetrievalError(
                f"The patterns have length {patterns.d}, the approximate stage {self.dimension}; build it again."
            )
        names = np.arange(patterns.n) if keys is None else np.asarray(keys, dtype=np.int64)
        if names.shape != (patterns.n,) or (len(names) and names.min() < 0):
            raise RetrievalError(
                f"There are {patterns.n} memory sets and keys of shape {names.shape}; give one of at least 0 each."
            )
        index = self._graph(changing=True)
        with track(progress, patterns.n - start, "Linking") as advance:
            for first in range(start, patterns.n, _BATCH // 8):
                last = min(first + _BATCH // 8, patterns.n)
                owners, vectors = self._vectors(patterns, first, last)
                index.add(names[owners], vectors, threads=self._threads)
                advance(last - first)

    def remove(self, keys: Iterable[int]) -> None:
        """Take memory sets out of the graph; keys that are not in it are passed over."""
        gone = np.fromiter(keys, dtype=np.int64)
        if len(gone):
            self._graph(changing=True).remove(gone.astype(np.uint64))

    def candidates(self, states: Vectors, count: int) -> list[npt.NDArray[np.int64]]:
        """Keys of up to `count` memory sets for each query state, probably the best first.

        Args:
            states: (q, d).
            count: How many sets, at least 1.

        Raises:
            InputError: count is below 1.
            RetrievalError: The states have another dimension, or the stage's file is damaged.
        """
        if count < 1:
            raise InputError(f"There must be at least 1 candidate, not {count}.")
        queries = np.ascontiguousarray(states, dtype=np.float32)
        if queries.ndim != 2 or queries.shape[1] != self.dimension:
            raise RetrievalError(
                f"The query vectors have shape {queries.shape}, the approximate stage {self.dimension} columns."
            )
        index = self._graph()
        if not len(index) or not len(queries):
            return [np.zeros(0, dtype=np.int64) for _ in queries]
        # A passage may be found by several of its windows.
        wanted = min(count * (3 if self.over == "windows" else 1), len(index))
        found = index.search(queries, wanted, threads=self._threads)
        # For a single state usearch returns its matches bare.
        keys = np.atleast_2d(found.keys)
        counts = getattr(found, "counts", [keys.shape[1]])
        return [_distinct(row[:n].astype(np.int64), count) for row, n in zip(keys, counts, strict=True)]

    def save(self, path: str | Path, *, names: npt.NDArray[np.int64] | None = None, source: str = "") -> None:
        """Write the stage to one file, which replaces an older one whole or not at all; takes as much memory again.

        Args:
            path: The file.
            names: What the keys 0, 1, ... are called elsewhere, which `load` gives back as `names`.
            source: Where those names are valid, given back as `source`.

        Raises:
            RetrievalError: The file cannot be written.
        """
        graph = np.frombuffer(self._graph().save() or b"", dtype=np.uint8)
        kept = np.zeros(0, dtype=np.int64) if names is None else np.asarray(names, dtype=np.int64)
        stage = {name: getattr(self, name) for name in _SETTINGS}
        settings = {"stage": stage, "source": source}
        write_arrays(Path(path), {"graph": graph, "names": kept}, kind=_KIND, version=_VERSION, settings=settings)

    @classmethod
    def load(cls, path: str | Path, *, threads: int = 0) -> ApproximateStage:
        """Open a saved stage; the graph is memory-mapped, and checked against its checksum, at the first search.

        Raises:
            RetrievalError: usearch is not installed, or the file is missing, damaged, no such stage or of another version.
        """
        file = ArrayFile(Path(path), kind=_KIND, version=_VERSION)
        stage = cls(**file.settings["stage"], threads=threads)
        stage._file, stage._index = file, None
        stage.names, stage.source = file.arrays["names"], file.settings["source"]
        return stage

    def _vectors(self, patterns: Patterns, first: int, last: int) -> tuple[npt.NDArray[np.int64], Vectors]:
        """The vectors of memory sets `first` to `last`, and the number of the set of each."""
        offsets = patterns.offsets[first : last + 1]
        rows = patterns.rows(int(offsets[0]), int(offsets[-1]))
        starts = offsets[:-1] - offsets[0]
        if self.over == "passages":
            return np.arange(first, last), np.ascontiguousarray(rows[starts])
        owners = np.repeat(np.arange(last - first), np.diff(offsets))
        windows = np.ones(len(rows), dtype=np.bool_)
        windows[starts] = False
        sums = rows[windows] + self.passage_weight * rows[starts[owners[windows]]]
        return first + owners[windows], sums / (1 + self.passage_weight)

    def _graph(self, *, changing: bool = False) -> Index:
        """The graph, checked and mapped at the first use, and read into memory before it is changed."""
        with self._lock:
            if self._file is not None and (self._index is None or changing):
                self._file.check()
                try:
                    self._index = _usearch().restore(self._file.arrays["graph"].data, view=not changing)
                except (KeyError, RuntimeError, ValueError) as error:
                    raise RetrievalError(f"{self._file.path} cannot be opened ({error}); build the stage again.") from None
                if self._index is None or self._index.ndim != self.dimension:
                    raise RetrievalError(f"{self._file.path} holds no graph of its dimension; build the stage again.")
                self._index.expansion_add = self.expansion_add
                if changing:
                    self._file = None
            assert self._index is not None
            return self._index


def approximate_settings(value: object) -> ApproximateSettings | None:
    """What a user gave as `approximate`: settings, or True for the default ones; None or False for an exact search.

    Raises:
        InputError: It is none of these.

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


def _distinct(keys: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """The first keys, each once, in their order."""
    _, first = np.unique(keys, return_index=True)
    chosen: npt.NDArray[np.int64] = keys[np.sort(first)[:count]]
    return chosen


def _usearch() -> type[Index]:
    try:
        from usearch.index import Index
    except ImportError:
        raise RetrievalError(
            'The approximate stage needs usearch: pip install "langgraph-convcoa[approximate]", or search exactly.'
        ) from None
    found: type[Index] = Index
    return found
