"""The evidence graph over passages that change: its links, and the names in the passages, from which it is made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document
from scipy.sparse import csr_array

from langgraph_convcoa.retrieval.array_file import read_arrays, write_arrays
from langgraph_convcoa.retrieval.corpus import Numbers, View
from langgraph_convcoa.retrieval.graph.names import Contents, Hashes, is_among, joined_hashes, names_of
from langgraph_convcoa.retrieval.hybrid.follower import Follower
from langgraph_convcoa.retrieval.patterns import rows_of

_KIND = "evidence graph"
_VERSION = 2
# A title gets no links if more than this share of the passages, and more than five, name it.
_HUB_SHARE, _HUB = 0.05, 5
# A name that is not a title links 2 to 10 passages, with this weight.
_FEW, _NAME = 10, 0.3


@dataclass(frozen=True, eq=False)
class Links:
    """The graph of n passages and m entities as sparse matrices of weighted links."""

    entities: Hashes  # (m,), in rising order: hashes of the entities' names.
    names: Hashes  # In rising order: titles and names from the metadata, which are looked for in questions.
    common: Numbers  # (m,), the number of passages of each entity.
    shares: csr_array  # (n, m), the parts of a passage's mass that go to its entities; each row sums to one.
    parts: csr_array  # (m, n), the parts of an entity's mass that go to its passages; each row sums to one.
    back: npt.NDArray[np.float32]  # (n,), the part of a passage's mass that comes back to it through its entities.

    @property
    def passages(self) -> int:
        """Number of passages, n."""
        return int(self.shares.shape[0])


def linked(contents: Contents) -> Links:
    """Make the graph of the names in passages.

    An entity is a title. It is linked to its passages, and to the passages that name it: the fewer they are, the greater
    the weight. A name from the metadata is also an entity. So is a name in 2 to 10 passages; its links have less weight, and
    lead only to passages with a unique title.
    """
    n = len(contents.titles)
    titled = np.flatnonzero(contents.titles)
    titles, place, counts = np.unique(contents.titles[titled], return_inverse=True, return_counts=True)
    articles = np.zeros(n, dtype=np.bool_)
    articles[titled] = counts[place] == 1
    rows, hashes = _mentions(contents, titles)
    others, names, given = _names(contents, titles, articles)
    entities, certain = np.unique(np.concatenate([titles, names])), np.union1d(titles, given)
    m = max(len(entities), 1)
    # A link is one number: the passage's number times m, plus the entity's number.
    own = titled * m + np.searchsorted(entities, contents.titles[titled])
    found = np.concatenate([rows, others]) * m + np.searchsorted(entities, np.concatenate([hashes, names]))
    mentions = np.setdiff1d(found, own)
    mentioned = np.bincount(mentions % m, minlength=len(entities))
    common = mentioned + np.bincount(own % m, minlength=len(entities))
    rarity = np.log1p(n / np.maximum(common, 1)) / np.log1p(max(n, 1))
    rarity[mentioned > max(_HUB, _HUB_SHARE * n)] = 0
    # Titles and names from the metadata are certain; a run of capitals is not.
    rarity *= np.where(is_among(entities, certain), 1.0, _NAME)
    links = np.concatenate([own, mentions])
    weights = np.concatenate([np.ones(len(own)), rarity[mentions % m]])
    order = np.argsort(links)
    order = order[weights[order] > 0]
    owners, named, weights = links[order] // m, links[order] % m, weights[order]
    shares = (weights / np.bincount(owners, weights, n)[owners]).astype(np.float32)
    parts = (weights / np.bincount(named, weights, len(entities))[named]).astype(np.float32)
    return Links(
        entities,
        certain,
        common,
        csr_array((shares, (owners, named)), shape=(n, len(entities))),
        csr_array((parts, (named, owners)), shape=(len(entities), n)),
        np.bincount(owners, shares * parts, n).astype(np.float32),
    )


def _mentions(contents: Contents, titles: Hashes) -> tuple[Numbers, Hashes]:
    """The passage and the title of each mention of a title. A word in lower case never names a title of one word."""
    offsets = contents.token_offsets
    owners = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    plain = contents.tokens & ~1
    found = [(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))]
    for size in np.unique(contents.words[contents.words > 0]).tolist():
        chosen = contents.words == size
        starts = np.flatnonzero(is_among(plain, np.unique(contents.firsts[chosen])))
        starts = starts[starts + size <= offsets[owners[starts] + 1]]
        if size == 1:
            starts = starts[(contents.tokens[starts] & 1) == 1]
        hashes = joined_hashes(plain, size, starts)
        there = is_among(hashes, titles)
        found.append((owners[starts[there]], hashes[there]))
    rows, hashes = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return rows, hashes


def _names(contents: Contents, titles: Hashes, articles: npt.NDArray[np.bool_]) -> tuple[Numbers, Hashes, Hashes]:
    """The passage and the name of each link, then all names from the metadata."""
    # A link is made by a name from the metadata, or by a rare name of an article (a passage with a unique title).
    owners = np.repeat(np.arange(len(contents.name_offsets) - 1), np.diff(contents.name_offsets))
    plain, marked = contents.names & ~1, (contents.names & 1) == 1
    kept, place, counts = np.unique(plain, return_inverse=True, return_counts=True)
    given = np.zeros(len(kept), dtype=np.bool_)
    given[place[marked]] = True
    # A name from the metadata may be a title too.
    use = np.where(given, (counts > 1) | is_among(kept, titles), ~is_among(kept, titles) & (counts > 1) & (counts <= _FEW))
    chosen = use[place] & (given[place] | articles[owners])
    return owners[chosen], plain[chosen], kept[given & use]


class GraphIndex:
    """The names in passages, in the order in which the passages were added; `keys` has each passage's key in its corpus.

    It stores hashes of words, and no text. After a change, the links are computed at the next query: 2 seconds for 100,000
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
        """True if no passage has a title or names in its metadata, so nothing is linked."""
        return not self._contents.titles.any() and not (self._contents.names & 1).any()

    def add(self, passages: Iterable[Document], keys: npt.NDArray[np.int64] | None = None) -> None:
        """Append passages with their keys; if `keys` is None, the keys count up from `len(index)`."""
        found = [names_of(passage) for passage in passages]
        if not found:
            return
        self.keys = np.concatenate([self.keys, len(self) + np.arange(len(found)) if keys is None else keys])
        old, (tokens, names, titles, words, firsts) = self._contents, zip(*found, strict=True)
        self._contents = Contents(
            np.concatenate([old.tokens, *tokens]),
            np.concatenate([old.token_offsets, old.token_offsets[-1] + np.cumsum([*map(len, tokens)], dtype=np.int64)]),
            np.concatenate([old.names, *names]),
            np.concatenate([old.name_offsets, old.name_offsets[-1] + np.cumsum([*map(len, names)], dtype=np.int64)]),
            np.append(old.titles, np.array(titles, dtype=np.int64)),
            np.append(old.words, np.array(words, dtype=np.int64)),
            np.append(old.firsts, np.array(firsts, dtype=np.int64)),
        )
        self._links = None

    def select(self, numbers: npt.NDArray[np.int64]) -> GraphIndex:
        """A new index of the passages with these numbers, in this order."""
        index, old = GraphIndex(source=self.source), self._contents
        tokens, token_offsets = rows_of(old.token_offsets, numbers)
        names, name_offsets = rows_of(old.name_offsets, numbers)
        columns = (old.titles[numbers], old.words[numbers], old.firsts[numbers])
        index._contents = Contents(old.tokens[tokens], token_offsets, old.names[names], name_offsets, *columns)
        index.keys = self.keys[numbers]
        return index

    def save(self, path: str | Path) -> None:
        """Write the index to a file, completely or not at all."""
        arrays = vars(self._contents) | {"keys": self.keys}
        write_arrays(Path(path), arrays, kind=_KIND, version=_VERSION, settings={"source": self.source})

    @classmethod
    def load(cls, path: str | Path) -> GraphIndex:
        """Open a saved index; its arrays are memory-mapped, and their checksums compared."""
        arrays, settings = read_arrays(Path(path), kind=_KIND, version=_VERSION)
        index = cls(source=settings["source"])
        index.keys = arrays.pop("keys")
        index._contents = Contents(**arrays)
        return index


class GraphFollower(Follower[GraphIndex]):
    """The evidence graph of the passages of a corpus, updated before each search."""

    name, kind = "evidence graph", GraphIndex

    def links(self, view: View) -> tuple[Links, Numbers] | None:
        """The graph of a view, and the numbers of its passages in the view, in rising order; None if nothing is linked."""
        with self._guard:
            index = self._current(view)
            return None if index.empty else (index.links, self._numbers)
