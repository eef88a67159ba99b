"""Training examples as vectors of the frozen encoder, with hard negatives of the untrained retriever."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from langgraph_convcoa.retrieval.documents.split import document_id
from langgraph_convcoa.retrieval.encoders.base import DelegatingEncoder, Encoder, Vectors
from langgraph_convcoa.retrieval.encoders.cache import PatternCache, encode_texts
from langgraph_convcoa.retrieval.memory_corpus import Memory, build_memory
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.retrieval.query.conversation_state import conversational_state, turn_text
from langgraph_convcoa.retrieval.query.query_text import QueryText
from langgraph_convcoa.retrieval.scoring.patterns import Patterns
from langgraph_convcoa.retrieval.scoring.topk import search
from langgraph_convcoa.training.data import TrainingData

HISTORY_WEIGHT = 0.6
"""lambda of the untrained retriever."""
HISTORY_BETA = 1.0
"""beta_h of the untrained retriever."""

_HARD = 20
_AT_ONCE = 256


@dataclass(frozen=True)
class EncodedExample:
    """An example as row numbers of vectors and numbers of memory sets; -1 for none."""

    question: int  # Row of its vector.
    turns: tuple[int, ...]  # Rows of the earlier turns' vectors, oldest first.
    rewrite: int  # Row of the vector of its rewrite.
    gold: tuple[int, ...]  # Memory sets that answer it, and copies of their texts.
    positive: int = -1  # The gold set with the best score for the rewrite, or for the untrained state.
    hard: tuple[int, ...] = ()  # Wrong sets with the best scores of the untrained retriever.


@dataclass(frozen=True, eq=False)
class EncodedData:
    """Training data with the vectors that its examples point into."""

    data: TrainingData
    examples: Sequence[EncodedExample]  # In the order of `data.examples`.
    texts: Vectors  # (t, d).
    memory: Memory
    states: Vectors  # State of each example in the untrained retriever, (n, d).

    @property
    def patterns(self) -> Patterns:
        """The patterns of the memory."""
        return self.memory.patterns


@dataclass(frozen=True)
class QueryItem:
    """A question in conversation as the query encoder reads it; -1 for none."""

    ids: tuple[int, ...]  # Token ids of the question and its turns.
    gold: tuple[int, ...] = ()  # Memory sets that answer it.
    positive: int = -1  # One of `gold`.
    hard: tuple[int, ...] = ()  # Wrong sets with the best scores of the untrained retriever.
    state: int = -1  # Row of its example in `EncodedData`.
    target: int = -1  # Row of its target: the vector of the question in full.


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


def query_items(text: QueryText, found: EncodedData) -> list[QueryItem]:
    """The examples that have a gold passage, as token ids."""
    asked = found.data.examples
    ids = text.ids([one.question.strip() for one in asked], [one.history for one in asked])
    return [
        QueryItem(tuple(tokens), example.gold, example.positive, example.hard, row)
        for row, (tokens, example) in enumerate(zip(ids, found.examples, strict=True))
        if example.positive >= 0
    ]


def fingerprint(*parts: object) -> str:
    """A hash of encoder and data, which must be equal when a training is resumed."""
    return hashlib.sha256(repr(parts).encode("utf-8", "replace")).hexdigest()[:16]


def _gold_sets(memory: Memory) -> Callable[[Sequence[str]], tuple[int, ...]]:
    """Return a function that finds the memory sets of documents and of copies of their texts, which are no negatives."""
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
    """Encodes all texts as queries. The name keeps them apart in the cache: passages may be encoded differently."""

    @property
    def name(self) -> str:
        return f"{self.encoder.name}|queries"

    def encode_passages(self, texts: Sequence[str]) -> Vectors:
        return self.encoder.encode_queries(texts)
