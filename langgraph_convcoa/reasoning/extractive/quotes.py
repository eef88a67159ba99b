"""Quotes of the best sentences for an answer of limited length: whole, or clipped around the likely answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from langgraph_convcoa.reasoning.extractive.query import Query, of_kind
from langgraph_convcoa.reasoning.extractive.sentence_ranking import Candidate
from langgraph_convcoa.reasoning.extractive.weights import TOKEN_WEIGHTS
from langgraph_convcoa.text.citation_marks import renumbered_marks
from langgraph_convcoa.text.questions import is_name, is_number

ELLIPSIS = "…"
POOL = 4  # Sentences that an answer may quote.
MIN_SHARE = 0.02  # A further sentence must have at least this share of the best sentence's probability.
WHOLE = 35  # The best sentence stands whole up to this many words.
MIN_STRETCH = 8  # Words of the shortest clipping.
SLACK = 5  # A clipping that would leave out at most this many words at an end of its sentence includes them.
NEARLY = 0.9  # The beginning of a sentence is quoted if it is worth this share of the best stretch: that reads better.
REACH = 6.0  # Distance in words at which the weight of a question word has fallen to a third.
PRICES = np.geomspace(1e-6, 1.0, 100)

Stretch = tuple[int, int]  # A part of a sentence: the index of its first token, and of the token after its last token.


@dataclass(frozen=True)
class Quote:
    """A piece of an answer and the place of its document in the evidence, from 0."""

    document: int
    text: str


def choose_quotes(ranked: Sequence[Candidate], query: Query, budget: int) -> list[Quote]:
    """Quotes of the best sentences within a budget of words, the best first. A citation mark counts as a word.

    Each word has a price. The quote of a sentence is the stretch whose chance to hold the answer exceeds its price most. The
    price is the lowest one at which the quotes fit the budget.
    """
    if not ranked or budget < 2:
        return []
    pool = [candidate for candidate in ranked[:POOL] if candidate.probability >= MIN_SHARE * ranked[0].probability]
    worth = [candidate.probability * answer_chances(candidate, query) for candidate in pool]
    priced = (_stretches(worth, price, budget) for price in PRICES)
    chosen = next(stretches for stretches in priced if _cost(stretches) <= budget)
    _lengthen(chosen, pool, budget - _cost(chosen))
    return [Quote(pool[place].document, _cut(pool[place], *stretch)) for place, stretch in chosen.items()]


def clip(candidate: Candidate, query: Query, budget: int) -> str:
    """A sentence within a budget of words: whole, or the stretch most likely to hold the answer, with … at each cut."""
    return _cut(candidate, *_best_of_size(answer_chances(candidate, query), budget))


def answer_chances(candidate: Candidate, query: Query) -> NDArray[np.float64]:
    """The chance of each token to belong to the answer if the sentence holds it. They sum to 1."""
    tokens = candidate.tokens
    asked = np.array([max((query.weights.get(stem, 0.0) for stem in token.stems), default=0.0) for token in tokens])
    places, held = np.arange(len(tokens)), np.flatnonzero(asked)
    preceded = np.searchsorted(held, places) > 0
    following = np.append(held, np.inf)[np.searchsorted(held, places, side="right")]
    clauses = np.cumsum([0, *(token.text.endswith((",", ";", ":")) for token in tokens[:-1])])
    features = (
        asked > 0,
        [not token.stems for token in tokens],
        of_kind(query.kind, tokens, query.weights),
        [is_name(token.text, first=place == 0) for place, token in enumerate(tokens)],
        [is_number(token.text) for token in tokens],
        np.exp(-np.abs(places[:, None] - places) / REACH) @ asked / 3,
        1 / (following - places),
        preceded & (following < np.inf),
        ~preceded,
        np.bincount(clauses, weights=asked)[clauses] / max(1.0, asked.sum()),
    )
    chances = np.exp(np.column_stack(features) @ TOKEN_WEIGHTS[query.kind])
    return np.asarray(chances / chances.sum())


def _stretches(worth: Sequence[NDArray[np.float64]], price: float, budget: int) -> dict[int, Stretch]:
    """A stretch of the best sentence, and the beginning of each further sentence that is worth its price."""
    # A further sentence keeps its subject: "…Ada Byron in 1843" would answer a question about something else.
    best, least = _best_stretch(worth[0] - price), min(WHOLE, budget - 1)
    chosen = {0: best if best[1] - best[0] >= least else _best_of_size(worth[0], least)}
    for place, values in enumerate(worth[1:], start=1):
        end = max(int(np.argmax(np.cumsum(values - price))) + 1, min(MIN_STRETCH, len(values)))
        end = end if len(values) - end > SLACK else len(values)
        # The citation mark costs a word.
        if values[:end].sum() > price * (end + 1):
            chosen[place] = 0, end
    return chosen


def _cost(stretches: dict[int, Stretch]) -> int:
    return sum(end - first + 1 for first, end in stretches.values())


def _lengthen(chosen: dict[int, Stretch], pool: Sequence[Candidate], left: int) -> None:
    """Lengthen the stretches, the best first, by the words that are left. A missing beginning is added whole or not at all."""
    for place, (first, end) in chosen.items():
        before = first if first <= left else 0
        after = min(len(pool[place].tokens) - end, left - before)
        chosen[place] = first - before, end + after
        left -= before + after


def _best_stretch(gains: NDArray[np.float64]) -> Stretch:
    sums = np.concatenate(([0.0], np.cumsum(gains)))
    end = int(np.argmax((sums - np.minimum.accumulate(sums))[1:])) + 1
    return int(np.argmin(sums[:end])), end


def _best_of_size(values: NDArray[np.float64], size: int) -> Stretch:
    """The stretch of a size with the largest sum, or the beginning if it is nearly as good. A shorter sentence stays whole."""
    size = min(size, len(values))
    gain = np.convolve(values, np.ones(size), mode="valid")
    first = 0 if gain[0] >= NEARLY * gain.max() else int(np.argmax(gain))
    return first, first + size


def _cut(candidate: Candidate, first: int, last: int) -> str:
    tokens = candidate.tokens
    if not tokens[first:last]:
        return ""
    # A [3] in the source would be read as a citation of this answer.
    text, _, _ = renumbered_marks(candidate.text[tokens[first].start : tokens[last - 1].end], available=0)
    if first > 0:
        text = f"{ELLIPSIS}{text}"
    if last < len(tokens):
        text = f"{text.rstrip(',;:–-')}{ELLIPSIS}"
    return text
