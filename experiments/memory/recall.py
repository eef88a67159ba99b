"""Recall of answers: precision on near-miss questions, recall on paraphrases."""

from __future__ import annotations

import random
import re
import string
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, islice
from typing import NamedTuple

from langgraph_convcoa.datasets.queries import Dataset, Query
from langgraph_convcoa.memory.conversation_memory import ConversationMemory
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.text.questions import SAME_SIMILARITY, words_agree
from langgraph_convcoa.text.words import content_words, words

_YEAR = re.compile(r"\b(1[5-9]\d\d|20[0-4]\d)\b")
_NUMBER = re.compile(r"\b\d{1,3}\b")
_NAME = re.compile(r"(?<=[a-z,] )[A-Z][\w&.'-]*(?: [A-Z][\w&.'-]*)*")
_LEANING = re.compile(
    r"\b(?:it|its|they|them|their|he|him|his|she|her|these|those|this|that|here|there|same|one|ones)\b", re.IGNORECASE
)
_OVERLAP = 0.6
_REWRITE_OVERLAP = 0.5
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_MADE = ("year", "number", "name", "rewrite", "rephrased")
"""Kinds that count in the summary. "passage" pairs do not count: their labels are noisy."""


@dataclass(frozen=True)
class RecallRow:
    """One kind of pairs of one part: the number of pairs, and of those whose answer would be recalled."""

    part: str
    kind: str
    same: bool
    pairs: int
    recalled: int


@dataclass(frozen=True)
class RecallSummary:
    """Over the kinds of `_MADE` in one part: precision over all pairs, recall over the pairs that ask the same."""

    part: str
    near_misses: int
    paraphrases: int
    precision: float
    recall: float


def evaluate_recall(
    datasets: Sequence[Dataset], memory: ConversationMemory, *, seed: int = 0, progress: Progress = False
) -> tuple[list[RecallRow], list[RecallSummary]]:
    """Count the answers that would be recalled, over up to 200 pairs of each kind. Every second pair is for tuning."""
    pairs = make_pairs(datasets, 200, seed)
    parts: dict[str, list[Pair]] = {"tuning": [], "report": []}
    for kind in dict.fromkeys((pair.kind, pair.same) for pair in pairs):
        own = [pair for pair in pairs if (pair.kind, pair.same) == kind]
        parts["tuning"] += own[::2]
        parts["report"] += own[1::2]
    rows: list[RecallRow] = []
    summaries = []
    with track(progress, len(pairs), "Comparing") as advance:
        for part, own in parts.items():
            counts: dict[tuple[str, bool], list[bool]] = {}
            for start in range(0, len(own), 64):
                block = own[start : start + 64]
                vectors = memory.vectors([text for pair in block for text in (pair.first, pair.second)])
                for n, pair in enumerate(block):
                    similarity = float(vectors[2 * n] @ vectors[2 * n + 1])
                    found = similarity >= SAME_SIMILARITY and words_agree(pair.first, pair.second)
                    counts.setdefault((pair.kind, pair.same), []).append(found)
                advance(len(block))
            rows += [RecallRow(part, kind, same, len(found), sum(found)) for (kind, same), found in counts.items()]
            summaries.append(_summary(part, counts))
    return rows, summaries


def _summary(part: str, counts: dict[tuple[str, bool], list[bool]]) -> RecallSummary:
    wrong = [found for (kind, same), each in counts.items() if not same and kind in _MADE for found in each]
    right = [found for (kind, same), each in counts.items() if same and kind in _MADE for found in each]
    recalled = sum(wrong) + sum(right)
    precision, recall = sum(right) / recalled if recalled else 1.0, sum(right) / len(right) if right else 0.0
    return RecallSummary(part, len(wrong), len(right), precision, recall)


class Pair(NamedTuple):
    """Two questions, and whether they have the same answer."""

    kind: str
    first: str
    second: str
    same: bool


def make_pairs(datasets: Sequence[Dataset], per_kind: int, seed: int) -> list[Pair]:
    """Up to `per_kind` pairs of each kind.

    Not the same: a real question that stands alone, and the same with another year, number or name of the data ("year",
    "number", "name"); two real questions about one passage that share at least 0.6 of their content words, but no word of
    their answers ("passage").

    The same: a question that stands alone and its rewrite, if numbers and half of the content words are the same and the
    rewrite has no more content words ("rewrite"); a real question that stands alone, and the same rephrased by a rule
    ("rephrased"); two such questions about one passage with the same answer, which may ask different things ("passage").
    """
    rng = random.Random(seed)
    alone = list(dict.fromkeys(question for dataset in datasets for question in _standing_alone(dataset)))
    rng.shuffle(alone)
    names = sorted({name for question in alone for name in _NAME.findall(question)})
    years = sorted({year for question in alone for year in _YEAR.findall(question)})
    makers = {
        "year": (_swapped(question, _YEAR, years, rng) for question in alone),
        "number": (_swapped(question, _NUMBER, [str(n) for n in range(2, 60)], rng) for question in alone),
        "name": (_swapped(question, _NAME, names, rng) for question in alone),
    }
    pairs: list[Pair] = []
    for kind, made in makers.items():
        pairs += islice((Pair(kind, first, second, False) for first, second in made if second), per_kind)
    pairs += islice((Pair("rephrased", q, other, True) for q in alone if (other := rephrase(q, rng))), per_kind)
    written = [pair for dataset in datasets for pair in _rewrites(dataset)]
    rng.shuffle(written)
    pairs += written[:per_kind]
    for same in (True, False):
        pairs += islice((pair for pair in _of_one_passage(datasets, rng) if pair.same == same), per_kind)
    return pairs


