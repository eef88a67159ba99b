"""The memory of a conversation: ranks its rounds for a question (DH-RAG, Zhang et al. 2025, eq. 3-5, 11-14).

DH-RAG's clusters and chains of queries (eq. 15-24) are left out: in 800 trials with real dialogs they changed the best rounds
only seven times. All rounds of the memory are compared with the question; there are at most a few hundred.
"""

from __future__ import annotations

import logging
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import numpy as np
from cachetools import LRUCache

from langgraph_convcoa.memory.knowledge_set import ContextualKnowledgeSet, Round
from langgraph_convcoa.retrieval.encoders.base import Encoder, RecentValues, Vectors
from langgraph_convcoa.retrieval.hybrid.bm25 import idf
from langgraph_convcoa.retrieval.query.conversation_state import turn_text
from langgraph_convcoa.text.words import content_words, words

_log = logging.getLogger(__name__)
_WORD_DIMENSION = 1024
RECENT, RELEVANT = 3, 5  # A prompt gets this many last rounds, and this many relevant earlier rounds.
_PAIRS, _RECENT_PAIRS = 10, 6
_ABOUT = 0.6  # Minimum relevance (cosine plus share of words) of a round on the question's topic.
_CONVERSATIONS, _LONGEST = 64, 2_000
_CONTEXT = 0.5  # Weight of the previous pattern in the next pattern: "And in 2019?" says little by itself.
_WORD_CONTEXT = 0.7
"""Weight of a word of the previous triple; its square is the weight for the triple before that. Both weights, and the equal
weight of shared words and the cosine, were chosen on half of the dialogs of pacific and mtrag."""
_HALF_LIFE = 20.0  # Number of rounds after which the recency is half.


class TextVectors:
    """Vectors of texts; hashed content words if there is no encoder, or if it fails.

    `encoder` encodes questions, or is a function that returns the encoder; `capacity` is the number of vectors kept.
    """

    def __init__(self, encoder: Encoder | Callable[[], Encoder | None] | None = None, capacity: int = 8192) -> None:
        self._encoder, self._capacity = encoder, capacity
        self._kept = RecentValues[str, Vectors](capacity)

    @property
    def lexical(self) -> bool:
        """True if the vectors count words: there is no encoder, or it failed."""
        return self.encoder is None

    @property
    def encoder(self) -> Encoder | None:
        if callable(self._encoder) and not hasattr(self._encoder, "encode_queries"):
            self._encoder = self._encoder()
        return cast("Encoder | None", self._encoder)

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """Vectors (n, d) of n texts. New texts are encoded in one batch."""
        if (encoder := self.encoder) is None:
            found = self._kept.of(texts, word_vectors)
        else:
            try:
                found = self._kept.of(texts, lambda new: unit(np.asarray(encoder.encode_queries(new), dtype=np.float32)))
            except Exception as error:  # noqa: BLE001 - the turn goes on; the look-up itself reports a broken encoder
                _log.warning("the encoder failed on the history (%s); its words are counted instead", type(error).__name__)
                # All vectors must be of one kind, so those of the encoder are discarded.
                self._encoder, self._kept = None, RecentValues(self._capacity)
                return self(texts)
        return np.stack([found[text] for text in texts]) if len(texts) else np.zeros((0, 0), dtype=np.float32)


def word_vectors(texts: Sequence[str]) -> Vectors:
    """Hashed counts of content words, damped by their square root, (n, 1024)."""
    rows = np.zeros((len(texts), _WORD_DIMENSION), dtype=np.float32)
    for row, text in zip(rows, texts, strict=True):
        for word, count in Counter(content_words(text) or words(text)).items():
            row[zlib.crc32(word.encode()) % _WORD_DIMENSION] += count**0.5
    return unit(rows)


def unit(rows: Vectors) -> Vectors:
    """Scale vectors (..., d) to length one; a zero vector stays zero."""
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    unit: Vectors = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return unit


class Triple(NamedTuple):
    """(q_i, r_i) of eq. 3, one round: question and answer. `key` is the round's number."""

    key: int
    query: str
    response: str

    @property
    def text(self) -> str:
        return turn_text((self.query, self.response))


