"""The main topics of a collection: clusters of its passages' patterns, named by typical words and titles."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from langgraph_convcoa.actions.overview.collection import Collection
from langgraph_convcoa.retrieval.corpus import read
from langgraph_convcoa.text.words import content_tokens

_MOST = 8
_READ = 2_000
"""At most this many passages are read, evenly spread over the collection."""
_TERMS, _TITLES = 3, 3
_LONGEST, _STARTS = 5_000, 10


def find_topics(collection: Collection) -> list[str]:
    """Typical words and titles of each topic, the largest topic first. There are sqrt(passages / 2) topics, at most 8.

    k-means over the whole-passage patterns, with a fixed seed. A word is typical if a larger
    share of the topic's passages has it than of all passages.
    """
    from scipy.cluster.vq import kmeans, vq

    view = collection.view
    owners = [entry for entry in collection.entries for _ in entry.numbers]
    every = np.array([number for entry in collection.entries for number in entry.numbers])
    kept = np.unique(np.linspace(0, len(every) - 1, min(len(every), _READ)).astype(np.int64))
    patterns = view.patterns_for(every[kept])
    whole = patterns.take(patterns.offsets[every[kept]])
    means, _ = kmeans(whole, min(_MOST, max(1, round(math.sqrt(len(kept) / 2)))), iter=_STARTS, seed=0)
    labels, distances = vq(whole, means)
    held = [_written(passage.document.page_content) for passage in read(view, every[kept])]
    everywhere = Counter(form for forms in held for form in forms)
    topics: list[tuple[int, str]] = []
    for label in range(len(means)):
        own = np.flatnonzero(labels == label)
        own = own[np.argsort(distances[own], kind="stable")]
        inside = Counter(form for n in own for form in held[n])
        # What a word adds to the divergence of the topic from the collection.
        more = {form: n * math.log(n * len(held) / (len(own) * everywhere[form])) for form, n in inside.items()}
        best = sorted(more, key=lambda form: (-more[form], -inside[form], form))[:_TERMS]
        terms = [Counter(held[n][form] for n in own if form in held[n]).most_common(1)[0][0] for form in best]
        titles = [f"“{title}”" for title in dict.fromkeys(owners[kept[n]].title for n in own)][:_TITLES]
        topics.append((len(own), f"{', '.join(terms)} ({', '.join(titles)})"))
    return [topic for _, topic in sorted(topics, key=lambda topic: -topic[0])]


def _written(text: str) -> dict[str, str]:
    """The words of a passage as they are written, by their stems."""
    found = content_tokens(text[:_LONGEST])
    return {token.item: token.raw for token in found if len(token.raw) > 2 and token.raw.isalpha()}
