"""Support of each sentence of a text by the references."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from langchain_core.documents import Document
from numpy.typing import NDArray

from langgraph_convcoa.verification.faith_score import Weights, scaled_word_length
from langgraph_convcoa.verification.references import References, Segment, segments

Array = NDArray[np.float64]
Similarity = Callable[[list[str], list[str]], NDArray[np.floating]]
"""Similarities of every text of the first list to every text of the second: an (a, b) array, 1 for the same meaning."""

WEIGHTS: Weights = (1.0, 0.0, 0.0)
"""alpha, beta, gamma, calibrated as `THRESHOLD` in mrfs.py: recall and word length earn no place beside this precision."""
CONTRADICTION_OVERLAP = 0.8
"""A segment that holds this share of a sentence's items contradicts it where one of the two has a "not"."""
CONTRADICTION_SHARE = 0.3
"""What an item counts that only a contradicting segment holds."""


@dataclass(frozen=True)
class SentenceSupport:
    """The support of one sentence of a text, which is the text's [start:end].

    `score`: its faith score, in [0, 1]; `reference` and `quote`: the index of the reference with the best segment, and that
    segment (None and "" when no reference shares an item with the sentence); `weight`: the sentence's share in the score of
    the whole text, its items, a number or a name counted twice.
    """

    text: str
    start: int
    end: int
    score: float
    reference: int | None
    quote: str
    weight: float


def claim_parts(claim: Segment, references: References, similarity: Array | None = None) -> Array:
    """Precision, recall and scaled word length of a sentence against each of m segments, (m, 3).

    Precision is the mean of three shares of the sentence's items: those in this segment, those anywhere in the references,
    and, of its neighbouring pairs, those that are neighbours in some segment. Nothing that is added to the references
    lowers any of them. `similarity`, (m,), joins the mean. A segment that shares no item with the sentence has 0.
    """
    every = references.segments
    here, shared = np.zeros(len(every)), np.zeros(len(every))
    total = sum(item.weight for item in claim.items)
    seen: set[str] = set()
    for item in claim.items:
        holders = references.where.get(item.form)
        if holders:
            here[holders] += item.weight / total
            if item.form not in seen:
                shared[holders] += 1
                seen.add(item.form)
    against = [n for n in np.flatnonzero(here >= CONTRADICTION_OVERLAP).tolist() if every[n].negated != claim.negated]
    against = against if claim.asserts else []
    here[against] *= CONTRADICTION_SHARE
    anywhere = sum(item.weight * _standing(references.where.get(item.form, ()), against) for item in claim.items) / total
    pairs = list(pairwise(item.form for item in claim.items))
    together = sum(_standing(_holders(pair, references), against) for pair in pairs) / len(pairs) if pairs else anywhere
    precision, touched = here + anywhere + together, shared > 0
    if similarity is None:
        precision = precision / 3
    else:
        precision, touched = (precision + np.clip(similarity, 0.0, 1.0)) / 4, touched | (similarity > 0)
    letters = sum(item.letters for item in claim.items) / len(claim.items)
    parts = np.stack([precision, shared / references.sizes, np.full(len(every), scaled_word_length(letters))], axis=1)
    parts[~touched] = 0.0
    return parts


def _holders(pair: tuple[str, str], references: References) -> list[int]:
    return [n for n in references.where.get(pair[0], ()) if pair in references.segments[n].pairs]


def _standing(holders: Sequence[int], against: Sequence[int]) -> float:
    """What an item counts that these segments hold."""
    if not holders:
        return 0.0
    return 1.0 if not against or any(n not in against for n in holders) else CONTRADICTION_SHARE


def support_of(
    claim: Segment, parts: Array, references: References, weights: Weights, gates: Array | None = None
) -> SentenceSupport:
    """The best segment for a sentence, given its parts; `gates` are factors in [0, 1] for the score of each segment, (m,)."""
    total = sum(item.weight for item in claim.items)
    scores = parts @ np.array(weights) * (1.0 if gates is None else gates)
    best = int(scores.argmax()) if len(scores) else 0
    if not len(scores) or scores[best] <= 0:
        return SentenceSupport(claim.text, claim.start, claim.end, 0.0, None, "", total)
    score = min(float(scores[best]), 1.0)
    return SentenceSupport(
        claim.text, claim.start, claim.end, score, references.owners[best], references.segments[best].text, total
    )


def support_sentences(
    answer: str, evidence: Sequence[str | Document] | References, *, weights: tuple[float, float, float] = WEIGHTS
) -> list[SentenceSupport]:
    """The best evidence for each sentence of an answer, in order.

    A sentence that nothing supports has a score of at most `THRESHOLD`; its `reference` is None when not one word is shared.
    Lines and sentences without a word are left out.

    Example:
        >>> evidence = ["The network was described in 1982.", "It stores patterns as minima of an energy."]
        >>> [(s.reference, round(s.score, 2)) for s in support_sentences("It stores patterns. Bananas are yellow.", evidence)]
        [(1, 1.0), (None, 0.0)]
    """
    references = References.of(evidence)
    return [support_of(claim, claim_parts(claim, references), references, weights) for claim in segments(answer)]
