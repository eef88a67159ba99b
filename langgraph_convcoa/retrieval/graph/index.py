"""The evidence graph of a changing set of passages, stored as arrays in one file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document

from langgraph_convcoa.retrieval.array_file import ArrayFile, write_arrays
from langgraph_convcoa.retrieval.corpus import Numbers, View
from langgraph_convcoa.retrieval.graph.links import Links, linked
from langgraph_convcoa.retrieval.graph.names import Contents, names_of
from langgraph_convcoa.retrieval.hybrid.follower import Follower

_KIND = "evidence graph"
_VERSION = 2


class GraphIndex:
    """The names in passages, in the order in which the passages were added; `keys` has each passage's key in its corpus.

    It stores hashes of words, and no text. After a change the links are computed at the next query: 2 seconds for 100,000
    passages. Threads must take turns.
    """

    def __init__(self, passages: Iterable[Document] = (), *, source: str = "") -> None:
        self.keys: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.source = source
        nothing, zero = np.zeros(0, dtype=np.int64), np.zeros(1, dtype=np.int64)
        self._contents = Contents(nothing, zero, nothing, zero, nothing, nothing, nothing)
        self._links: Links | None = None
        self.add(passages)

    def __len__(self) -> int:
        return len(self._contents.titles)

    @property
    def links(self) -> Links:
        """The graph, as an immutable object."""
        if self._links is None:
            self._links = linked(self._contents)
        return self._links

    @property
    def empty(self) -> bool:
        """True if no passage has a title or given names, so nothing is linked."""
        return not self._contents.titles.any() and not (self._contents.names & 1).any()

    def add(self, passages: Iterable[Document], keys: npt.NDArray[np.int64] | None = None) -> None:
        """Append passages with their keys; if `keys` is None, the keys count up from `len(index)`."""
        found = [names_of(passage) for passage in passages]
        if not found:
            return
        old = self._contents
        sizes = ([len(one.tokens) for one in found], [len(one.names) for one in found])
        self.keys = np.concatenate([self.keys, len(self) + np.arange(len(found)) if keys is None else keys])
        self._contents = Contents(
            np.concatenate([old.tokens, *(one.tokens for one in found)]),
            np.concatenate([old.token_offsets, old.token_offsets[-1] + np.cumsum(sizes[0], dtype=np.int64)]),
            np.concatenate([old.names, *(one.names for one in found)]),
            np.concatenate([old.name_offsets, old.name_offsets[-1] + np.cumsum(sizes[1], dtype=np.int64)]),
            np.concatenate([old.titles, np.array([one.title for one in found], dtype=np.int64)]),
            np.concatenate([old.words, np.array([one.words for one in found], dtype=np.int64)]),
            np.concatenate([old.firsts, np.array([one.first for one in found], dtype=np.int64)]),
        )
        self._links = None

    def select(self, numbers: npt.NDArray[np.int64]) -> GraphIndex:
        """A new index of the passages of these numbers, in this order."""
        index, old = GraphIndex(source=self.source), self._contents
        tokens, token_offsets = _selected(old.tokens, old.token_offsets, numbers)
        names, name_offsets = _selected(old.names, old.name_offsets, numbers)
        columns = (old.titles[numbers], old.words[numbers], old.firsts[numbers])
        index._contents = Contents(tokens, token_offsets, names, name_offsets, *columns)
        index.keys = self.keys[numbers]
        return index

    def save(self, path: str | Path) -> None:
        """Write the index to a file, completely or not at all."""
        contents = self._contents
        arrays = {field.name: getattr(contents, field.name) for field in fields(Contents)} | {"keys": self.keys}
        write_arrays(Path(path), arrays, kind=_KIND, version=_VERSION, settings={"source": self.source})

    @classmethod
    def load(cls, path: str | Path) -> GraphIndex:
        """Open a saved index; its arrays are memory-mapped, and their checksums compared."""
        file = ArrayFile(Path(path), kind=_KIND, version=_VERSION)
        index = cls(source=file.settings["source"])
        index.keys = file.arrays["keys"]
        index._contents = Contents(**{field.name: file.arrays[field.name] for field in fields(Contents)})
        file.check()
        return index


class GraphFollower(Follower[GraphIndex]):
    """The evidence graph of the passages of a corpus, updated before each search."""

    name = "evidence graph"

    def links(self, view: View) -> tuple[Links, Numbers] | None:
        """The graph of a view, and the numbers of its passages in the view, in rising order; None if nothing is linked."""
        with self._guard:
            index = self._current(view)
            return None if index.empty else (index.links, self._numbers)

    def _empty(self, source: str) -> GraphIndex:
        return GraphIndex(source=source)

    def _load(self, path: Path) -> GraphIndex:
        return GraphIndex.load(path)


def _selected(
    values: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Concatenate the runs of values with these numbers, and return them with their new offsets."""
    sizes = np.diff(offsets)[numbers]
    ends = np.cumsum(sizes, dtype=np.int64)
    places = np.repeat(offsets[numbers] - (ends - sizes), sizes) + np.arange(int(sizes.sum()))
    return values[places], np.concatenate([np.zeros(1, dtype=np.int64), ends])
