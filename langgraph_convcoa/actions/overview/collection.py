"""A collection as its documents: titles, formats, dates and metadata, and which documents a name means."""

from __future__ import annotations

import difflib
import re
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any

from langgraph_convcoa.actions.overview.reading import Wanted, parted
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.corpus import Listed, View, settled
from langgraph_convcoa.retrieval.filters import Filter
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.text.clean import flat
from langgraph_convcoa.text.terms import plain
from langgraph_convcoa.text.words import content_words, words

_LONGEST_TITLE = 80
_DATES = ("date", "published", "publication_date", "pubdate", "year", "created", "modified")
_YEAR = re.compile(r"(?<!\d)(?:1[5-9]\d\d|20\d\d)(?!\d)")
_SUFFIX = re.compile(r"\.([a-z][a-z0-9]{1,4})(?:\.gz)?$", re.IGNORECASE)
_SAME_FORMAT = {"markdown": "md", "htm": "html", "text": "txt"}
_PLACE_KEYS = ("document_id", "start", "page", "row", "part", "chapter", "entities", "triples")
_PARTS = ("page", "sheet", "chapter", "row")
_WEB = ("http://", "https://")
_SAME = re.compile(
    r"\b(?:the|an?|this|that|document|doc|file|paper|report|article|text|pdf|note|manual|chapter|page|about|on|called|titled|one"
    r"|entitled|named)s?\b",
    re.IGNORECASE,
)
_MOST_MEANT = 3
"""Documents that one name may mean; of more it means none."""
_SHARE = 0.5
"""Of a title's words a name must have this share, and no others."""
_LIKE = 0.8
_LONGEST_INITIALS, _SHORTEST_INITIALS = 6, 3


@dataclass(frozen=True)
class Entry:
    """A document of a collection.

    `title` as it is shown; `source` where it is from, "" where that is not told; `numbers` of its passages in the view;
    `date` its date or year as its metadata tells it; `metadata` of its first passage.
    """

    title: str
    source: str
    numbers: tuple[int, ...]
    date: str
    metadata: Mapping[str, Any] = field(repr=False)

    @property
    def suffix(self) -> str:
        """Its format, such as "pdf"; "" where its source has none, "web" for a page of the web."""
        if self.source.startswith(_WEB):
            return "web"
        found = _SUFFIX.search(self.source)
        return _SAME_FORMAT.get(found[1].lower(), found[1].lower()) if found else ""

    @property
    def file(self) -> str:
        """The name of its file, "" where there is none."""
        return self.source.rsplit("/", 1)[-1] if self.suffix else ""

    @cached_property
    def years(self) -> frozenset[int]:
        """The years of its date; without one those of its title and its file's name."""
        return frozenset(map(int, _YEAR.findall(self.date or f"{self.title} {self.file}")))

    @cached_property
    def names(self) -> tuple[frozenset[str], ...]:
        """The words of its title, and of its file's name."""
        made = [_forms(self.title), _forms(self.file.rsplit(".", 1)[0]), _forms(self.file)]
        return tuple(dict.fromkeys(form for form in made if form))

    @cached_property
    def words(self) -> frozenset[str]:
        """The words of its title and of its metadata's values."""
        values = [str(value) for key, value in self.metadata.items() if key not in _PLACE_KEYS]
        return _forms(" ".join([self.title, self.file, *values])[:2_000])


