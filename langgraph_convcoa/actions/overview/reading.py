"""The form of a question about a collection: whether it asks for its documents themselves, and for which.

A question has that form only where every content word of it belongs to it, is a date, or names documents that are there. One
word more ("which articles of the constitution protect speech?") makes it an ordinary question.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from langgraph_convcoa.actions.overview.forms import (
    ABOUT,
    ASSISTANT,
    BEGINS,
    COMPARISON,
    CONTENTS,
    COUNTS,
    DEED,
    FILE,
    FILLS,
    FOLLOWS,
    FORMATS,
    FUTURE,
    GENERAL,
    HAVE,
    IT,
    JOINTS,
    MORE,
    NOUNS,
    ONE_OF_THEM,
    ORDINAL,
    OWN,
    OWN_PLACES,
    PARTICULAR,
    PAST,
    PEOPLE,
    PLACES,
    PLACES_IN_ORDER,
    POINTS,
    POLITE,
    RANGE,
    SUMMARY,
    TELLS,
    THEIR,
    THEM,
    TOPICS,
    WHOLE,
)
from langgraph_convcoa.text.clean import flat
from langgraph_convcoa.text.words import STOP_WORDS, words

Kind = Literal["contents", "list", "count", "topics", "summary", "comparison", "assistant", "deed", "future"]
_LONGEST = 300
"""Characters of the longest question that is read: one about the collection is short."""
_LONGEST_FOLLOW_UP = 100
_MOST_NAMES = 4

_EVER = (0, 9999)


@dataclass(frozen=True)
class Wanted:
    """What a question asks of a collection.

    Attributes:
        kind: What is asked for; "assistant", "deed" and "future" are what no document answers.
        names: The documents of a summary or a comparison as the question names them; "#3" is the third of the list, "#-1" the
            last one.
        years: The first and the last year of those that are asked for, both included; None where any will do.
        suffix: The format that is asked for, such as "pdf".
        noun: What the documents are called ("reports"), "" where that says nothing ("documents").
        words: Further words, which must stand in the metadata of a document.
        order: "newest" or "oldest" first, "" as they are.
        page: Which part of the list, from 0.
    """

    kind: Kind
    names: tuple[str, ...] = ()
    years: tuple[int, int] | None = None
    suffix: str = ""
    noun: str = ""
    words: tuple[str, ...] = ()
    order: Literal["", "newest", "oldest"] = ""
    page: int = 0

    @property
    def is_about_some(self) -> bool:
        """Whether it depends on documents that may not be there: it names some, or has words of its own."""
        return self.kind in ("summary", "comparison") or bool(self.words)


def read(question: str, history: Sequence[tuple[str, str]] = ()) -> Wanted | None:
    """What a question asks of a collection as a whole, in the light of the turns before; None where it is another question.

    Example:
        >>> read("How many reports are there?").kind, read("Which documents are from 2023?").years
        ('count', (2023, 2023))
        >>> read("Compare BM25 and sparsemax").names, read("and the second one?", [("List the files", "...")]).names
        (('BM25 and sparsemax',), ('#2',))
        >>> read("How many reports did she write?"), read("Which articles protect free speech?").words
        (None, ('protect', 'free', 'speech'))
    """
    before: Wanted | None = None
    if len(question) <= _LONGEST_FOLLOW_UP:
        for earlier, _ in history[-6:]:
            before = _read(earlier[: _LONGEST + 1], before)
    return _read(question[: _LONGEST + 1], before)


@lru_cache(maxsize=2_000)
def _read(question: str, before: Wanted | None) -> Wanted | None:
    if len(question) > _LONGEST or (before is None and TELLS.search(question) is None):
        return None
    question = flat(question).replace("’", "'")
    if before is not None and (found := _follow_up(question, before)) is not None:
        return found
    question = POLITE.sub("", question).rstrip(" ?!.…")
    return _alone(question) or _of_documents(question, before) or _listing(question)


def _alone(question: str) -> Wanted | None:
    """The forms that are whole questions, word for word."""
    plain = _plain(question)
    if CONTENTS.fullmatch(plain):
        return Wanted("contents")
    if ASSISTANT.fullmatch(plain):
        return Wanted("assistant")
    if DEED.match(plain):
        return Wanted("deed")
    if (had := HAVE.fullmatch(plain)) is not None:
        return Wanted("list", words=tuple(word for word in words(had["name"]) if word not in STOP_WORDS))
    return Wanted("future") if FUTURE.match(plain) else None


def _plain(question: str) -> str:
    return re.sub(r"\b(what|who)'s\b", r"\1 is", re.sub(r"[,;:\"“”]", "", question.lower())).strip()


def _of_documents(question: str, before: Wanted | None) -> Wanted | None:
    """A summary or a comparison; of everything, where it names the collection itself."""
    spelt = re.sub(r"^what's\b", "what is", question, flags=re.IGNORECASE)
    kind: Kind = "comparison"
    match = COMPARISON.match(spelt)
    if match is None:
        kind, match = "summary", SUMMARY.match(spelt) or ABOUT.match(spelt)
    if match is None:
        return None
    name = next(filter(None, match.groups())).strip(" \"“”'")
    if IT.fullmatch(name.lower()):
        return replace(before, kind=kind, page=0) if before is not None and before.names else None
    listed = None if FILE.search(name) else _listing(f"list {name}")
    if listed is not None and listed.kind in ("list", "contents") and not listed.words and kind == "summary":
        return replace(listed, kind="contents")
    if before is not None and before.names:
        name = ONE_OF_THEM.sub(before.names[0], name)
    # "The first document" of all; "article 370" may be in one.
    listed_before = before or (Wanted("list") if GENERAL & {*words(name)} and not re.search(r"\d", name) else None)
    if listed_before is not None and (places := _places(name)):
        return replace(listed_before, kind=kind, names=places, page=0)
    return Wanted(kind, (name,))


def _places(text: str) -> tuple[str, ...]:
    """The places in a list that a text names ("the first two", "document 3 and the last one"); none where it says more."""
    found: list[int] = []
    said = words(text.replace("#", " "))
    for n, word in enumerate(said):
        number = ORDINAL.fullmatch(word)
        if word in PLACES_IN_ORDER:
            found.append(PLACES_IN_ORDER[word])
        elif word in COUNTS and n and said[n - 1] in ("first", "last"):
            found[-1:] = range(1, COUNTS[word] + 1) if said[n - 1] == "first" else range(-COUNTS[word], 0)
        elif number and (word != number[1] or len(said) == 1 or said[n - 1] in ("number", "and", *NOUNS)):
            if not 0 < int(number[1]) <= 1000:
                return ()
            found.append(int(number[1]))
        elif word not in ("the", "one", "ones", "number", "and", "with", "to", "of", "them") and word.rstrip("s") not in NOUNS:
            return ()
    return tuple(f"#{place}" for place in found)[:_MOST_NAMES]


def _follow_up(question: str, before: Wanted) -> Wanted | None:
    """A question that goes on from one about the collection: more of the list, another of it, another year, another name."""
    lead = FOLLOWS.match(question)
    rest = (question[lead.end() :] if lead else question).rstrip(" ?!.…")
    plain = _plain(rest)
    if before.kind in ("list", "contents", "count"):
        if MORE.fullmatch(plain):
            return replace(before, kind="list", page=before.page + (before.kind != "count"))
        if THEM.fullmatch(plain) or THEIR.fullmatch(plain):
            return replace(before, kind="list", page=0)
        if lead or plain.split(" ")[0] in RANGE:
            narrower = _listing(f"list the documents {rest}")
            if narrower is not None and (narrower.years or narrower.suffix) and not narrower.words:
                return replace(narrower, kind="list" if before.kind == "contents" else before.kind, noun=before.noun)
    if before.kind in ("list", "contents", "summary", "comparison"):
        if places := _places(rest):
            return replace(before, kind="summary", names=places, page=0)
        if (
            lead
            and before.names
            and not POLITE.sub("", rest).lower().startswith(("who", "what", "when", "where", "why", "how"))
        ):
            return Wanted(before.kind, (rest,)) if before.kind == "summary" else None
    return None


def _listing(question: str) -> Wanted | None:
    """A question whose content words are all those of a list, a count or a description of documents."""
    said = [word.removesuffix("'s") for word in words(question)]
    years, dated = _years(said)
    if not said or len(said) > 25:
        return None
    nouns = [word for word in said if word.rstrip("s") in NOUNS or word.rstrip("s") in FORMATS]
    many = [word for word in nouns if word.endswith("s") or {"every", "each"} & {*said}]
    placed = bool(PLACES & {*said}) or "knowledge base" in " ".join(said) or bool(OWN_PLACES & {*said} and OWN & {*said})
    topics = [word for word in said if word.rstrip("s") in TOPICS]
    used = {*nouns, *topics, *dated, *(PLACES | OWN_PLACES if placed or many else ()), "knowledge", "base"}
    rest = tuple(word for word in said if word not in used and word not in STOP_WORDS and word not in FILLS)
    telling = {*said}
    if telling & PEOPLE or (telling & PAST and years is None and not telling & {"upload", "uploaded", "add", "added"}):
        return None
    suffix = next((FORMATS[word.rstrip("s")] for word in said if word.rstrip("s") in FORMATS), "")
    noun = next((word for word in nouns if word.rstrip("s") in PARTICULAR), "")
    order: Literal["", "newest", "oldest"] = (
        "newest" if telling & {"newest", "latest", "recent"} else "oldest" if "oldest" in telling else ""
    )
    made = Wanted("list", years=years, suffix=suffix, noun=noun, words=rest, order=order)
    if topics and not rest:
        return replace(made, kind="topics") if many or placed or any(word.endswith("s") for word in topics) else None
    if many and ("how many" in " ".join(said) or "number of" in " ".join(said)):
        sure = telling & POINTS or years or suffix or placed or rest or len(said) <= 3
        return replace(made, kind="count") if sure else None
    if placed and not many and not rest:
        return replace(made, kind="count" if telling & {"large", "big", "size"} else "contents")
    if not many and not (nouns and order and "the" in telling):
        return None
    if telling & WHOLE - {said[0]} and not rest and years is None:
        return replace(made, kind="contents")
    begins = said[0] in BEGINS
    return made if (begins or len(said) <= 3) and telling & POINTS else None


def _years(said: Sequence[str]) -> tuple[tuple[int, int] | None, set[str]]:
    """The years that a question names as the first and the last one, and the words that say so."""
    places = [n for n, word in enumerate(said) if re.fullmatch(r"1[5-9]\d\d|20\d\d", word)]
    if not places:
        return None, set()
    named = [int(said[n]) for n in places]
    used = {said[n] for n in places} | {"between", "since"}
    if len(named) > 1:
        return (min(named), max(named)), used
    for word in said[max(0, places[0] - 2) : places[0]]:
        if word in RANGE:
            low, high = RANGE[word]
            return (_EVER[0] if low is None else named[0] + low, _EVER[1] if high is None else named[0] + high), used
    return (named[0], named[0]), used


def parted(name: str) -> list[tuple[str, ...]]:
    """The ways to part a text into the names of documents that are compared, those with few parts first.

    Example:
        >>> parted("A and B with C")
        [('A', 'B with C'), ('A and B', 'C'), ('A', 'B', 'C')]
    """
    joints = list(JOINTS.finditer(name))[:6]
    ways = [(name[: joint.start()].strip(), name[joint.end() :].strip()) for joint in joints]
    if len(joints) > 1:
        ends = [0, *(joint.end() for joint in joints)]
        starts = [*(joint.start() for joint in joints), len(name)]
        every = tuple(name[start:end].strip() for start, end in zip(ends, starts, strict=True))
        if len(every) <= _MOST_NAMES:
            return [*ways, every]
    return list(ways)
