"""Links of an evidence graph between passages and the entities that they name."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from langgraph_convcoa.retrieval.graph.names import Contents, Hashes, Numbers, is_among, joined_hashes

# A title gets no links if more than this share of the passages, and more than five, name it.
_HUB_SHARE, _HUB = 0.05, 5
# A name that is not a title links 2 to 10 passages, with this weight.
_FEW, _NAME = 10, 0.3

Amounts = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Links:
    """The graph of n passages and m entities as sparse matrices of weighted links."""

    entities: Hashes  # (m,), in rising order: hashes of the entities' names.
    names: Hashes  # In rising order: titles and given names, which are looked for in questions.
    common: Numbers  # (m,), the number of passages of each entity.
    shares: csr_array  # (n, m), the shares of a passage's mass for its entities; each row sums to one.
    parts: csr_array  # (m, n), the shares of an entity's mass for its passages; each row sums to one.
    back: npt.NDArray[np.float32]  # (n,), the share of a passage's mass that returns to it.

    @property
    def passages(self) -> int:
        """Number of passages, n."""
        return int(self.shares.shape[0])

    def to_entities(self, amounts: Amounts) -> Amounts:
        """The mass of passages, moved to their entities."""
        return np.asarray((csr_array(amounts[None]) @ self.shares).toarray()[0], dtype=np.float64)

    def to_passages(self, amounts: Amounts) -> Amounts:
        """The mass of entities, moved to their passages."""
        return np.asarray((csr_array(amounts[None]) @ self.parts).toarray()[0], dtype=np.float64)


def linked(contents: Contents) -> Links:
    """Make the graph of the names in passages.

    An entity is a title, linked to its passages and, weighted by rarity, to the passages that name it. A name from the
    metadata is also an entity; so is, with less weight, a name in 2 to 10 passages that each have a title of their own.
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
    # Titles and given names are certain; a run of capitals is not.
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
    """The passages whose text names a title, and the titles. A word in lower case never names a title of one word."""
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
    """The passages with rare names of articles or with given names, these names, and the given names alone."""
    owners = np.repeat(np.arange(len(contents.name_offsets) - 1), np.diff(contents.name_offsets))
    plain, marked = contents.names & ~1, (contents.names & 1) == 1
    kept, place, counts = np.unique(plain, return_inverse=True, return_counts=True)
    given = np.zeros(len(kept), dtype=np.bool_)
    given[place[marked]] = True
    # A given name may be a title too.
    use = np.where(given, (counts > 1) | is_among(kept, titles), ~is_among(kept, titles) & (counts > 1) & (counts <= _FEW))
    chosen = use[place] & (given[place] | articles[owners])
    return owners[chosen], plain[chosen], kept[given & use]