@dataclass(frozen=True, eq=False)
class Collection:
    """The documents of one state of a corpus, in its order."""

    view: View
    entries: tuple[Entry, ...]

    @property
    def passages(self) -> int:
        """How many passages they have."""
        return sum(len(entry.numbers) for entry in self.entries)

    @cached_property
    def formats(self) -> list[tuple[str, int]]:
        """The formats and how many documents have each, the most frequent first."""
        counted = Counter(entry.suffix for entry in self.entries)
        return [(suffix, n) for suffix, n in counted.most_common() if suffix]

    def has(self, wanted: Wanted) -> bool:
        """Whether the documents are there that a question is about."""
        return bool(self.named(wanted) if wanted.kind in ("summary", "comparison") else self.chosen(wanted))

    def chosen(self, wanted: Wanted) -> list[Entry]:
        """The documents that a list or a count is of, in its order."""
        needed = _forms(" ".join(wanted.words))
        found = [
            entry
            for entry in self.entries
            if (wanted.years is None or any(wanted.years[0] <= year <= wanted.years[1] for year in entry.years))
            and (not wanted.suffix or entry.suffix == wanted.suffix)
            and needed <= entry.words
        ]
        if wanted.order:
            found.sort(key=lambda entry: (max(entry.years, default=0), entry.date), reverse=wanted.order == "newest")
        return found

    def named(self, wanted: Wanted) -> list[Entry]:
        """The documents of a summary or a comparison, each once; none where one of the names means none."""
        if wanted.names and wanted.names[0].startswith("#") and all(name.startswith("#") for name in wanted.names):
            listed = self.chosen(wanted)
            places = [int(name[1:]) for name in wanted.names]
            there = [place - 1 if place > 0 else place for place in places]
            return (
                [listed[n] for n in there if -len(listed) <= n < len(listed)] if max(map(abs, places)) <= len(listed) else []
            )
        if wanted.kind != "comparison" or len(wanted.names) != 1:
            return _distinct([self.meant(name) for name in wanted.names])
        ways = [_distinct([self.meant(part) for part in way]) for way in parted(wanted.names[0])]
        whole = self.meant(wanted.names[0])
        return next((way for way in ways if len(way) > 1), whole if len(whole) > 1 else [])

    def meant(self, name: str) -> list[Entry]:
        """The documents that a name means: their titles or files have its words, but for small slips; up to three."""
        if name.startswith("#"):
            return self.named(Wanted("summary", (name,)))
        shorter = _SAME.sub(" ", name)
        if not _forms(shorter) and len(self.entries) == 1:
            return [*self.entries]
        for text in (name, shorter):
            if not (forms := _forms(text)):
                continue
            if exact := self._by_name.get(forms):
                return exact if len(exact) <= _MOST_MEANT else []
            if found := self._containing(forms):
                return found
        letters = "".join(shorter.split()).lower()
        return self._by_initials.get(letters, [])[:_MOST_MEANT] or self._containing(self._mended(_forms(shorter)))

    def mentioned(self, text: str) -> list[Entry]:
        """The documents whose whole title, or file's name, a text holds, up to three."""
        held = _forms(text)
        return [entry for entry in self.entries if any(name <= held for name in entry.names)][:_MOST_MEANT]

    def _containing(self, forms: frozenset[str]) -> list[Entry]:
        if not forms or not all(form in self._where for form in forms):
            return []
        places = set.intersection(*(self._where[form] for form in forms))
        shares = {n: max(len(forms) / len(name) for name in self.entries[n].names if forms <= name) for n in places
                  if any(forms <= name for name in self.entries[n].names)}  # fmt: skip
        best = max(shares.values(), default=0.0)
        found = [self.entries[n] for n in sorted(shares) if shares[n] == best]
        return found if best >= _SHARE and len(found) <= _MOST_MEANT else []

    def _mended(self, forms: frozenset[str]) -> frozenset[str]:
        """Words that no title has, as the word of a title that is most like them."""
        mended = set()
        for form in forms:
            known = form in self._where or len(form) < 4 or form[0].isdigit()
            like = [] if known else difflib.get_close_matches(form, self._where, 1, _LIKE)
            mended.add(like[0] if like else form)
        return frozenset(mended)

    @cached_property
    def _by_name(self) -> dict[frozenset[str], list[Entry]]:
        found: dict[frozenset[str], list[Entry]] = {}
        for entry in self.entries:
            for name in entry.names:
                found.setdefault(name, []).append(entry)
        return found

    @cached_property
    def _where(self) -> dict[str, set[int]]:
        found: dict[str, set[int]] = {}
        for n, entry in enumerate(self.entries):
            for form in frozenset().union(*entry.names):
                found.setdefault(form, set()).add(n)
        return found

    @cached_property
    def _by_initials(self) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = {}
        for entry in self.entries:
            letters = "".join(word[0] for word in words(plain(entry.title)))
            if _SHORTEST_INITIALS <= len(letters) <= _LONGEST_INITIALS:
                found.setdefault(letters, []).append(entry)
        return found


class Collections:
    """The collection of a retriever as it is now, read again when its corpus has changed.

    Raises:
        InputError: It is no `HopfieldRetriever`, or one over a vector store, which tells no more than it is asked for.
    """

    def __init__(self, retriever: HopfieldRetriever) -> None:
        if not isinstance(retriever, HopfieldRetriever):
            raise InputError(
                f"Overview needs a HopfieldRetriever, whose documents it can list, not {type(retriever).__name__}"
            )
        if not retriever.corpus.complete:
            raise InputError(
                "Overview cannot list the documents of a vector store: give a retriever over an index or documents"
            )
        self._retriever = retriever
        self._lock = threading.Lock()
        self._known: tuple[Any, Collection] | None = None

    def current(self) -> Collection:
        """The collection, without what the retriever's filter leaves out."""
        return settled(self._read)

    def _read(self) -> Collection:
        view, condition = self._retriever.corpus.snapshot(), self._retriever.filter
        # Passages that are added have greater keys, and where some are deleted there are fewer.
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
        # The pages of a file are one document, under its first title, as are the texts that share a title and have no source.
        key = (source, titles.setdefault(source, title) if _is_part(source, listed.metadata) else title)
        key = key if any(key) else ("", listed.id)
        numbers = listed.numbers if allowed is None else [n for n in listed.numbers if allowed[n]]
        if numbers:
            parts.setdefault(key, (listed, []))[1].extend(numbers)
    return Collection(view, tuple(_entry(*key, first, own) for key, (first, own) in parts.items()))


def _is_part(source: str, metadata: Mapping[str, Any]) -> bool:
    """Whether it is a page, sheet, chapter or group of rows of a file: what they are called is no title of a document."""
    in_file = _SUFFIX.search(source) is not None and not source.startswith(_WEB)
    return in_file and any(key in metadata for key in _PARTS)


def _entry(source: str, title: str, first: Listed, numbers: Sequence[int]) -> Entry:
    date = next((str(first.metadata[key]) for key in _DATES if _YEAR.search(str(first.metadata.get(key) or ""))), "")
    shown = flat(title or source.rsplit("/", 1)[-1] or first.id)
    return Entry(shown[:_LONGEST_TITLE], source, tuple(numbers), date[:10], first.metadata)


def _forms(text: str) -> frozenset[str]:
    return frozenset(content_words(re.sub(r"[_\-]", " ", plain(text))))


def _distinct(found: Sequence[Sequence[Entry]]) -> list[Entry]:
    """All documents of all names; none where a name has none."""
    if not all(found):
        return []
    every = sorted((entry for entries in found for entry in entries), key=lambda entry: entry.numbers)
    kept = [next(same) for _, same in groupby(every, key=lambda entry: entry.numbers)]
    order = {entry.numbers: n for n, entry in enumerate(reversed([e for entries in found for e in entries]))}
    return sorted(kept, key=lambda entry: -order[entry.numbers])