class Recalled(NamedTuple):
    """A triple and its relevance: cosine to its pattern plus the share of the question's words that it holds."""

    triple: Triple
    relevance: float


class DynamicHistory:
    """The triples of a conversation, ranked for a question.

    `capacity` is N of eq. 14, the number of triples kept; `alpha` weighs relevance against recency (eq. 13).
    """

    def __init__(self, capacity: int = 200, alpha: float = 0.95) -> None:
        self.capacity, self.alpha = capacity, alpha
        self.triples: list[Triple] = []
        self.patterns = np.zeros((0, 0), dtype=np.float32)
        self._words: list[dict[str, float]] = []
        self._frequencies: Counter[str] = Counter()

    def update(self, triple: Triple, vector: Vectors) -> None:
        """Add a triple with its text's vector, (d,). Beyond the capacity, drop the triple of lowest weight (eq. 11-14)."""
        pattern = vector
        words = dict.fromkeys(content_words(triple.text), 1.0)
        if self.triples:
            pattern = unit(vector + _CONTEXT * self.patterns[-1])
            before = {word: share for word, share in self._words[-1].items() if share > _WORD_CONTEXT**2}
            words = {word: _WORD_CONTEXT * share for word, share in before.items()} | words
        self.patterns = np.vstack([self.patterns, pattern]) if self.triples else pattern[None]
        self._words.append(words)
        self._frequencies.update(words.keys())
        self.triples.append(triple)
        while len(self.triples) > self.capacity:
            # The new triple always stays.
            place = int(self.weights(triple.query, vector)[:-1].argmin())
            del self.triples[place]
            self._frequencies.subtract(self._words.pop(place).keys())
            self.patterns = np.delete(self.patterns, place, axis=0)

    def relevances(self, question: str, vector: Vectors) -> Vectors:
        """Relevance of each triple to a question, (n,): the cosine to its pattern plus the share of the question's words.

        A word counts more if few triples have it. It counts less if it comes from one of the two triples before.
        """
        if not self.triples:
            return np.zeros(0, dtype=np.float32)
        n = len(self.triples)
        wanted = dict.fromkeys(content_words(question))
        rarity = {word: float(idf(n, self._frequencies[word])) for word in wanted}
        total = sum(rarity.values()) or 1.0
        shares = [sum(rarity[word] * held.get(word, 0.0) for word in wanted) / total for held in self._words]
        return np.asarray(self.patterns @ vector + np.array(shares), dtype=np.float32)

    def weights(self, question: str, vector: Vectors) -> Vectors:
        """w_i = alpha Relevance(q_i, q_t) + (1 - alpha) Recency(t_i) (eq. 13), (n,)."""
        ages = np.array([self.triples[-1].key - triple.key for triple in self.triples], dtype=np.float32)
        recency = 0.5 ** (ages / _HALF_LIFE)
        return np.asarray(self.alpha * self.relevances(question, vector) + (1 - self.alpha) * recency, dtype=np.float32)

    def retrieve(self, question: str, vector: Vectors, k: int = 5) -> list[Recalled]:
        """D_h of eq. 5: the k triples with the greatest weight, the newest first among equals."""
        relevance, weights = self.relevances(question, vector), self.weights(question, vector)
        best = sorted(range(len(self.triples)), key=lambda place: (-float(weights[place]), -place))[:k]
        return [Recalled(self.triples[place], float(relevance[place])) for place in best]


