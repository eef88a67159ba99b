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

from langgraph_convcoa.reasoning.extractive.query import Query, Token, tokens_of, with_roots
from langgraph_convcoa.reasoning.extractive.weights import SENTENCE_FEATURES, SENTENCE_WEIGHTS, SENTENCE_WEIGHTS_ENCODER
from langgraph_convcoa.text.kept import kept_by_characters
from langgraph_convcoa.text.questions import fits
from langgraph_convcoa.text.words import content_words, sentences

MAX_SENTENCE = 80
"""Tokens of the longest piece that is taken as a sentence; longer ones are cut."""
ENCODED = 8
"""Sentences whose similarity of meaning is asked for; the words choose them."""
LEANING_TYPE_WEIGHT = 2.0
REPEATED_WEIGHT = 1.5
"""Set by hand, for questions that depend on the conversation: SQuAD has none."""
LACKING_WEIGHT = 1.5
"""What it costs a sentence, with its neighbours and title, that they lack words of the question where others hold all
(`COMPLETE`). Set by hand, for a few passages about one thing: "opened" must not stand for "closed" because it came first."""
COMPLETE = 0.99
_KEPT_CHARACTERS = 500_000
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
    [0, 1]; `probability` that it holds the answer; `share` of what the question names that its passage holds.
    """

    document: int
    text: str
    tokens: tuple[Token, ...]
    coverage: float
    probability: float = 0.0
    features: tuple[float, ...] = ()
    share: float = 1.0


def rank_sentences(query: Query, evidence: Sequence[Document], encoder: SentenceEncoder | None = None) -> list[Candidate]:
    """The sentences of the evidence, the one most likely to hold the answer first; the same text is kept once.

    Evidence comes best first; `score`, `quote` and `title` in its metadata are used where they are. An encoder adds the
    similarity of meaning for the sentences that the words put in front.
    """
    passages = [_passage(document) for document in evidence]
    frequency = Counter(stem for passage in passages for _, _, stems in passage.sentences for stem in stems)
    count = sum(len(passage.sentences) for passage in passages)
    idf = {word: weight * math.log(1 + (count + 1) / (frequency[word] + 0.5)) for word, weight in query.weights.items()}
    about = {word: value for word, value in idf.items() if word in query.about}
    total, total_about = sum(idf.values()) or 1.0, sum(about.values()) or 1.0
    found: list[Candidate] = []
    seen: set[str] = set()
    for number, passage in enumerate(passages):
        in_passage = _covered(idf, passage.stems) / total
        for index, (text, tokens, stems) in enumerate(passage.sentences):
            if text in seen:
                continue
            seen.add(text)
            near = passage.around(index)
            coverage = _covered(idf, stems) / total
            features = (
                coverage,
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
            found.append(Candidate(number, text, tokens, _covered(about, passage.stems) / total_about, features=features))
    return _scored(query, found, encoder)


def _scored(query: Query, found: list[Candidate], encoder: SentenceEncoder | None) -> list[Candidate]:
    if not found:
        return []
    plain = np.array([candidate.features for candidate in found])
    table = np.column_stack((plain, plain[:, 0] - plain[:, 0].max(), np.zeros((len(found), 2)), np.ones(len(found))))
    # The few words of "When was it?" say little of the sentence; the wanted type must.
    complete = plain[:, _NEAR].max() >= COMPLETE
    typed = LACKING_WEIGHT * complete * (plain[:, _NEAR] - plain[:, _NEAR].max())
    if query.leans:
        typed += LEANING_TYPE_WEIGHT * (plain[:, _TYPE] - plain[:, _TYPE].max())
        # What was just said answers a new question only where it holds the wanted type ("Who wrote it?", "When was it?").
        typed -= REPEATED_WEIGHT * np.array(
            [fit == 0 and c.text.rstrip(".") in query.said for c, fit in zip(found, plain[:, _TYPE], strict=True)]
        )
    logits = table @ SENTENCE_WEIGHTS + typed
    if encoder is not None:
        best = np.sort(np.argsort(-logits, kind="stable")[:ENCODED])
        found, table = [found[i] for i in best], table[best]
        vectors = np.asarray(encoder.encode_passages([candidate.text[:1_000] for candidate in found]))
        similarity = vectors @ _state(query, encoder)
        table[:, -3], table[:, -2] = similarity, similarity - similarity.max()
        logits = table @ SENTENCE_WEIGHTS_ENCODER + typed[best]
    probabilities = 1 / (1 + np.exp(-logits))
    return [
        replace(found[i], probability=float(probabilities[i]), features=tuple(table[i].tolist()))
        for i in np.argsort(-probabilities, kind="stable")
    ]


def _state(query: Query, encoder: SentenceEncoder) -> NDArray[Any]:
    """The vector of the question, moved towards the turn before where it depends on that."""
    texts, weights = zip(*query.texts, strict=True)
    state = np.array(weights) @ np.asarray(encoder.encode_queries(texts))
    return np.asarray(state / (np.linalg.norm(state) or 1.0))


@dataclass(frozen=True)
class _Passage:
    sentences: list[tuple[str, tuple[Token, ...], frozenset[str]]]
    title: frozenset[str]
    stems: frozenset[str]
    quote: str

    def around(self, index: int) -> frozenset[str]:
        """Stems of a sentence, of the two beside it and of the title."""
        return self.title.union(*(stems for _, _, stems in self.sentences[max(0, index - 1) : index + 2]))


def passage_score(document: Document) -> float:
    """The score that the retrieval gave a document; 0 where there is none that is a finite number."""
    try:
        score = float(document.metadata.get("score") or 0.0)
    except (TypeError, ValueError):
        return 0.0
    return score if math.isfinite(score) else 0.0


def _passage(document: Document) -> _Passage:
    metadata = document.metadata
    parts = _sentences(document.page_content)
    title = frozenset(with_roots(content_words(str(metadata.get("title") or ""))))
    stems = title.union(*(part[2] for part in parts))
    return _Passage(parts, title, stems, " ".join(str(metadata.get("quote") or "").split()))


@kept_by_characters(_KEPT_CHARACTERS)
def _sentences(text: str) -> list[tuple[str, tuple[Token, ...], frozenset[str]]]:
    """Kept for passages that come again: for the answer after its sub-questions, and for what is asked next."""
    cut = [piece for sentence in sentences(text) for piece in _pieces(sentence.text)]
    return [(piece, tokens, frozenset(stem for token in tokens for stem in token.stems)) for piece, tokens in cut]


def _pieces(text: str) -> list[tuple[str, tuple[Token, ...]]]:
    text = " ".join(text.split())
    tokens = tokens_of(text)
    if len(tokens) <= MAX_SENTENCE:
        return [(text, tokens)] if tokens else []
    blocks = (tokens[first : first + MAX_SENTENCE] for first in range(0, len(tokens), MAX_SENTENCE))
    return [(piece, tokens_of(piece)) for block in blocks if (piece := text[block[0].start : block[-1].end])]


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
