"""Training examples as vectors of the frozen encoder, with hard negatives of the untrained retriever."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from langgraph_convcoa.retrieval.documents.split import document_id
from langgraph_convcoa.retrieval.encoders.base import Encoder, Vectors
from langgraph_convcoa.retrieval.encoders.cache import PatternCache, encode_texts
from langgraph_convcoa.retrieval.encoders.wrappers import DelegatingEncoder
from langgraph_convcoa.retrieval.memory_corpus import Memory, build_memory
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.retrieval.query.conversation_state import conversational_state, turn_text
from langgraph_convcoa.retrieval.query.model import RetrieverModel
from langgraph_convcoa.retrieval.query.query_text import QueryText
from langgraph_convcoa.retrieval.scoring.patterns import Patterns
from langgraph_convcoa.retrieval.scoring.topk import search
from langgraph_convcoa.training.data import TrainingData
from langgraph_convcoa.training.losses import Ranked

HISTORY_WEIGHT = 0.6
"""lambda of the untrained retriever."""
HISTORY_BETA = 1.0
"""beta_h of the untrained retriever."""

_HARD = 20
_AT_ONCE = 256


@dataclass(frozen=True)
class EncodedExample:
    """An example as numbers of rows and of memory sets, -1 where there is none."""

    question: int  # Row of its vector.
    turns: tuple[int, ...]  # Rows of the earlier turns' vectors, oldest first.
    rewrite: int  # Row of the vector of its rewrite.
    gold: tuple[int, ...]  # Memory sets that answer it, copies of their texts included.
    positive: int = -1  # The one that the untrained retriever scores best for its rewrite, else in its conversation.
    hard: tuple[int, ...] = ()  # Sets that the untrained retriever ranks best although they do not answer it.
    encoded: int = -1  # Row of the query encoder's vector.


@dataclass(frozen=True, eq=False)
class EncodedData:
    """Training data with the vectors that its examples point into."""

    data: TrainingData
    examples: Sequence[EncodedExample]  # In the order of the data's.
    texts: Vectors  # (t, d).
    memory: Memory
    states: Vectors  # State of each example in the untrained retriever, (n, d).
    encoded: Vectors | None = None  # Vectors of a query encoder, (m, d), that the states are mixed with.
    state_weight: float = 1.0  # g of the state with a query encoder (`mixed_states`).
    gate: float = 0.0  # p of it.

    @property
    def patterns(self) -> Patterns:
        """Of the memory."""
        return self.memory.patterns


@dataclass(frozen=True)
class QueryItem:
    """A question in conversation as an encoder that is trained reads it; -1 where there is none."""

    ids: tuple[int, ...]  # Token ids of the question and its turns.
    gold: tuple[int, ...] = ()  # Memory sets that answer it.
    positive: int = -1  # One of them.
    hard: tuple[int, ...] = ()  # Sets that the untrained retriever ranks best although they do not answer it.
    state: int = -1  # Row of its example.
    target: int = -1  # Row of the vector of the question in full.


def encode_examples(
    data: TrainingData, encoder: Encoder, *, cache: PatternCache | None = None, progress: Progress = False
) -> EncodedData:
    """Encode the texts of training data and mine hard negatives with the untrained retriever."""
    memory = build_memory(data.passages, encoder, cache=cache, progress=progress)
    rows: dict[str, int] = {}

    def row(text: str) -> int:
        return rows.setdefault(text, len(rows))

    gold = _gold_sets(memory)
    examples = [
        EncodedExample(
            row(example.question.strip()),
            tuple(row(text) for text in map(turn_text, example.history) if text),
            row(example.rewrite.strip()) if example.rewrite.strip() else -1,
            gold(example.gold),
        )
        for example in data.examples
    ]
    texts = encode_texts(AsQueries(encoder), list(rows), cache, progress)
    states = np.stack(
        [conversational_state(texts[one.question], texts[list(one.turns)], HISTORY_WEIGHT, HISTORY_BETA) for one in examples]
    )
    mined: list[EncodedExample] = []
    for start in range(0, len(examples), _AT_ONCE):
        part, at = examples[start : start + _AT_ONCE], states[start : start + _AT_ONCE]
        found = search(memory.patterns, at, k=_HARD + max(len(example.gold) for example in part))
        for example, state, ranking in zip(part, at, found, strict=True):
            asked = state if example.rewrite < 0 else texts[example.rewrite]
            hard = [number for number in ranking.indices.tolist() if number not in example.gold][:_HARD]
            mined.append(replace(example, positive=_best(memory.patterns, asked, example.gold), hard=tuple(hard)))
    return EncodedData(data, mined, texts, memory, states)


def with_query_encoder(found: EncodedData, model: RetrieverModel, *, progress: Progress = False) -> EncodedData:
    """The data with what a model's query encoder, which is not trained any more, makes of questions with a history."""
    assert model.query_encoder is not None
    rows = [row for row, example in enumerate(found.examples) if example.turns]
    vectors = np.zeros((len(rows), found.texts.shape[1]), dtype=np.float32)
    with track(progress, len(rows), "Reading") as advance:
        for start in range(0, len(rows), _AT_ONCE):
            part = [found.data.examples[row] for row in rows[start : start + _AT_ONCE]]
            turns = [[(asked.strip(), answer.strip()) for asked, answer in one.history] for one in part]
            questions = [one.question.strip() for one in part]
            vectors[start : start + len(part)] = model.query_encoder.encode(questions, turns)
            advance(len(part))
    places = {row: place for place, row in enumerate(rows)}
    examples = [replace(example, encoded=places.get(row, -1)) for row, example in enumerate(found.examples)]
    return replace(found, examples=examples, encoded=vectors, state_weight=model.state_weight, gate=model.gate)


