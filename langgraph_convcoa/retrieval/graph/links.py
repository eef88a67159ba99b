"""Links of an evidence graph: which passages name which entities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from langgraph_convcoa.retrieval.graph.names import Contents, Hashes, Numbers, is_among, joined_hashes

# A title that more than this share of the passages name says nothing, and no link is made to it; five always may.
_HUB_SHARE, _HUB = 0.05, 5
# Names that are no title link passages where they stand in so few of them, by this weight.
_FEW, _NAME = 10, 0.3

Amounts = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Links:
    """The graph of n passages and m entities: links between a passage and an entity, as sparse matrices.

    A passage shares what it has among its entities, by weight, and an entity among its passages.
    """

    entities: Hashes  # (m,), growing: the hash of each entity's name.
    names: Hashes  # Growing: those of them that a question names, titles and given ones.
    common: Numbers  # (m,), in how many passages an entity stands.
    shares: csr_array  # (n, m), what of each passage's goes to each of its entities; of a passage they sum to one.
    parts: csr_array  # (m, n), what of each entity's goes to each of its passages; of an entity they sum to one.
    back: npt.NDArray[np.float32]  # (n,), what of each passage's comes back to it from its entities.

    @property
    def passages(self) -> int:
        """How many passages there are, n."""
        return int(self.shares.shape[0])

    @property
    def edges(self) -> int:
        """How many links there are."""
        return int(self.shares.nnz)

    @property
    def owners(self) -> Numbers:
        """The passage of each link, growing."""
        return np.repeat(np.arange(self.passages), np.diff(self.shares.indptr))

    def to_entities(self, amounts: Amounts) -> Amounts:
        """What comes to each entity of what passages have; the time is that of the links of those that have any."""
        return np.asarray((csr_array(amounts[None]) @ self.shares).toarray()[0], dtype=np.float64)

    def to_passages(self, amounts: Amounts) -> Amounts:
        """What comes to each passage of what entities have."""
        return np.asarray((csr_array(amounts[None]) @ self.parts).toarray()[0], dtype=np.float64)


def linked(contents: Contents) -> Links:
    """The graph of what passages name; it depends on nothing else, whatever was added and deleted before.

    An entity is a title, linked to its passages and, by weight of its rarity, to those whose text names it; or a name that
    metadata gives, such as a cell of a row, of the same weight; or, of less, one that stands in 2 to 10 passages, where it
    links those that have their title to themselves: such a passage is about one thing. Parts of one document, and pages of
    one site, name what they have in common anyway.
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
    # A link as one number: its passage times m plus its entity.
    own = titled * m + np.searchsorted(entities, contents.titles[titled])
    found = np.concatenate([rows, others]) * m + np.searchsorted(entities, np.concatenate([hashes, names]))
    mentions = np.setdiff1d(found, own)
    mentioned = np.bincount(mentions % m, minlength=len(entities))
    common = mentioned + np.bincount(own % m, minlength=len(entities))
    rarity = np.log1p(n / np.maximum(common, 1)) / np.log1p(max(n, 1))
    rarity[mentioned > max(_HUB, _HUB_SHARE * n)] = 0
    # What is given is known to name something, as a title is; a run of capitals may.
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
