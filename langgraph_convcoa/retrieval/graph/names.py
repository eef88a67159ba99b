"""Names in passages and questions for an evidence graph, as hashes of words."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document

from langgraph_convcoa.retrieval.documents.split import passage_title
from langgraph_convcoa.text.words import STOP_WORDS, word_matches

Hashes = npt.NDArray[np.int64]  # Hashes of words, names and titles. They are even; a marked hash has the lowest bit set.
Numbers = npt.NDArray[np.int64]

LONGEST = 8  # Largest number of words in a name.
_FACTOR = 6364136223846793005
_MASK = 2**64 - 1
# The "(film)" of "Ed Wood (film)" is not part of the name in texts.
_QUALIFIER = re.compile(r"\s*[(\[][^()\[\]]*[)\]]\s*$")
_WITHIN = frozenset("of the de von van der den del della di da du la le al bin ibn y".split())  # noqa: SIM905
_JOINTS = frozenset([" ", "-", "'", "–", "&", " & "])


class Names(NamedTuple):
    """The names in a passage."""

    tokens: Hashes  # Hash of each word of the text; marked if the word does not begin in lower case.
    names: Hashes  # Hashes of runs of capitalised words, and marked hashes of names from the metadata; once each.
    title: int  # Hash of the title without brackets at its end; 0 if it cannot be found in texts.
    words: int  # Number of words of the title.
    first: int  # Hash of the title's first word, unmarked.


@dataclass(frozen=True, eq=False)
class Contents:
    """The `Names` of n passages, concatenated, with the offset of each passage."""

    tokens: Hashes
    token_offsets: Numbers  # (n + 1,)
    names: Hashes
    name_offsets: Numbers  # (n + 1,)
    titles: Hashes  # (n,)
    words: Numbers  # (n,)
    firsts: Hashes  # (n,)


class Named(NamedTuple):
    """A name in a text: its hash and its spelling."""

    hash: int
    text: str


def names_of(passage: Document) -> Names:
    """The names in a passage's title, text and metadata.

    `metadata["entities"]` is a list of names, `metadata["triples"]` a list of [subject, predicate, object] or
    [subject, object], whose ends are names. Other shapes are ignored.
    """
    whole_title = passage_title(passage)
    named = _QUALIFIER.sub("", whole_title) or whole_title
    text, title, title_hash = _words(passage.page_content), _words(named), name_hash(named)
    runs = {*_runs(text), *_runs(title)}
    given = {hashed | 1 for name in given_names(passage.metadata) if (hashed := name_hash(name))}
    tokens, names = [word.hash for word in text], sorted(runs | given)
    size, first = (len(title), title[0].hash & ~1) if title_hash else (0, 0)
    return Names(np.array(tokens, dtype=np.int64), np.array(names, dtype=np.int64), title_hash, size, first)


def names_in(text: str, known: Hashes) -> list[Named]:
    """The names in a text that are among `known` (sorted hashes); only the longest of overlapping names."""
    words = _words(text)
    tokens = np.array([word.hash & ~1 for word in words], dtype=np.int64)
    found: dict[int, Named] = {}
    taken = bytearray(len(words))
    for size in range(min(LONGEST, len(words)), 0, -1):
        starts = np.arange(len(words) - size + 1)
        hashes = joined_hashes(tokens, size, starts)
        for start in np.flatnonzero(is_among(hashes, known)).tolist():
            stop = start + size
            if not any(taken[start:stop]):
                taken[start:stop] = b"\1" * size
                whole = words[start].source[words[start].start : words[stop - 1].stop]
                found[start] = Named(int(hashes[start]), whole)
    return [found[start] for start in sorted(found)]


def name_hash(name: str) -> int:
    """The hash of a name, regardless of case and punctuation; 0 for a name that cannot be searched for."""
    words = _words(name)
    if not 0 < len(words) <= LONGEST or not any(c.isalpha() for c in name):
        return 0
    if len(words) == 1 and words[0].lower in STOP_WORDS:
        return 0
    return _joined(words)


def joined_hashes(tokens: Hashes, size: int, starts: npt.NDArray[np.int64]) -> Hashes:
    """Hash the names of `size` words that begin at the places `starts` of the unmarked tokens."""
    joined = np.full(len(starts), size, dtype=np.uint64)
    unsigned = tokens.view(np.uint64)
    for place in range(size):
        joined = joined * np.uint64(_FACTOR) + unsigned[starts + place]
        joined ^= joined >> np.uint64(29)
    return (joined & np.uint64(_MASK - 1)).view(np.int64)


def is_among(hashes: Hashes, known: Hashes) -> npt.NDArray[np.bool_]:
    """True for each hash that is in `known`, which is sorted."""
    if not len(known):
        return np.zeros(len(hashes), dtype=np.bool_)
    return np.asarray(known[np.minimum(np.searchsorted(known, hashes), len(known) - 1)] == hashes)


class _Word(NamedTuple):
    lower: str
    hash: int
    start: int
    stop: int
    capital: bool
    owner: bool  # True if the word ended in 's.
    source: str


def _words(text: str) -> list[_Word]:
    found = []
    for match in word_matches(text):
        raw = match.group()
        owner = raw[-2:] in ("'s", "'S")
        raw = raw[:-2] if owner else raw
        # Scripts without case count as capitals.
        mark = not raw[0].islower()
        start, lower = match.start(), raw.lower()
        found.append(_Word(lower, _hash(lower) | mark, start, start + len(raw), raw[0].isupper(), owner, match.string))
    return found


def _runs(words: Sequence[_Word]) -> Iterator[int]:
    """Hashes of runs of words with capitals. A run may contain "of", "de" and the like; stop words at its ends are dropped."""
    start = 0
    for number, word in enumerate(words):
        if number > start and not _goes_on(words[number - 1], word):
            yield from _name(words, start, number)
            start = number
        if not word.capital and not (number > start and word.lower in _WITHIN):
            yield from _name(words, start, number)
            start = number + 1
    yield from _name(words, start, len(words))


def _goes_on(last: _Word, word: _Word) -> bool:
    gap = word.source[last.stop : word.start]
    return not last.owner and (gap in _JOINTS or (gap in (". ", ".") and last.capital and last.stop - last.start == 1))


def _name(words: Sequence[_Word], start: int, stop: int) -> Iterator[int]:
    """The hash of the name in a run of words; nothing if the run is not a name."""
    while start < stop and words[start].lower in STOP_WORDS:
        start += 1
    while start < stop and (words[stop - 1].lower in STOP_WORDS or not words[stop - 1].capital):
        stop -= 1
    if 0 < stop - start <= LONGEST and words[stop - 1].stop - words[start].start > 2:
        yield _joined(words[start:stop])


def _joined(words: Sequence[_Word]) -> int:
    """Like `joined_hashes`, for one name; ten times as fast."""
    joined = len(words)
    for word in words:
        joined = (joined * _FACTOR + ((word.hash & ~1) & _MASK)) & _MASK
        joined ^= joined >> 29
    joined &= _MASK - 1
    return joined - 2**64 if joined >> 63 else joined


def given_names(metadata: Mapping[str, Any]) -> Iterator[str]:
    """The names that metadata gives: entities, and the ends of triples."""
    entities, triples = metadata.get("entities"), metadata.get("triples")
    found = [*entities] if isinstance(entities, list | tuple) else []
    for triple in triples if isinstance(triples, list | tuple) else ():
        if isinstance(triple, list | tuple) and len(triple) in (2, 3):
            found += [triple[0], triple[-1]]
    yield from (name for name in found if isinstance(name, str))


@lru_cache(maxsize=500_000)
def _hash(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode("utf-8", "replace"), digest_size=8).digest(), "little", signed=True) & ~1