def query_items(text: QueryText, found: EncodedData) -> list[QueryItem]:
    """The examples that have a gold passage, as token ids."""
    asked = found.data.examples
    ids = text.ids([one.question.strip() for one in asked], [one.history for one in asked])
    return [
        QueryItem(tuple(tokens), example.gold, example.positive, example.hard, row)
        for row, (tokens, example) in enumerate(zip(ids, found.examples, strict=True))
        if example.positive >= 0
    ]


def reciprocal_rank(
    patterns: Patterns,
    states: Vectors,
    items: Sequence[Ranked],
    *,
    beta: float = 10.0,
    passage_weight: float = 1.0,
) -> float:
    """The mean reciprocal rank of the best gold memory set among all; beyond the hundredth it counts as not found."""
    found = search(patterns, states, k=100, beta=beta, passage_weight=passage_weight)
    ranks = [np.flatnonzero(np.isin(ranking.indices, item.gold)) for ranking, item in zip(found, items, strict=True)]
    return float(np.mean([1 / (1 + rank[0]) if len(rank) else 0.0 for rank in ranks]))


def fingerprint(*parts: object) -> str:
    """A hash of what a training is of, for its checkpoint: encoder, data, settings.

    Example:
        >>> fingerprint("some/encoder", [("When?", ("p1",))])
        '1b2f7ced216f6f8e'
    """
    digest = hashlib.sha256()
    for part in parts:
        digest.update(repr(part).encode("utf-8", "replace"))
    return digest.hexdigest()[:16]


def _gold_sets(memory: Memory) -> Callable[[Sequence[str]], tuple[int, ...]]:
    """The memory sets of documents, and those of others with the same text: a copy of what answers is no negative."""
    sets: dict[str, list[int]] = {}
    copies: dict[str, list[int]] = {}
    for number, passage in enumerate(memory.passages):
        sets.setdefault(document_id(passage), []).append(number)
        copies.setdefault(passage.page_content, []).append(number)

    def found(gold: Sequence[str]) -> tuple[int, ...]:
        own = [number for identity in gold for number in sets.get(identity, ())]
        same = (copy for number in own for copy in copies[memory.passages[number].page_content])
        return tuple(dict.fromkeys([*own, *same]))

    return found


def _best(patterns: Patterns, state: Vectors, sets: Sequence[int]) -> int:
    if len(sets) < 2:
        return sets[0] if sets else -1
    chosen = np.array(sets, dtype=np.int64)
    return int(chosen[search(patterns.select(chosen), state[None], k=1)[0].indices[0]])


class AsQueries(DelegatingEncoder):
    """Queries through the cache of patterns, apart from passages, which an encoder may encode in another way."""

    @property
    def name(self) -> str:
        return f"{self.encoder.name}|queries"

    def encode_passages(self, texts: Sequence[str], progress: Progress = False) -> Vectors:
        return self.encoder.encode_queries(texts)
