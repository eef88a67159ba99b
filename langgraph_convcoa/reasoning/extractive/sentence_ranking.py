"""Ranking of the evidence's sentences by how likely they hold the answer: a small linear model over plain features."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from langchain_core.documents import Document
from numpy.typing import NDArray

from langgraph_convcoa.reasoning.extractive.query import NEEDED, Query, of_kind
from langgraph_convcoa.reasoning.extractive.reading import ROOT, Token, read_passage, with_roots
from langgraph_convcoa.reasoning.extractive.weights import SENTENCE_FEATURES, SENTENCE_WEIGHTS, SENTENCE_WEIGHTS_ENCODER
from langgraph_convcoa.retrieval.encoders.base import Encoder

ENCODED = 8  # Number of sentences that are encoded: those that match best by their words.
# These two weights are set by hand, because SQuAD has no conversations.
LEANING_TYPE_WEIGHT = 2.0  # Cost of lacking a word of the wanted kind, for a question that depends on the conversation.
REPEATED_WEIGHT = 1.5  # Cost of a sentence that the previous answer contains, for a question that depends on the conversation.
COMPLETE = 0.99  # A sentence with this share of the question's words counts as holding all of them.
SHORT = 3  # A question with at most this many words is short.
CLOSE, CLOSE_TO_NAME, NEAR_ENOUGH = 0.6, 0.48, 0.3
"""Lowest cosine of a sentence that lacks words of a short question, a short question with a name, or a longer question."""
_TYPE = SENTENCE_FEATURES.index("a word of the wanted type")


@dataclass(frozen=True)
class Candidate:
    """A sentence of the evidence. Shares are in [0, 1]."""

    document: int  # place in the evidence, from 0
    text: str
    tokens: tuple[Token, ...]
    coverage: float  # share of the question's words that its passage holds
    probability: float = 0.0  # probability that it holds the answer, if one of the ranked sentences does
    features: tuple[float, ...] = ()
    share: float = 1.0  # share of the names and other terms of the question that its passage holds
    question: str = ""  # the question that it stands under
    held: float = 1.0  # share of the question's words in it, its neighbours, heading or title; names in the passage
    fits: bool = True  # it holds a name, time or number if one is asked for
    similarity: float = 1.0  # cosine of its meaning to the question; 1 without an encoder


def rank_sentences(
    query: Query, evidence: Sequence[Document], encoder: Encoder | None = None, shares: Sequence[float] = ()
) -> list[Candidate]:
    """Rank the sentences of the evidence, the one most likely to hold the answer first. Equal texts appear once.

    The evidence is given best first. An encoder compares the meaning of the `ENCODED` best sentences; only these are returned.
    `shares`: share of the question's names and other terms that each passage holds; 1 if not given.
    """
    passages = [read_passage(document) for document in evidence]
    frequency = Counter(stem for passage in passages for part in passage.parts for stem in part.stems)
    count = sum(len(passage.parts) for passage in passages)
    idf = {word: weight * math.log(1 + (count + 1) / (frequency[word] + 0.5)) for word, weight in query.weights.items()}
    about = {word: value for word, value in idf.items() if word in query.about}
    known = with_roots(sorted(query.asked))
    best = max(map(passage_score, evidence), default=0.0)
    found: dict[str, Candidate] = {}
    for number, (passage, document) in enumerate(zip(passages, evidence, strict=True)):
        share = shares[number] if shares else 1.0
        coverage = _share(about, passage.stems)
        # If the evidence graph raised a passage, its score says little.
        scored = best > 0 and "score" in document.metadata and "graph_path" not in document.metadata
        score = max(passage_score(document) / best, 0.0) if scored else 1.0
        window = " ".join(str(document.metadata.get("quote") or "").split())
        for index, part in enumerate(passage.parts):
            if part.text in found:
                continue
            stems = part.stems | part.about if part.question else part.stems
            near = passage.around(index)
            # A passage names its subject once, and says "the fort" afterwards.
            said = near | (query.names & passage.stems)
            held = sum(word in said or f"{word[:ROOT]}-" in said for word in query.asked) / max(1, len(query.asked))
            wanted = query.kind != "thing" and any(of_kind(query.kind, part.tokens, known))
            fits = wanted or query.kind not in NEEDED or bool(part.question and held >= COMPLETE)
            features = (
                _share(idf, stems),
                _share(idf, near),
                _adjacent(query, part.tokens),
                _part(query.names, stems),
                float(wanted),
                1.0 / (1 + number),
                score,
                float(part.text in window),
                coverage,
                held,
                float(not fits),
                share,
            )
            found[part.text] = Candidate(
                number,
                part.text,
                part.tokens,
                coverage=coverage,
                features=features,
                share=share,
                question=part.question,
                held=held,
                fits=fits,
            )
    return _scored(query, list(found.values()), encoder)


def is_about(query: Query, candidate: Candidate) -> bool:
    """Whether a sentence with its neighbours, heading and title is about what the question asks.

    The sentence holds all words of the question, or its meaning is close. For a short question the meaning must be closer,
    and the sentence must hold half of the words. Without an encoder, every meaning counts as close. If the question depends
    on the conversation, it has too few words of its own, and every sentence passes.
    """
    if query.leans or not query.asked or candidate.held >= COMPLETE:
        return True
    if len(query.asked) > SHORT:
        return candidate.similarity >= NEAR_ENOUGH
    return candidate.held >= 0.5 and candidate.similarity >= (CLOSE_TO_NAME if query.names else CLOSE)


def _scored(query: Query, found: list[Candidate], encoder: Encoder | None) -> list[Candidate]:
    if not found:
        return []
    table = np.array([(*candidate.features, 0.0) for candidate in found])
    wanted = table[:, _TYPE]
    by_hand = np.zeros(len(found))
    if query.leans:
        # The few words of "When was it?" say little about the sentence. The wanted kind of word says more.
        by_hand += LEANING_TYPE_WEIGHT * wanted
        # What was just said answers a new question only if it holds the wanted kind of word ("Who wrote it?", "When was it?").
        by_hand -= REPEATED_WEIGHT * np.array(
            [fit == 0 and c.text.rstrip(".") in query.said for c, fit in zip(found, wanted, strict=True)]
        )
    logits = table @ SENTENCE_WEIGHTS + by_hand
    similarity = np.ones(len(found))
    if encoder is not None:
        best = np.sort(np.argsort(-logits, kind="stable")[:ENCODED])
        found, table = [found[i] for i in best], table[best]
        vectors = np.asarray(encoder.encode_passages([f"{c.question} {c.text}".strip()[:1_000] for c in found]))
        similarity = table[:, -1] = vectors @ _state(query, encoder)
        logits = table @ SENTENCE_WEIGHTS_ENCODER + by_hand[best]
    probabilities = np.exp(logits - logits.max())
    probabilities /= probabilities.sum()
    return [
        replace(found[i], probability=float(probabilities[i]), similarity=float(similarity[i]))
        for i in np.argsort(-probabilities, kind="stable")
    ]


def _state(query: Query, encoder: Encoder) -> NDArray[Any]:
    """The vector of the question, moved towards the turn before if the question depends on it."""
    texts, weights = zip(*query.texts, strict=True)
    state = np.array(weights) @ np.asarray(encoder.encode_queries(texts))
    return np.asarray(state / (np.linalg.norm(state) or 1.0))


def passage_score(document: Document) -> float:
    """The score of the retrieval; 0 if it is not a finite number."""
    try:
        score = float(document.metadata.get("score") or 0.0)
    except (TypeError, ValueError):
        return 0.0
    return score if math.isfinite(score) else 0.0


def _share(idf: dict[str, float], stems: frozenset[str]) -> float:
    """Share of the weighted words that are among some stems."""
    return sum(value for word, value in idf.items() if word in stems) / (sum(idf.values()) or 1.0)


def _part(wanted: frozenset[str], stems: frozenset[str]) -> float:
    return len(wanted & stems) / len(wanted) if wanted else 0.5


def _adjacent(query: Query, tokens: Sequence[Token]) -> float:
    if not query.pairs:
        return 0.0
    flat = [stem for token in tokens for stem in token.stems if not stem.endswith("-")]
    beside = set(itertools.pairwise(flat)) | set(zip(flat, flat[2:], strict=False))
    return sum((a, b) in beside or (b, a) in beside for a, b in query.pairs) / len(query.pairs)
