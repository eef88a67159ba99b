"""Training data: conversations and single-turn questions, their vectors from the frozen encoder, and hard negatives."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from langchain_core.documents import Document

from langgraph_convcoa.datasets.queries import DEV_SHARE, Dataset, Part, Query, split_part
from langgraph_convcoa.datasets.read import load_dataset
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.documents.split import document_id
from langgraph_convcoa.retrieval.encoders.base import DelegatingEncoder, Encoder, Vectors
from langgraph_convcoa.retrieval.encoders.cache import PatternCache, encode_texts
from langgraph_convcoa.retrieval.memory_corpus import Memory, build_memory
from langgraph_convcoa.retrieval.patterns import Patterns
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.retrieval.query.conversation_state import conversational_state, turn_text
from langgraph_convcoa.retrieval.query.query_text import QueryText
from langgraph_convcoa.retrieval.search import top_k

HISTORY_WEIGHT = 0.6  # lambda, the weight of the history in the untrained retriever.
HISTORY_BETA = 1.0  # beta_h, the inverse temperature over earlier turns in the untrained retriever.
_HARD = 20
_AT_ONCE = 256
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingExample:
    """A question of a conversation, with the passages that answer it."""

    question: str
    history: tuple[tuple[str, str], ...] = ()  # Earlier pairs of question and answer, oldest first.
    gold: tuple[str, ...] = ()  # Ids of the documents that answer the question, all in the data's passages; empty if unknown.
    rewrite: str = ""  # The question in full, in words that need no history; empty if unknown.
    source: str = ""  # Name of the data set.


@dataclass(frozen=True)
class TrainingData:
    """Examples, and the passages to search, each id once."""

    examples: tuple[TrainingExample, ...]
    passages: tuple[Document, ...]

    @property
    def sources(self) -> dict[str, int]:
        """The number of examples of each source."""
        return dict(Counter(example.source for example in self.examples))


def load_training_data(paths: Iterable[str | Path], *, part: Part = "train", dev_share: float = DEV_SHARE) -> TrainingData:
    """Read the same part (`split_part`) of several data sets, each in any known format.

    Queries without gold passages, or with gold passages outside of the corpus, are left out. A warning counts them, except
    the unanswerable ones. Raises InputError if a file cannot be read, a part teaches nothing, or an id stands for two texts.
    """
    examples: list[TrainingExample] = []
    passages: dict[str, Document] = {}
    names: dict[str, str | Path] = {}
    for path in paths:
        whole = load_dataset(path)
        if whole.name in names:
            raise InputError(f"{names[whole.name]} and {path} are both named {whole.name}; rename one.")
        names[whole.name] = path
        split = split_part(whole, part, dev_share=dev_share)
        if split.left_out:
            _LOGGER.warning(
                "%s: left out %d training queries whose conversations are in dev, too.", whole.name, split.left_out
            )
        add_passages(passages, whole.corpus, whole.name)
        kept = _checked(split.dataset)
        if not kept:
            raise InputError(f"{path} has no query with a gold passage in the {part} part; there is nothing to learn.")
        examples += [TrainingExample(one.question, one.history, one.gold, one.rewrite, whole.name) for one in kept]
    if not examples:
        raise InputError("There is no data to train on; name at least one folder or file.")
    return TrainingData(tuple(examples), tuple(passages.values()))


def add_passages(known: dict[str, Document], new: Iterable[Document], source: str) -> None:
    """Add passages to `known`, by their ids. Raises InputError if an id stands for two texts."""
    for passage in new:
        if known.setdefault(str(passage.id), passage).page_content != passage.page_content:
            raise InputError(f"The passage id {str(passage.id)!r} stands for two texts, one of them in {source}: rename one.")


def load_single_turn(path: str | Path) -> Dataset | None:
    """Read the training part of single questions over titled passages. Returns None if the data has conversations.

    Raises InputError as `load_training_data`, and if no passage has a title.
    """
    dataset = load_dataset(path)
    if any(query.history for query in dataset.queries):
        return None
    titled = {str(passage.id) for passage in dataset.corpus if passage.metadata.get("title")}
    part = split_part(dataset, "train").dataset
    kept = tuple(query for query in _checked(part) if any(identity in titled for identity in query.gold))
    if not kept:
        raise InputError(f"{path} has single questions over passages without a title: no conversation can be made of them.")
    return replace(part, queries=kept)


def _checked(dataset: Dataset) -> list[Query]:
    """The queries whose gold passages are all in the corpus. Raises InputError if no query is left."""
    ids = {str(document.id) for document in dataset.corpus if document.page_content.strip()}
    kept, bad = [], []
    for query in dataset.queries:
        missing = [identity for identity in query.gold if identity not in ids]
        if query.gold and not missing:
            kept.append(query)
        elif query.gold or query.extra.get("answerable") is not False:
            name = f"the query {query.id!r}"
            fault = f"the corpus has no passage {missing[0]!r}, gold for {name}" if missing else f"{name} has no gold passage"
            bad.append(f"{query.where or query.id}: {fault}")
    if bad and not kept:
        raise InputError(f"{dataset.name} has no query that can be learned from; the first: {bad[0]}.")
    if bad:
        _LOGGER.warning("%s: left out %d queries that cannot be learned from; the first: %s.", dataset.name, len(bad), bad[0])
    return kept


@dataclass(frozen=True)
class EncodedExample:
    """An example as row numbers of vectors and numbers of memory sets; -1 means that there is no such row or set."""

    question: int  # Row of the question's vector.
    turns: tuple[int, ...]  # Rows of the earlier turns' vectors, oldest first.
    rewrite: int  # Row of the vector of its rewrite.
    gold: tuple[int, ...]  # Memory sets that answer the question, and other sets of the same text.
    positive: int = -1  # The gold set with the best score for the rewrite or, without a rewrite, for the untrained state.
    hard: tuple[int, ...] = ()  # Wrong sets with the best scores of the untrained retriever.


@dataclass(frozen=True, eq=False)
class EncodedData:
    """Training data with the vectors to which its examples refer by row."""

    data: TrainingData
    examples: Sequence[EncodedExample]  # In the order of `data.examples`.
    texts: Vectors  # Vectors of the questions, earlier turns and rewrites, (t, d).
    memory: Memory
    states: Vectors  # State of each example in the untrained retriever, (n, d).


@dataclass(frozen=True)
class QueryItem:
    """A question in conversation as the query encoder reads it; -1 means that there is no such row or set."""

    ids: tuple[int, ...]  # Token ids of the question and its turns.
    gold: tuple[int, ...] = ()  # Memory sets that answer the question.
    positive: int = -1  # One of `gold`.
    hard: tuple[int, ...] = ()  # Wrong sets with the best scores of the untrained retriever.
    state: int = -1  # Row of its example in `EncodedData`.
    target: int = -1  # Row of its target: the vector of the question in full.


def encode_examples(
    data: TrainingData, encoder: Encoder, *, cache: PatternCache | None = None, progress: Progress = False
) -> EncodedData:
    """Encode the texts of training data and mine hard negatives with the untrained retriever."""
    memory = build_memory(data.passages, encoder, cache=cache, progress=progress)
    gold, rows = gold_sets(memory), dict[str, int]()

    def row(text: str) -> int:
        return rows.setdefault(text, len(rows))

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
        found = top_k(memory.patterns, at, k=_HARD + max(len(example.gold) for example in part))
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
    """A hash of encoder and data. It must be equal when a training is resumed."""
    return hashlib.sha256(repr(parts).encode("utf-8", "replace")).hexdigest()[:16]


def gold_sets(memory: Memory) -> Callable[[Sequence[str]], tuple[int, ...]]:
    """Return a function that finds the memory sets of documents, and other sets of equal text (they are no negatives)."""
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
    return int(chosen[top_k(patterns.select(chosen), state[None], k=1)[0].indices[0]])


class AsQueries(DelegatingEncoder):
    """Encodes all texts as queries. Its own name keeps these vectors apart from those of passages in the cache."""

    @property
    def name(self) -> str:
        return f"{self.encoder.name}|queries"

    def encode_passages(self, texts: Sequence[str]) -> Vectors:
        return self.encoder.encode_queries(texts)
