"""Links of an evidence graph: which passages name which entities, a sparse matrix, and the transitions along them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix, diags, hstack, vstack

from langgraph_convcoa.retrieval.graph.names import Contents, Hashes, Numbers, is_among, joined_hashes

# A title that more than this share of the passages name says nothing, and no link is made to it; five always may.
_HUB_SHARE, _HUB = 0.05, 5
# Names that are no title link passages where they stand in so few of them.
_FEW = 10
_TITLE, _NAME, _BESIDE = 1.0, 0.3, 0.1


@dataclass(frozen=True, eq=False)
class Links:
    """The graph of n passages and m entities; node i < n is a passage, node n + e an entity."""

    passages: int
    entities: Hashes  # (m,), growing: the hash of each entity's name.
    weights: csr_matrix  # (n, m), of the link from a passage to an entity.
    common: npt.NDArray[np.float64]  # (m,), in how many passages an entity stands.
    transitions: csr_matrix  # (n + m, n + m), columns sum to one where a node has a link: from the column to the row.

    @property
    def edges(self) -> int:
        """How many links there are."""
        return int(self.transitions.nnz) // 2


def linked(contents: Contents) -> Links:
    """The graph of what passages name; it depends on nothing else, whatever was added and deleted before.

    An entity is a title, linked to its passages and, by weight of its rarity, to those whose text names it; or a name that
    metadata gives, such as a cell of a row, of the same weight; or, of less, one that stands in 2 to 10 passages. Passages
    that stand side by side in a document are linked.
    """
    n = len(contents.titles)
    titled = np.flatnonzero(contents.titles)
    titles = np.unique(contents.titles[titled])
    rows, hashes = _mentions(contents, titles)
    others, names = _names(contents, titles)
    given = np.unique(contents.names[(contents.names & 1) == 1] & ~1)
    entities = np.unique(np.concatenate([titles, names]))
    m = len(entities)
    own = _matrix(titled, contents.titles[titled], entities, n)
    mentions = _matrix(np.concatenate([rows, others]), np.concatenate([hashes, names]), entities, n)
    mentions = mentions - mentions.multiply(own)
    mentions.eliminate_zeros()
    common = np.asarray((mentions + own).sum(axis=0)).ravel()
    rarity = np.log1p(n / np.maximum(common, 1)) / np.log1p(max(n, 1))
    rarity[np.asarray(mentions.sum(axis=0)).ravel() > max(_HUB, _HUB_SHARE * n)] = 0
    # What is given is known to name something, as a title is; a run of capitals may.
    rarity *= np.where(is_among(entities, titles) | is_among(entities, given), 1.0, _NAME)
    weights = (_TITLE * own + mentions @ diags(rarity)).tocsr()
    weights.eliminate_zeros()
    return Links(n, entities, weights, common, _transitions(weights, contents.documents, m))


def _mentions(contents: Contents, titles: Hashes) -> tuple[Numbers, Hashes]:
    """The passages whose text names a title, and the titles; a title of one word must not stand in lower case."""
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


def _names(contents: Contents, titles: Hashes) -> tuple[Numbers, Hashes]:
    """The passages that name what is no title, and these names: rare ones that several passages share, and given ones."""
    owners = np.repeat(np.arange(len(contents.name_offsets) - 1), np.diff(contents.name_offsets))
    plain = contents.names & ~1
    kept, place, counts = np.unique(plain, return_inverse=True, return_counts=True)
    given = np.zeros(len(kept), dtype=np.bool_)
    given[place[(contents.names & 1) == 1]] = True
    use = ~is_among(kept, titles) & (counts > 1) & (given | (counts <= _FEW))
    # A given name may be a title too.
    use |= given & is_among(kept, titles)
    chosen = use[place] if len(kept) else np.zeros(0, dtype=np.bool_)
    return owners[chosen], plain[chosen]


def _matrix(rows: Numbers, hashes: Hashes, entities: Hashes, n: int) -> csr_matrix:
    found = csr_matrix((np.ones(len(rows)), (rows, np.searchsorted(entities, hashes))), shape=(n, len(entities)))
    found.sum_duplicates()
    found.data[:] = 1
    return found


def _transitions(weights: csr_matrix, documents: Hashes, m: int) -> csr_matrix:
    n = len(documents)
    first = np.flatnonzero((documents[1:] == documents[:-1]) & (documents[1:] != 0)) if n else np.zeros(0, dtype=np.int64)
    beside = csr_matrix((np.full(len(first), _BESIDE), (first, first + 1)), shape=(n, n))
    whole = vstack([hstack([beside + beside.T, weights]), hstack([weights.T, csr_matrix((m, m))])]).tocsr()
    sums = np.asarray(whole.sum(axis=0)).ravel()
    sums[sums == 0] = 1
    return (whole @ diags(1 / sums)).astype(np.float32).tocsr()
