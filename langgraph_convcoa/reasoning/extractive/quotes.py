"""Quotes of the best sentences for an answer of limited length: whole, or clipped around the likely answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from langgraph_convcoa.reasoning.extractive.answer_kind import of_kind
from langgraph_convcoa.reasoning.extractive.query import Query
from langgraph_convcoa.reasoning.extractive.sentence_ranking import Candidate
from langgraph_convcoa.text.citations import check_citations

ELLIPSIS = "…"
POOL = 12
"""Sentences that an answer may choose from."""
MIN_SHARE = 0.03
"""A further sentence must be at least this share as likely as the best one."""
MIN_STRETCH = 8
"""Words of the shortest clipping."""
NEARLY = 0.9
"""A sentence is clipped at its end if its beginning is worth this share of the best stretch: that reads better."""
SPREAD = np.array([0.1, 0.2, 0.4, 0.2, 0.1])


@dataclass(frozen=True)
class Quote:
    """A piece of an answer and the place of its document in the evidence, from 0."""

    document: int
    text: str


def choose_quotes(ranked: Sequence[Candidate], query: Query, budget: int) -> list[Quote]:
    """The best sentences within a budget of words. A citation mark counts as a word. The last sentence may be clipped."""
    chosen: list[Quote] = []
    for candidate in ranked[:POOL]:
        words = len(candidate.tokens)
        likely = candidate.probability >= MIN_SHARE * ranked[0].probability
        if budget > (min(MIN_STRETCH, words) if chosen else 1) and (likely or not chosen):
            chosen.append(Quote(candidate.document, clip(candidate, query, budget - 1)))
            budget -= min(words, budget - 1) + 1
    return chosen


def clip(candidate: Candidate, query: Query, budget: int) -> str:
    """A sentence within a budget of words: whole, or the stretch most likely to hold the answer between … marks."""
    size = len(candidate.tokens)
    if size <= budget:
        return _cut(candidate, 0, size)
    asked = [max((query.weights.get(stem, 0.0) for stem in token.stems), default=0.0) for token in candidate.tokens]
    wanted = of_kind(query.kind, candidate.tokens, query.weights) if query.kind != "thing" else [False] * size
    # Words beside those of the question count too.
    worth = np.convolve(np.maximum(asked, wanted), SPREAD, mode="same")
    gain = np.convolve(worth, np.ones(budget), mode="valid")
    first = 0 if gain[0] >= NEARLY * gain.max() else int(np.argmax(gain))
    return _cut(candidate, first, first + budget)


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
