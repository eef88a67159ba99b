"""A collection as its documents: titles, formats, dates, topics, and which documents contain certain words."""

from __future__ import annotations

import math
import re
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.corpus import Listed, View, read, settled
from langgraph_convcoa.retrieval.filters import Filter
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.text.clean import flat
from langgraph_convcoa.text.terms import plain
from langgraph_convcoa.text.words import content_tokens, content_words

_LONGEST_TITLE, _LONGEST_WORDS = 80, 2_000
_MOST_READ = 2_000
"""Headings are read from the texts only if the collection has at most this many documents."""
_DATES = ("date", "published", "publication_date", "pubdate", "year", "created", "modified")
_SUFFIX = re.compile(r"\.([a-z][a-z0-9]{1,4})(?:\.gz)?$", re.IGNORECASE)
_PARTS = ("page", "sheet", "chapter", "row")
_PLACE_KEYS = (*_PARTS, "document_id", "start", "part", "entities", "triples")
_WEB = ("http://", "https://")
_MOST_TOPICS = 8
_PASSAGES_OF_TOPICS = 2_000
"""At most this many passages are read for topics, evenly spread over the collection."""
_TERMS, _TITLES = 3, 3
_LONGEST_PASSAGE, _STARTS = 5_000, 10


@dataclass(frozen=True)
class Entry:
    """A document of a collection: its title, its source ("" if unknown), its passages' numbers, its date and metadata."""

    title: str
    source: str
    numbers: tuple[int, ...]
    date: str
    metadata: Mapping[str, Any] = field(repr=False)

    @property
    def suffix(self) -> str:
        """The format, such as "pdf"; "web" for a page of the web, "" if the source has none."""
        if self.source.startswith(_WEB):
            return "web"
        found = _SUFFIX.search(self.source)
        return found[1].lower() if found else ""

    @property
    def file(self) -> str:
        """The file's name, or ""."""
        return self.source.rsplit("/", 1)[-1] if self.suffix else ""

    @cached_property
    def names(self) -> tuple[frozenset[str], ...]:
        """The words of the title, and of the file's name without its suffix."""
        return tuple(filter(None, map(_words, (self.title, self.file.rsplit(".", 1)[0]))))

    @cached_property
    def words(self) -> frozenset[str]:
        """The words of the title, the file's name and the values of the metadata."""
        values = [str(value) for key, value in self.metadata.items() if key not in _PLACE_KEYS]
        return _words(" ".join([self.title, self.file, *values])[:_LONGEST_WORDS])


