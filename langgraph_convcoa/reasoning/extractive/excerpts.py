"""Excerpts of the best sentences for an answer of limited length: whole, or clipped around the likely answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from langgraph_convcoa.reasoning.extractive.query import Query
from langgraph_convcoa.reasoning.extractive.sentence_ranking import Candidate
from langgraph_convcoa.reasoning.extractive.weights import TOKEN_WEIGHTS
from langgraph_convcoa.text.citations import check_citations
from langgraph_convcoa.text.questions import fits, is_date, is_name, is_number

ELLIPSIS = "…"
POOL = 12
"""Sentences that an answer may choose from."""
MIN_PROBABILITY = 0.05
MIN_SHARE = 0.1
"""A further sentence must be this likely, and at least this share as likely as the best one."""
MIN_STRETCH = 8
MIN_TOP = 26
"""Words of the shortest clipping, and of that of the best sentence."""
SLACK = 4
"""A clipping that would leave out this many words at an end of its sentence takes them in."""
WHOLE = 35
"""The best sentence stands whole up to this length."""
NEARLY = 0.9
"""The beginning of a sentence is taken in place of a better stretch of it when it is worth this share of that."""
UNIFORM = 0.1
KERNEL = np.array([0.1, 0.2, 0.4, 0.2, 0.1])
"""What is mixed into the likelihood of the words, and how it is spread over their neighbours."""


@dataclass(frozen=True)
class Excerpt:
    """A piece of an answer and the place of its document in the evidence, from 0."""

    document: int
    text: str


def token_features(query: Query, candidate: Candidate) -> NDArray[np.float64]:
    """One row a token of the sentence, one column for each of `weights.TOKEN_FEATURES`."""
    tokens = candidate.tokens
    n = len(tokens)
    asked = np.array([max((query.weights.get(stem, 0.0) for stem in token.stems), default=0.0) for token in tokens])
    places = np.arange(n)
    distance = np.abs(places[:, None] - places[None, :])
    held = np.flatnonzero(asked)
    last = np.array([held[held < i].max(initial=-1) for i in places])
    following = np.array([held[held > i].min(initial=n) for i in places])
    before, after = last >= 0, following < n
    closes = np.cumsum([0, *(token.text.endswith((",", ";", ":")) for token in tokens[:-1])])
    clause = np.bincount(closes, weights=asked)[closes] / max(1.0, asked.sum())
    opened = np.cumsum([token.text.count("(") + token.text.count("[") for token in tokens])
    closed = np.cumsum([0, *(token.text.count(")") + token.text.count("]") for token in tokens[:-1])])
    names = [is_name(token.text, i == 0) for i, token in enumerate(tokens)]
    wanted = [query.kind != "thing" and fits(query.kind, token.text, i == 0) for i, token in enumerate(tokens)]
    columns = (
        asked > 0,
        [not token.stems for token in tokens],
        wanted,
        names,
        [is_number(token.text) for token in tokens],
        [is_date(token.text) for token in tokens],
        (np.exp(-distance / 6.0) * asked).sum(axis=1) / 3.0,
        (np.exp(-distance / 2.0) * asked).sum(axis=1) / 2.0,
        places / n,
        opened > closed,
        np.where(before, 1.0 / np.maximum(1, places - last), 0.0),
        np.where(after, 1.0 / np.maximum(1, following - places), 0.0),
        before & after,
        ~before,
        clause,
    )
    return np.column_stack([np.asarray(column, dtype=np.float64) for column in columns])


def answer_mass(query: Query, candidate: Candidate) -> NDArray[np.float64]:
    """How likely each token belongs to the answer, given that the sentence holds it; sums to 1."""
    logits = token_features(query, candidate) @ TOKEN_WEIGHTS[query.kind]
    mass = np.exp(logits - logits.max())
    return np.asarray(mass / mass.sum())


def clip(candidate: Candidate, query: Query, budget: int) -> str:
    """A sentence within a budget of words: whole, or the stretch most likely to hold the answer between … marks."""
    if len(candidate.tokens) <= budget:
        return _cut(candidate, 0, len(candidate.tokens))
    return _cut(candidate, *_best_window(answer_mass(query, candidate), budget))


def choose_excerpts(ranked: Sequence[Candidate], query: Query, budget: int) -> list[Excerpt]:
    """The excerpts of an answer, the best first, within a budget of words with the citation marks counted.

    Every word has a price: of each sentence the stretch is taken whose chance to hold the answer exceeds its price most, and
    the price is the lowest at which the stretches fit the budget.
    """
    if not ranked or budget < 2:
        return []
    least = max(MIN_PROBABILITY, MIN_SHARE * ranked[0].probability)
    pool = [candidate for candidate in ranked[:POOL] if candidate.probability >= least or candidate is ranked[0]]
    worth = [candidate.probability * _smoothed(answer_mass(query, candidate)) for candidate in pool]
    low, high = 0.0, 1.0
    chosen: dict[int, tuple[int, int]] = {}
    for _ in range(30):
        price = (low + high) / 2
        stretches = _stretches(worth, price, budget)
        if sum(last - first + 1 for first, last in stretches.values()) <= budget:
            high, chosen = price, stretches
        else:
            low = price
    if not chosen:
        chosen = {0: _best_window(worth[0], budget - 1)}
    _fill(chosen, pool, budget)
    return [Excerpt(pool[i].document, _cut(pool[i], *chosen[i])) for i in sorted(chosen)]


def _smoothed(mass: NDArray[np.float64]) -> NDArray[np.float64]:
    """An answer is a few words long and its edges matter: what a word is worth is shared with those beside it."""
    mixed = (1 - UNIFORM) * mass + UNIFORM * np.full(len(mass), 1.0 / len(mass))
    padded = np.pad(mixed, len(KERNEL) // 2, mode="reflect" if len(mass) > len(KERNEL) else "edge")
    return np.convolve(padded, KERNEL, mode="valid")


def _stretches(worth: Sequence[NDArray[np.float64]], price: float, budget: int) -> dict[int, tuple[int, int]]:
    found = {}
    for number, values in enumerate(worth):
        length = len(values)
        if number == 0 and length <= min(WHOLE, budget - 1):
            found[0] = (0, length)
            continue
        first, last = _best_stretch(values - price)
        least = MIN_STRETCH if number else min(MIN_TOP, budget - 1)
        if last - first < least:
            first, last = _best_window(values, least)
        # A stretch that leaves only a few words out is the whole sentence; the mark [n] is paid for too.
        first, last = (0 if first <= SLACK else first), (length if length - last <= SLACK else last)
        if number == 0 or values[first:last].sum() - price * (last - first + 1) > 0:
            found[number] = (first, last)
    return found


def _best_stretch(gain: NDArray[np.float64]) -> tuple[int, int]:
    """The slice with the largest sum."""
    sums = np.concatenate(([0.0], np.cumsum(gain)))
    lowest = np.minimum.accumulate(sums)
    last = int(np.argmax((sums - lowest)[1:])) + 1
    return int(np.argmin(sums[:last])), last


def _fill(chosen: dict[int, tuple[int, int]], pool: Sequence[Candidate], budget: int) -> None:
    """Give the words that are left to the stretches, the best sentence first; a beginning is added whole or not at all."""
    left = budget - sum(last - first + 1 for first, last in chosen.values())
    for number in sorted(chosen):
        first, last = chosen[number]
        before = first if first <= left else 0
        after = min(len(pool[number].tokens) - last, left - before)
        chosen[number] = (first - before, last + after)
        left -= before + after


def _best_window(mass: NDArray[np.float64], size: int) -> tuple[int, int]:
    """The slice of a size with the largest sum, or the beginning where that is nearly as good: it reads better."""
    sums = np.concatenate(([0.0], np.cumsum(mass)))
    size = max(1, min(size, len(mass)))
    gain = sums[size:] - sums[:-size]
    first = 0 if gain[0] >= NEARLY * gain.max() else int(np.argmax(gain))
    return first, first + size


def _cut(candidate: Candidate, first: int, last: int) -> str:
    tokens = candidate.tokens
    if not tokens[first:last]:
        return ""
    # A [3] of the source itself would be read as a citation of this answer.
    text, _, _ = check_citations(candidate.text[tokens[first].start : tokens[last - 1].end], available=0)
    if first > 0:
        text = f"{ELLIPSIS}{text}"
    if last < len(tokens):
        text = f"{text.rstrip(',;:–-')}{ELLIPSIS}"
    return text
