"""Links of an evidence graph: which passages name which entities, as sparse matrices between passages and entities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix, diags

from langgraph_convcoa.retrieval.graph.names import Contents, Hashes, Numbers, is_among, joined_hashes

# A title that more than this share of the passages name says nothing, and no link is made to it; five always may.
_HUB_SHARE, _HUB = 0.05, 5
# Names that are no title link passages where they stand in so few of them, by this weight.
_FEW, _NAME = 10, 0.3


@dataclass(frozen=True, eq=False)
class Links:
    """The graph of n passages and m entities: each link is between a passage and an entity.

    A passage shares what it has among its entities, by weight, and an entity among its passages.
    """

    entities: Hashes  # (m,), growing: the hash of each entity's name.
    names: Hashes  # Growing: those of them that a question names, titles and given ones.
    weights: csr_matrix  # (n, m), of the link from a passage to an entity.
    common: npt.NDArray[np.float64]  # (m,), in how many passages an entity stands.
    to_entities: csr_matrix  # (m, n): columns sum to one where a passage has a link.
    to_passages: csr_matrix  # (n, m): columns sum to one.
    back: npt.NDArray[np.float32]  # (n,), the share of each passage that comes back to it from its entities.

    @property
    def passages(self) -> int:
        """How many passages there are, n."""
        return int(self.weights.shape[0])

    @property
    def edges(self) -> int:
        """How many links there are."""
        return int(self.weights.nnz)


def linked(contents: Contents) -> Links:
    """The graph of what passages name; it depends on nothing else, whatever was added and deleted before.

    An entity is a title, linked to its passages and, by weight of its rarity, to those whose text names it; or a name that
    metadata gives, or that stands in 2 to 10 passages, where it links those that have their title to themselves: such a
    passage is about one thing. Parts of one document, and pages of one site, name what they have in common anyway.
    """
    n = len(contents.titles)
    titled = np.flatnonzero(contents.titles)
    titles, place, counts = np.unique(contents.titles[titled], return_inverse=True, return_counts=True)
    articles = np.zeros(n, dtype=np.bool_)
    articles[titled] = counts[place] == 1
    rows, hashes = _mentions(contents, titles)
    others, names, given = _names(contents, titles, articles)
    entities = np.unique(np.concatenate([titles, names]))
    own = _matrix(titled, contents.titles[titled], entities, n)
    mentions = _matrix(np.concatenate([rows, others]), np.concatenate([hashes, names]), entities, n)
    mentions = mentions - mentions.multiply(own)
    mentions.eliminate_zeros()
    common = np.asarray((mentions + own).sum(axis=0)).ravel()
    rarity = np.log1p(n / np.maximum(common, 1)) / np.log1p(max(n, 1))
    rarity[np.asarray(mentions.sum(axis=0)).ravel() > max(_HUB, _HUB_SHARE * n)] = 0
    rarity *= np.where(is_among(entities, titles), 1.0, _NAME)
    weights = (own + mentions @ diags(rarity)).tocsr()
    weights.eliminate_zeros()
    shared, spread = weights @ diags(_inverse(weights, 0)), diags(_inverse(weights, 1)) @ weights
    back = np.asarray(shared.multiply(spread).sum(axis=1)).ravel()
    matrices = spread.T.tocsr().astype(np.float32), shared.tocsr().astype(np.float32), back.astype(np.float32)
    return Links(entities, np.union1d(titles, given), weights, common, *matrices)


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


def _names(contents: Contents, titles: Hashes, articles: npt.NDArray[np.bool_]) -> tuple[Numbers, Hashes, Hashes]:
    """The passages that name what is no title, and these names, rare ones of articles and given ones; and which are given."""
    owners = np.repeat(np.arange(len(contents.name_offsets) - 1), np.diff(contents.name_offsets))
    plain, marked = contents.names & ~1, (contents.names & 1) == 1
    kept, place, counts = np.unique(plain, return_inverse=True, return_counts=True)
    given = np.zeros(len(kept), dtype=np.bool_)
    given[place[marked]] = True
    # A given name may be a title too.
    use = np.where(given, (counts > 1) | is_among(kept, titles), ~is_among(kept, titles) & (counts > 1) & (counts <= _FEW))
    chosen = use[place] & (given[place] | articles[owners]) if len(kept) else np.zeros(0, dtype=np.bool_)
    return owners[chosen], plain[chosen], kept[given & use]


def _matrix(rows: Numbers, hashes: Hashes, entities: Hashes, n: int) -> csr_matrix:
    found = csr_matrix((np.ones(len(rows)), (rows, np.searchsorted(entities, hashes))), shape=(n, len(entities)))
    found.sum_duplicates()
    found.data[:] = 1
    return found


def _inverse(weights: csr_matrix, axis: int) -> npt.NDArray[np.float64]:
    sums = np.asarray(weights.sum(axis=axis)).ravel()
    sums[sums == 0] = 1
    found: npt.NDArray[np.float64] = 1 / sums
    return found