@dataclass(frozen=True, eq=False)
class Collection:
    """The documents of one state of a corpus, in the order of the corpus."""

    view: View
    entries: tuple[Entry, ...]

    @cached_property
    def _headings(self) -> list[frozenset[str]]:
        """The words of each document's first line: a heading may say what the title does not."""
        if len(self.entries) > _MOST_READ:
            return [frozenset()] * len(self.entries)
        passages = self.view.fetch([entry.numbers[0] for entry in self.entries])
        lines = [passage.document.page_content.strip().partition("\n")[0] for passage in passages]
        # A long line is ordinary text. In a PDF its beginning may still be the heading.
        return [_words(line if len(line) <= _LONGEST_TITLE else line[: _LONGEST_TITLE // 2]) for line in lines]

    def having(self, text: str) -> list[Entry]:
        """The documents that have all words of a text in title, file name, metadata or heading; all if it has no words."""
        words = _words(text)
        if not words:
            return list(self.entries)
        return [entry for entry, heading in zip(self.entries, self._headings, strict=True) if words <= entry.words | heading]

    def named(self, text: str) -> list[Entry]:
        """The documents that a text names: all words of the title, or of the file name, are in the text."""
        words = _words(text)
        return [entry for entry in self.entries if any(name <= words for name in entry.names)]


class Collections:
    """The current collection of a retriever, read again if its corpus has changed."""

    def __init__(self, retriever: HopfieldRetriever) -> None:
        if not isinstance(retriever, HopfieldRetriever):
            raise InputError(
                f"Overview needs a HopfieldRetriever, whose documents it can list, not {type(retriever).__name__}"
            )
        if not retriever.corpus.complete:
            raise InputError("Overview cannot list the documents of a vector store: give a retriever over an index or texts")
        self._retriever = retriever
        self._lock = threading.Lock()
        self._known: tuple[Any, Collection] | None = None

    def current(self) -> Collection:
        """The collection, without the documents that the retriever's filter excludes."""
        return settled(self._read)

    def _read(self) -> Collection:
        view, condition = self._retriever.corpus.snapshot(), self._retriever.filter
        # A new passage has a greater key, and a deletion lowers the number of passages.
        state = (view.source, len(view), int(view.keys[-1]) if len(view.keys) else 0, condition)
        with self._lock:
            if self._known is None or self._known[0] != state:
                self._known = (state, _collection(view, condition))
            return self._known[1]


def _collection(view: View, condition: Filter | None) -> Collection:
    allowed = view.allowed(condition)
    parts: dict[tuple[str, str], tuple[Listed, list[int]]] = {}
    titles: dict[str, str] = {}
    for listed in view.listed():
        source, title = str(listed.metadata.get("source") or ""), str(listed.metadata.get("title") or "")
        # The pages of a file are one document, under its first title. So are texts that share a title and have no source.
        key = (source, titles.setdefault(source, title) if _is_part(source, listed.metadata) else title)
        key = key if any(key) else ("", listed.id)
        numbers = listed.numbers if allowed is None else [n for n in listed.numbers if allowed[n]]
        if numbers:
            parts.setdefault(key, (listed, []))[1].extend(numbers)
    return Collection(view, tuple(_entry(*key, first, own) for key, (first, own) in parts.items()))


def _is_part(source: str, metadata: Mapping[str, Any]) -> bool:
    """True for a page, sheet, chapter or group of rows of a file. Its title is not that of the document."""
    in_file = _SUFFIX.search(source) is not None and not source.startswith(_WEB)
    return in_file and any(key in metadata for key in _PARTS)


def _entry(source: str, title: str, first: Listed, numbers: Sequence[int]) -> Entry:
    date = next((str(first.metadata[key]) for key in _DATES if re.match(r"\d{4}", str(first.metadata.get(key)))), "")
    shown = flat(title or source.rsplit("/", 1)[-1] or first.id)
    return Entry(shown[:_LONGEST_TITLE], source, tuple(numbers), date[:10], first.metadata)


def _words(text: str) -> frozenset[str]:
    return frozenset(content_words(re.sub(r"[_\-.]", " ", plain(text))))


def find_topics(collection: Collection) -> list[str]:
    """Typical words and titles of each topic, the largest topic first. There are sqrt(passages / 2) topics, at most 8.

    k-means over the whole-passage patterns, with a fixed seed. A word is typical if a larger
    share of the topic's passages has it than of all passages.
    """
    from scipy.cluster.vq import kmeans, vq

    view = collection.view
    owners = [entry for entry in collection.entries for _ in entry.numbers]
    every = np.array([number for entry in collection.entries for number in entry.numbers])
    kept = np.unique(np.linspace(0, len(every) - 1, min(len(every), _PASSAGES_OF_TOPICS)).astype(np.int64))
    patterns = view.patterns_for(every[kept])
    whole = patterns.take(patterns.offsets[every[kept]])
    means, _ = kmeans(whole, min(_MOST_TOPICS, max(1, round(math.sqrt(len(kept) / 2)))), iter=_STARTS, seed=0)
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
    found = content_tokens(text[:_LONGEST_PASSAGE])
    return {token.item: token.raw for token in found if len(token.raw) > 2 and token.raw.isalpha()}