def _standing_alone(dataset: Dataset) -> Iterator[str]:
    for query in dataset.queries:
        question = query.rewrite or ("" if query.history else query.question)
        if question.endswith("?") and 5 <= len(question.split()) <= 40 and not _LEANING.search(question):
            yield question.strip()


def _swapped(question: str, pattern: re.Pattern[str], others: Sequence[str], rng: random.Random) -> tuple[str, str]:
    found = [match for match in pattern.finditer(question) if not (pattern is _NUMBER and _YEAR.search(match.group()))]
    if not found or not others:
        return question, ""
    place, other = rng.choice(found), rng.choice(others)
    known = not set(words(question)).isdisjoint(words(other))
    return question, "" if known else f"{question[: place.start()]}{other}{question[place.end() :]}"


_OPENINGS = (
    "Can you tell me",
    "Could you please tell me",
    "Do you know",
    "I would like to know",
    "Tell me again",
    "So",
    "Please tell me",
)
_TURNS = (
    (re.compile(r"^(?:In what|What) year (was|were|did) ", re.IGNORECASE), "When {}"),
    (re.compile(r"^When (was|were) ", re.IGNORECASE), "In what year {}"),
    (re.compile(r"^When (did) ", re.IGNORECASE), "In which year {}"),
)
_SAID = (
    (re.compile(r"\bpercentage change\b"), "change in percent"),
    (re.compile(r"\bfilm\b"), "movie"),
    (re.compile(r"\bfounded\b"), "established"),
    (re.compile(r"\bbuilt\b"), "constructed"),
    (re.compile(r"\bpurchased?\b"), "bought"),
    (re.compile(r"\bbegan\b"), "started"),
    (re.compile(r"\bincrease\b"), "growth"),
    (re.compile(r"\bthe change in (.+?) between (\d{4}) and (\d{4})"), r"the difference in \1 from \2 to \3"),
    (re.compile(r"\bbetween (\d{4}) and (\d{4})"), r"from \1 to \2"),
    (re.compile(r"\blocated\b"), "situated"),
    (re.compile(r"\bthe ([a-z]+) of ([A-Z]\w+)\b"), r"\2's \1"),
)
_YEAR_AT_END = re.compile(r"^(.*\S) in (\d{4})\?$")


def rephrase(question: str, rng: random.Random) -> str:
    """A question rephrased by a rule, or "" if no rule applies.

    Example:
        >>> rephrase("When was Acme founded?", random.Random(2)) != "When was Acme founded?"
        True
    """
    ways = []
    if (ended := _YEAR_AT_END.match(question)) is not None:
        ways.append(f"In {ended[2]}, {_lowered(ended[1])}?")
    for pattern, instead in _TURNS:
        if (match := pattern.match(question)) is not None:
            ways.append(f"{instead.format(match[1].lower())} {question[match.end() :]}")
    ways += [pattern.sub(instead, question) for pattern, instead in _SAID if pattern.search(question)]
    if re.match(r"(?:Who|What|When|Where|Which|Why|How)\b", question):
        ways.append(f"{rng.choice(_OPENINGS)} {_lowered(question)}")
    return rng.choice(ways) if ways else ""


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]


def _rewrites(dataset: Dataset) -> Iterator[Pair]:
    for query in dataset.queries:
        question, rewrite = query.question.strip(), query.rewrite.strip()
        if (
            rewrite
            and question.endswith("?")
            and _plain(question) != _plain(rewrite)
            and not _LEANING.search(question)
            and re.findall(r"\d+", question) == re.findall(r"\d+", rewrite)
            and len(_content(rewrite)) <= len(_content(question))
            and _overlap(question, rewrite) >= _REWRITE_OVERLAP
        ):
            yield Pair("rewrite", question, rewrite, True)


def _of_one_passage(datasets: Sequence[Dataset], rng: random.Random) -> Iterator[Pair]:
    passages: defaultdict[str, list[Query]] = defaultdict(list)
    for dataset in datasets:
        for query in dataset.queries:
            if query.answer and query.gold and not query.history and not query.rewrite:
                passages[query.gold[0]].append(query)
    groups = list(passages.values())
    rng.shuffle(groups)
    for queries in groups:
        for first, second in combinations(queries, 2):
            if _overlap(first.question, second.question) < _OVERLAP or _plain(first.question) == _plain(second.question):
                continue
            one, other = set(_plain(first.answer).split()), set(_plain(second.answer).split())
            if one == other:
                yield Pair("passage", first.question, second.question, True)
            elif not one & other:
                yield Pair("passage", first.question, second.question, False)


def _overlap(first: str, second: str) -> float:
    one, other = _content(first), _content(second)
    return len(one & other) / len(one | other) if one and other else 0.0


@lru_cache(maxsize=1024)
def _content(text: str) -> frozenset[str]:
    return frozenset(content_words(text))


def _plain(text: str) -> str:
    return " ".join(w for w in words(text.translate(_PUNCTUATION)) if w not in ("the", "a", "an", "in", "of"))
