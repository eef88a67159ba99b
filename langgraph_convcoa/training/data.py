"""Training data: conversations and single-turn questions, checked before training starts."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from langchain_core.documents import Document

from langgraph_convcoa.datasets.queries import Dataset, Query
from langgraph_convcoa.datasets.read import load_dataset
from langgraph_convcoa.datasets.splits import DEV_SHARE, Part, split_part
from langgraph_convcoa.errors import InputError

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingExample:
    """A question of a conversation, with the passages that answer it."""

    question: str
    history: tuple[tuple[str, str], ...] = ()  # Earlier pairs of question and answer, oldest first.
    gold: tuple[str, ...] = ()  # Ids of the documents that answer it, at least one, all of them in the data's passages.
    rewrite: str = ""  # The question in full; empty if unknown.
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


def load_training_data(
    paths: Iterable[str | Path],
    *,
    part: Part = "train",
    dev_share: float = DEV_SHARE,
) -> TrainingData:
    """Read one part (`split_part`) of data sets of any known format.

    Queries are left out if they have no gold passage or the corpus lacks one; a warning counts those not marked unanswerable.
    Raises InputError if a file cannot be read, a part has no query to learn from, or an id stands for two texts.
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
    """Add passages to those known by id. Raises InputError if an id stands for two texts."""
    for passage in new:
        if known.setdefault(str(passage.id), passage).page_content != passage.page_content:
            raise InputError(f"The passage id {str(passage.id)!r} stands for two texts, one of them in {source}: rename one.")


def load_single_turn(path: str | Path) -> Dataset | None:
    """The training part of single questions over titled passages; None if the data has conversations.

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
    """The queries with gold passages that are all in the corpus. Raises InputError if there are only wrong queries."""
    ids = {str(document.id) for document in dataset.corpus if document.page_content.strip()}
    kept, bad = [], []
    for query in dataset.queries:
        problem = _problem(query, ids)
        if not problem:
            kept.append(query)
        elif query.gold or query.extra.get("answerable") is not False:
            bad.append(f"{query.where or query.id}: {problem}")
    if bad and not kept:
        raise InputError(f"{dataset.name} has no query that can be learned from; the first: {bad[0]}.")
    if bad:
        _LOGGER.warning("%s: left out %d queries that cannot be learned from; the first: %s.", dataset.name, len(bad), bad[0])
    return kept


def _problem(query: Query, ids: Collection[str]) -> str:
    if not query.gold:
        return f"the query {query.id!r} has no gold passage"
    missing = [identity for identity in query.gold if identity not in ids]
    return f"the corpus has no passage {missing[0]!r}, gold for the query {query.id!r}" if missing else ""
