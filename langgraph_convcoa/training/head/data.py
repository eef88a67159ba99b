"""Examples as frozen vectors: everything that a head is trained on is encoded once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from langgraph_convcoa.retrieval.documents.split import document_id
from langgraph_convcoa.retrieval.encoders.base import Encoder, Vectors
from langgraph_convcoa.retrieval.encoders.cache import PatternCache, encode_patterns
from langgraph_convcoa.retrieval.encoders.wrappers import DelegatingEncoder
from langgraph_convcoa.retrieval.memory import Memory, build_memory
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.retrieval.query.conversation_state import conversational_state, turn_text
from langgraph_convcoa.retrieval.query.query_encoder import QueryEncoder
from langgraph_convcoa.retrieval.scoring.patterns import Patterns
from langgraph_convcoa.retrieval.scoring.topk import search
from langgraph_convcoa.training.data import TrainingData, TrainingExample

_HARD = 20
_AT_ONCE = 256


@dataclass(frozen=True)
class HeadExample:
    """An example as numbers of rows and of memory sets.

    Attributes:
        question: Row of its vector.
        turns: Rows of the earlier turns' vectors, oldest first.
        rewrite: Row of the vector of its rewrite, -1 where none is known.
        gold: Numbers of the memory sets that answer it, copies of their texts included.
        positive: The one of them that the untrained retriever scores best for its rewrite, or in its conversation where none
            is known; -1 where there is none.
        hard: Numbers of the sets that the untrained retriever ranks best although they do not answer it.
        encoded: Row of what a query encoder makes of it, -1 where there is none.
    """

    question: int
    turns: tuple[int, ...]
    rewrite: int
    gold: tuple[int, ...]
    positive: int
    hard: tuple[int, ...]
    encoded: int = -1


@dataclass(frozen=True, eq=False)
class HeadVectors:
    """What examples point into.

    Attributes:
        texts: Vectors of texts, (t, d).
        memory: The memory sets that are searched.
        encoded: Vectors of a query encoder, (n, d); None where the head stands by itself.
        state_weight: g of the state with a query encoder, and p of its gate (`mixed_states`).
        gate: p.
    """

    texts: Vectors
    memory: Memory
    encoded: Vectors | None = None
    state_weight: float = 1.0
    gate: float = 0.0

    @property
    def patterns(self) -> Patterns:
        """Of the memory."""
        return self.memory.patterns

    def untrained_states(self, examples: Sequence[HeadExample], history_weight: float, history_beta: float) -> Vectors:
        """The state of each example in the untrained retriever, (n, d)."""
        rows = [
            conversational_state(self.texts[example.question], self.texts[list(example.turns)], history_weight, history_beta)
            for example in examples
        ]
        return np.stack(rows)


def encode_examples(
    data: TrainingData,
    encoder: Encoder,
    *,
    history_weight: float = 0.6,
    history_beta: float = 1.0,
    beta: float = 10.0,
    passage_weight: float = 1.0,
    cache: PatternCache | None = None,
    progress: Progress = False,
) -> tuple[HeadVectors, list[HeadExample]]:
    """Encode the texts of training data and mine hard negatives with the untrained retriever.

    Args:
        data: Examples and passages.
        encoder: The frozen encoder.
        history_weight: Of the untrained retriever, and so on.
        history_beta: See `HopfieldRetriever`.
        beta: See `HopfieldRetriever`.
        passage_weight: See `HopfieldRetriever`.
        cache: Where vectors are kept between runs.
        progress: A bar, a callback or nothing while encoding.

    Raises:
        RetrievalError: The encoder's vectors cannot be used.
    """
    memory = build_memory(data.passages, encoder, cache=cache, progress=progress)
    rows: dict[str, int] = {}

    def row(text: str) -> int:
        return rows.setdefault(text, len(rows))

    numbered = [
        (
            row(example.question.strip()),
            tuple(row(text) for text in map(turn_text, example.history) if text),
            row(example.rewrite.strip()) if example.rewrite.strip() else -1,
        )
        for example in data.examples
    ]
    texts = encode_patterns(AsQueries(encoder), list(rows), cache, progress)
    gold = _gold_sets(memory)
    bare = [
        HeadExample(question, turns, rewrite, gold(example.gold), -1, ())
        for (question, turns, rewrite), example in zip(numbered, data.examples, strict=True)
    ]
    vectors = HeadVectors(texts, memory)
    states = vectors.untrained_states(bare, history_weight, history_beta)
    mined: list[HeadExample] = []
    for start in range(0, len(bare), _AT_ONCE):
        part, at = bare[start : start + _AT_ONCE], states[start : start + _AT_ONCE]
        most = max(len(example.gold) for example in part)
        found = search(memory.patterns, at, k=_HARD + most, beta=beta, passage_weight=passage_weight)
        for example, state, ranking in zip(part, at, found, strict=True):
            asked = state if example.rewrite < 0 else texts[example.rewrite]
            hard = [number for number in ranking.indices.tolist() if number not in example.gold][:_HARD]
            best = _best(memory.patterns, asked, example.gold, beta, passage_weight)
            mined.append(HeadExample(example.question, example.turns, example.rewrite, example.gold, best, tuple(hard)))
    return vectors, mined


def with_query_encoder(
    vectors: HeadVectors,
    encoded: Sequence[HeadExample],
    examples: Sequence[TrainingExample],
    query_encoder: QueryEncoder,
    state_weight: float,
    gate: float = 0.0,
    *,
    bfloat16: bool = False,
    progress: Progress = False,
) -> tuple[HeadVectors, list[HeadExample]]:
    """The vectors and examples of a head that stands on a query encoder, which is not trained any more.

    Args:
        vectors: Of `encode_examples`, as are the next.
        encoded: n examples as numbers.
        examples: The same as texts.
        query_encoder: Reads those with a history.
        state_weight: g of the state.
        gate: p of its gate.
        bfloat16: What the query encoder computes in.
        progress: A bar, a callback or nothing while it reads.
    """
    rows = [row for row, example in enumerate(encoded) if example.turns]
    found = np.zeros((len(rows), vectors.texts.shape[1]), dtype=np.float32)
    with track(progress, len(rows), "Reading") as advance:
        for start in range(0, len(rows), _AT_ONCE):
            part = [examples[row] for row in rows[start : start + _AT_ONCE]]
            turns = [[(asked.strip(), answer.strip()) for asked, answer in one.history] for one in part]
            found[start : start + len(part)] = query_encoder.encode(
                [one.question.strip() for one in part], turns, bfloat16=bfloat16
            )
            advance(len(part))
    places = {row: place for place, row in enumerate(rows)}
    read = [replace(example, encoded=places.get(row, -1)) for row, example in enumerate(encoded)]
    return replace(vectors, encoded=found, state_weight=state_weight, gate=gate), read


def fingerprint(examples: Sequence[TrainingExample], encoder: Encoder) -> str:
    """What data and encoder a training is of, for its checkpoint."""
    digest = hashlib.sha256(encoder.name.encode())
    for example in examples:
        digest.update(repr((example.question, example.history, example.gold, example.rewrite)).encode("utf-8", "replace"))
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


def _best(patterns: Patterns, state: Vectors, sets: Sequence[int], beta: float, passage_weight: float) -> int:
    if len(sets) < 2:
        return sets[0] if sets else -1
    chosen = np.array(sets, dtype=np.int64)
    ranking = search(patterns.select(chosen), state[None], k=1, beta=beta, passage_weight=passage_weight)[0]
    return int(chosen[ranking.indices[0]])


class AsQueries(DelegatingEncoder):
    """Queries through the cache of patterns, apart from passages, which an encoder may encode in another way."""

    @property
    def name(self) -> str:
        return f"{self.encoder.name}|queries"

    def encode_passages(self, texts: Sequence[str], progress: Progress = False) -> Vectors:
        return self.encoder.encode_queries(texts)