class ConversationMemory:
    """The history memory of conversations, made from their knowledge sets.

    It stores nothing that is not in the knowledge set. Its vectors are cached in the process and rebuilt after a restart. A
    turn encodes only the new round, however long the conversation is. `encoder` encodes questions, or is a function that
    returns the encoder. Without an encoder, words are compared.
    """

    def __init__(self, encoder: Encoder | Callable[[], Encoder | None] | None = None) -> None:
        self.vectors = TextVectors(encoder)
        self._built: LRUCache[tuple[int, int], DynamicHistory] = LRUCache(_CONVERSATIONS)
        self._lock = threading.Lock()

    def recollect(
        self,
        knowledge: ContextualKnowledgeSet,
        question: str,
        pairs: Sequence[tuple[str, str]],
        *,
        budget_tokens: int = 1500,
        capacity: int = 200,
    ) -> tuple[str, list[tuple[str, str]]]:
        """The view of the knowledge set for a prompt ("" if it is empty), and the history for retrieval and verification.

        `pairs` are the last turns of the conversation, oldest first. `capacity` is the number of rounds in the history memory.
        """
        found = self.relevant(knowledge, question, k=RELEVANT + RECENT, capacity=capacity)
        last = [entry["round"] for entry in knowledge.rounds[-RECENT:]]
        early = [recalled.triple.key for recalled in found if recalled.triple.key not in last][:RELEVANT]
        # First the last two rounds, so that a follow-up is understood; then the relevant rounds.
        wanted = [*last[::-1][:2], *early, *last[::-1][2:]]
        return knowledge.view(budget_tokens, wanted), _history(knowledge, pairs, found)

    def relevant(
        self, knowledge: ContextualKnowledgeSet, question: str, k: int = RELEVANT, capacity: int = 200
    ) -> list[Recalled]:
        """The k earlier rounds that are most relevant to a question, best first."""
        rounds = knowledge.rounds
        if not rounds or k < 1:
            return []
        keys = _keys(rounds, capacity)
        with self._lock:
            known = next((n for n in range(len(rounds), 0, -1) if keys[n] in self._built), 0)
        triples = [_triple(entry) for entry in rounds[known:]]
        *new, vector = self.vectors([*(triple.text for triple in triples), question])
        with self._lock:
            # If another turn has taken the history meanwhile, it is rebuilt.
            history = self._built.pop(keys[known], None) if known else DynamicHistory(capacity)
            # If the encoder has failed since, the dimensions differ.
            if history is not None and history.patterns.shape[1] in (0, len(vector)):
                for triple, row in zip(triples, new, strict=True):
                    history.update(triple, row)
                self._built[keys[-1]] = history
                return history.retrieve(question, vector, k)
        return self.relevant(knowledge, question, k, capacity)

    def topic(self, knowledge: ContextualKnowledgeSet, question: str, *, leans: bool, capacity: int = 200) -> set[int]:
        """Numbers of the rounds on a question's topic, and the last round if the question depends on the conversation."""
        found = self.relevant(knowledge, question, RELEVANT + RECENT, capacity)
        rounds = {recalled.triple.key for recalled in found if recalled.relevance >= _ABOUT}
        return rounds | ({knowledge.rounds[-1]["round"]} if leans and knowledge.rounds else set())


def _history(
    knowledge: ContextualKnowledgeSet, pairs: Sequence[tuple[str, str]], found: Sequence[Recalled]
) -> list[tuple[str, str]]:
    """All turns of a short conversation. For a long one, earlier turns on the question's topic, then the last turns."""
    if len(knowledge.rounds) <= _PAIRS:
        return list(pairs)
    recent = list(pairs)[-_RECENT_PAIRS:]
    before = {entry["round"]: entry for entry in knowledge.rounds[: -len(recent) or None]}
    keys = [r.triple.key for r in found if r.triple.key in before and r.relevance >= _ABOUT][: _PAIRS - _RECENT_PAIRS]
    early = [(before[key]["original_question"][:_LONGEST], before[key]["answer"][:_LONGEST]) for key in sorted(keys)]
    return [*early, *recent]


def _keys(rounds: Sequence[Round], capacity: int) -> list[tuple[int, int]]:
    """Cache keys of the history after 0, 1, ... rounds, made of the capacity and a hash of the rounds."""
    keys = [(capacity, 0)]
    for entry in rounds:
        content = (entry["round"], entry["original_question"], entry["optimized_question"], entry["answer"])
        keys.append((capacity, hash((keys[-1][1], content))))
    return keys


def _triple(entry: Round) -> Triple:
    query = entry["original_question"]
    if entry["optimized_question"].strip() not in ("", query.strip()):
        query = f"{query} {entry['optimized_question']}"
    return Triple(entry["round"], query[:_LONGEST], entry["answer"])
