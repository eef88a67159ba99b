"""Ranking of the evidence's sentences by how likely they hold the answer: a small linear model over plain features."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from langchain_core.documents import Document
from numpy.typing import NDArray

from langgraph_convcoa.reasoning.extractive.answer_kind import may_answer
from langgraph_convcoa.reasoning.extractive.query import Query
from langgraph_convcoa.reasoning.extractive.reading import ROOT, Token, read_passage, with_roots
from langgraph_convcoa.reasoning.extractive.weights import SENTENCE_FEATURES, SENTENCE_WEIGHTS, SENTENCE_WEIGHTS_ENCODER
from langgraph_convcoa.text.questions import fits

ENCODED = 8
"""Sentences whose similarity of meaning is asked for; the words choose them."""
LEANING_TYPE_WEIGHT = 2.0
REPEATED_WEIGHT = 1.5
"""Set by hand, for questions that depend on the conversation: SQuAD has none."""
LACKING_WEIGHT = 1.5
"""What it costs a sentence, with its neighbours and title, that they lack words of the question where others hold all
(`COMPLETE`). Set by hand, for a few passages about one thing: "opened" must not stand for "closed" because it came first."""
COMPLETE = 0.99
SHORT, CLOSE, NEAR_ENOUGH = 3, 0.6, 0.3
"""Words of a short question, and the least cosine of a sentence that lacks a word of a short or of a longer question."""
UNFIT_WEIGHT = 2.0
"""What it costs a sentence to lack the name, time or number that is asked for."""
_NEAR = SENTENCE_FEATURES.index("question words in the sentence and its neighbours")
_TYPE = SENTENCE_FEATURES.index("a word of the wanted type")


class SentenceEncoder(Protocol):
    """What ranks by meaning: vectors of unit length, one a row."""

    def encode_queries(self, texts: Sequence[str], /) -> NDArray[Any]: ...

    def encode_passages(self, texts: Sequence[str], /) -> NDArray[Any]: ...


@dataclass(frozen=True)
class Candidate:
    """A sentence of the evidence.

    `document` counts the evidence from 0; `coverage` is the share of the question's words that it or its passage holds, in
    [0, 1]; `probability` that it holds the answer; `share` of what the question names that its passage holds; `question` that
    it stands under; `held`: share of the question's words in it, its neighbours, heading and title; `fits`: it holds a name,
    time or number if one is asked for; `similarity` of meaning, 1 without an encoder.
    """

    document: int
    text: str
    tokens: tuple[Token, ...]
    coverage: float
    probability: float = 0.0
    features: tuple[float, ...] = ()
    share: float = 1.0
    question: str = ""
    held: float = 1.0
    fits: bool = True
    similarity: float = 1.0


def rank_sentences(query: Query, evidence: Sequence[Document], encoder: SentenceEncoder | None = None) -> list[Candidate]:
    """The sentences of the evidence, the one most likely to hold the answer first; the same text is kept once.

    Evidence comes best first; `score`, `quote` and `title` in its metadata are used where they are. An encoder adds the
    similarity of meaning for the sentences that the words put in front.
    """
    passages = [read_passage(document) for document in evidence]
    frequency = Counter(stem for passage in passages for part in passage.parts for stem in part.stems)
    count = sum(len(passage.parts) for passage in passages)
    idf = {word: weight * math.log(1 + (count + 1) / (frequency[word] + 0.5)) for word, weight in query.weights.items()}
    about = {word: value for word, value in idf.items() if word in query.about}
    total, total_about = sum(idf.values()) or 1.0, sum(about.values()) or 1.0
    known = with_roots(sorted(query.asked))
    found: list[Candidate] = []
    seen: set[str] = set()
    for number, passage in enumerate(passages):
        in_passage = _covered(idf, passage.stems) / total
        for index, part in enumerate(passage.parts):
            if part.text in seen:
                continue
            seen.add(part.text)
            text, tokens = part.text, part.tokens
            stems = part.stems | part.about if part.question else part.stems
            near = passage.around(index)
            features = (
                _covered(idf, stems) / total,
                _covered(idf, near) / total,
                in_passage,
                _adjacent(query, tokens),
                _part(query.names, stems),
                _part(query.names, passage.stems),
                _type_fit(query, tokens),
                float(number == 0),
                1.0 / (1 + number),
                float(bool(passage.quote) and (text in passage.quote or passage.quote in text)),
                math.log(1 + len(tokens)),
            )
            coverage = _covered(about, passage.stems) / total_about
            held = sum(word in near or f"{word[:ROOT]}-" in near for word in query.asked) / max(1, len(query.asked))
            fits_kind = bool(part.question and held >= COMPLETE) or may_answer(query.kind, tokens, known)
            found.append(
                Candidate(number, text, tokens, coverage, features=features, question=part.question, held=held, fits=fits_kind)
            )
    return _scored(query, found, encoder)


def is_about(query: Query, candidate: Candidate) -> bool:
    """Whether a sentence with its neighbours, heading and title is about what the question asks.

    It holds all words of the question, or its meaning is close. The fewer words a question has, the closer it must be, for
    each of them matters. Without an encoder half of the words are enough.
    """
    if not query.asked or candidate.held >= COMPLETE:
        return True
    if len(query.asked) > SHORT:
        return candidate.similarity >= NEAR_ENOUGH
    return candidate.held >= 0.5 and candidate.similarity >= CLOSE


def _scored(query: Query, found: list[Candidate], encoder: SentenceEncoder | None) -> list[Candidate]:
    if not found:
        return []
    plain = np.array([candidate.features for candidate in found])
    table = np.column_stack((plain, plain[:, 0] - plain[:, 0].max(), np.zeros((len(found), 2)), np.ones(len(found))))
    # The few words of "When was it?" say little of the sentence; the wanted type must.
    complete = plain[:, _NEAR].max() >= COMPLETE
    typed = LACKING_WEIGHT * complete * (plain[:, _NEAR] - plain[:, _NEAR].max())
    typed = typed - UNFIT_WEIGHT * np.array([not candidate.fits for candidate in found])
    if query.leans:
        typed += LEANING_TYPE_WEIGHT * (plain[:, _TYPE] - plain[:, _TYPE].max())
        # What was just said answers a new question only where it holds the wanted type ("Who wrote it?", "When was it?").
        typed -= REPEATED_WEIGHT * np.array(
            [fit == 0 and c.text.rstrip(".") in query.said for c, fit in zip(found, plain[:, _TYPE], strict=True)]
        )
    logits = table @ SENTENCE_WEIGHTS + typed
    similarity = np.ones(len(found))
    if encoder is not None:
        best = np.sort(np.argsort(-logits, kind="stable")[:ENCODED])
        found, table = [found[i] for i in best], table[best]
        vectors = np.asarray(encoder.encode_passages([f"{c.question} {c.text}".strip()[:1_000] for c in found]))
        similarity = vectors @ _state(query, encoder)
        table[:, -3], table[:, -2] = similarity, similarity - similarity.max()
        logits = table @ SENTENCE_WEIGHTS_ENCODER + typed[best]
    probabilities = 1 / (1 + np.exp(-logits))
    return [
        replace(found[i], probability=float(probabilities[i]), similarity=float(similarity[i]))
        for i in np.argsort(-probabilities, kind="stable")
    ]


def _state(query: Query, encoder: SentenceEncoder) -> NDArray[Any]:
    """The vector of the question, moved towards the turn before where it depends on that."""
    texts, weights = zip(*query.texts, strict=True)
    state = np.array(weights) @ np.asarray(encoder.encode_queries(texts))
    return np.asarray(state / (np.linalg.norm(state) or 1.0))


def passage_score(document: Document) -> float:
    """The score that the retrieval gave a document; 0 where there is none that is a finite number."""
    try:
        score = float(document.metadata.get("score") or 0.0)
    except (TypeError, ValueError):
        return 0.0
    return score if math.isfinite(score) else 0.0


def _covered(idf: dict[str, float], stems: frozenset[str]) -> float:
    return sum(value for word, value in idf.items() if word in stems)


def _part(wanted: frozenset[str], stems: frozenset[str]) -> float:
    return len(wanted & stems) / len(wanted) if wanted else 0.5


def _adjacent(query: Query, tokens: Sequence[Token]) -> float:
    if not query.pairs:
        return 0.0
    flat = [stem for token in tokens for stem in token.stems if not stem.endswith("-")]
    beside = set(itertools.pairwise(flat)) | set(zip(flat, flat[2:], strict=False))
    return sum((a, b) in beside or (b, a) in beside for a, b in query.pairs) / len(query.pairs)


def _type_fit(query: Query, tokens: Sequence[Token]) -> float:
    new = ((n, token) for n, token in enumerate(tokens) if not any(stem in query.weights for stem in token.stems))
    return float(query.kind != "thing" and any(fits(query.kind, token.text, n == 0) for n, token in new))
