"""The corpus of shards: each names its best passages with their certificate, and all are ranked as one index ranks them."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.changes import distinct
from langgraph_convcoa.retrieval.corpus import Asked, Corpus, Passage, View
from langgraph_convcoa.retrieval.encoders.base import without_arithmetic
from langgraph_convcoa.retrieval.hybrid.bm25 import Statistics, weighted_words
from langgraph_convcoa.retrieval.hybrid.turn_words import turn_words
from langgraph_convcoa.retrieval.scoring.bounds import Queries
from langgraph_convcoa.retrieval.searcher import lexical_weights
from langgraph_convcoa.retrieval.shards.best import Best, BestWords, Kind, check_owner, document_of, united_best
from langgraph_convcoa.retrieval.shards.crew import Answers, Crew, MissingError
from langgraph_convcoa.retrieval.shards.whole import Whole
from langgraph_convcoa.retrieval.shards.wire import Message, packed, packed_filter, packed_queries, united, unpacked
from langgraph_convcoa.retrieval.shards.workers import ShardError, Worker
from langgraph_convcoa.text.words import content_words

_LOGGER = logging.getLogger(__name__)
_ATTEMPTS = 5
_OPEN_SECONDS = 600.0
_NAMED = 1000


class _ChangedError(Exception):
    """A shard has changed since the question began."""


class ShardedCorpus(Corpus):
    """Indexes that are searched side by side, with the ranking and the certificate of one index of all their documents.

    That index is the one to which the documents of the first shard were added, then those of the second, and so on: equal
    scores come in this order. Words are weighed by all passages of all shards. There is no evidence graph.
    Each shard may be changed as any index; the next question sees it. See `open_shards`, which makes the workers too.

    Args:
        workers: One a shard, in the order of the shards.
        timeout: Seconds that a question may take in the shards.
        partial: Whether to answer without a shard that fails, uncertified.
        closing: Called when the corpus is closed.

    Raises:
        InputError: There are no shards, or the timeout is not above 0.
        RetrievalError: A shard cannot be opened, its encoder, its dimension or the type of its patterns is not that of the
            first, it is the same index as another, or has an id of another.
    """

    bm25 = BestWords()

    def __init__(
        self,
        workers: Sequence[Worker],
        *,
        timeout: float = 10.0,
        partial: bool = False,
        closing: Callable[[], object] | None = None,
    ) -> None:
        if not workers:
            raise InputError("There are no shards; name the folders of indexes.")
        if not timeout > 0:
            raise InputError(f"timeout must be above 0 seconds, not {timeout!r}.")
        self.path = Path(workers[0].name)
        self.timeout, self._closing = timeout, closing
        self._crew = Crew(workers, partial=partial)
        try:
            self.kind = self._opened()
        except BaseException:
            self.close()
            raise

    def __reduce__(self) -> tuple[Any, ...]:
        # Opened again where it is needed.
        return _reopened, (self._crew.workers, self.timeout, self._crew.partial)

    def __repr__(self) -> str:
        return f"ShardedCorpus({self._crew.names})"

    def __len__(self) -> int:
        return len(self.snapshot())

    def certifies(self, view: View) -> bool:
        """Whether all shards had a part in it."""
        return isinstance(view, Best) and view.certified

    def snapshot(self) -> Whole:
        """All passages; with `partial` those of the shards that answer."""
        answers = self._crew.all({"ask": "count"}, time.monotonic() + self.timeout)
        counted = {place: (answer["state"], answer["passages"]) for place, answer in answers.items()}
        return Whole(self._crew, self.kind, self.timeout, counted)

    def view(self, asked: Asked) -> Best:
        """The best passages of all shards for some questions.

        Raises:
            InputError: The filter is a function, or cannot be compared with a passage.
            ShardError: A shard has ended, is damaged or did not answer in time; with `partial`, all of them.
            RetrievalError: The shards changed again and again, or two of them have one id.
        """
        if asked.encoder is not None:
            self.kind.check_encoder(asked.encoder)
        end, attempts = time.monotonic() + self.timeout, 0
        missing: dict[int, ShardError] = {}
        while attempts < _ATTEMPTS:
            try:
                found = self._found(asked, end, missing)
            except MissingError:
                continue
            except _ChangedError:
                attempts += 1
                continue
            if missing:
                told = "; ".join(str(error) for error in missing.values())
                _LOGGER.warning("Answered without %d of %d shards: %s", len(missing), len(self._crew.names), told)
            return found
        raise RetrievalError("The shards are changed faster than they can be searched; try again when that has ended.")

    def beside(self, view: View, number: int, count: int) -> tuple[list[Passage], list[Passage]]:
        """Up to so many passages before and after one of those that were found, in its shard; none where that is missing."""
        assert isinstance(view, Best)
        place, key = view.places[number]
        message: Message = {"ask": "beside", "key": key, "count": count}
        try:
            answer = self._crew.ask({place: message}, time.monotonic() + self.timeout, {})[place]
        except MissingError:
            return [], []
        before, after = ([Passage(document_of(one), [(a, b) for a, b in one[3]]) for one in side] for side in answer["sides"])
        return before, after

    def documents(self, ids: Iterable[str]) -> list[Document]:
        """The documents, or passages of longer ones, of these ids that are there."""
        names = distinct(ids)
        answers = self._crew.all({"ask": "documents", "ids": names}, time.monotonic() + self.timeout)
        there = {one.id: one for answer in answers.values() for one in map(document_of, answer["documents"])}
        return [there[name] for name in names if name in there]

    def close(self) -> None:
        """End the workers; a search afterwards is an error."""
        self._crew.close()
        if self._closing is not None:
            self._closing()

    def add_documents(self, *_arguments: Any, **_settings: Any) -> NoReturn:
        raise InputError(
            "This retriever is over shards: change each as an index of its own, with convcoa index or "
            "HopfieldRetriever.from_pretrained(folder)."
        )

    update = delete = keep_settings = add_documents

    def _opened(self) -> Kind:
        end, names = time.monotonic() + _OPEN_SECONDS, self._crew.names
        answers = self._crew.all({"ask": "about", "ids": True}, end)
        owner: dict[str, int] = {}
        for place, answer in answers.items():
            if (other := owner.setdefault(answer["source"], place)) != place:
                raise RetrievalError(f"The shards {names[other]} and {names[place]} are the same index; name each once.")
            self._crew.sources[place] = answer["source"]
        kind = _common(
            [
                Kind(names[place], one["encoder"], one["dimension"], one["dtype"], one["model"], one["settings"])
                for place, one in answers.items()
            ]
        )
        hashes, counts = np.unique(np.concatenate([unpacked(one["ids"]) for one in answers.values()]), return_counts=True)
        if (again := hashes[counts > 1]).size:
            owner = {}
            for place, answer in self._crew.all({"ask": "named", "ids": again[:_NAMED].tolist()}, end).items():
                for name in answer["names"]:
                    check_owner(name, place, owner, names)
        return kind

    def _found(self, asked: Asked, end: float, missing: dict[int, ShardError]) -> Best:
        """All rounds of some questions, over one state of each shard that is not missing."""
        scoring, states = asked.scoring, dict[int, str]()
        assert scoring is not None

        def every(message: Message, some: Mapping[int, Message] | None = None) -> Answers:
            chosen = dict.fromkeys(range(len(self._crew.names)), Message()) if some is None else some
            messages = {
                place: {**message, **own, "state": states.get(place)} for place, own in chosen.items() if place not in missing
            }
            answers = self._crew.ask(messages, end, missing)
            if any(answer.get("changed") for answer in answers.values()):
                raise _ChangedError
            states.update({place: answer["state"] for place, answer in answers.items()})
            return answers

        weights = lexical_weights(asked, scoring)
        found = every(
            {
                "ask": "search",
                "queries": packed_queries(Queries.of(asked.states, scoring.weights)),
                "k": asked.k,
                "beta": scoring.beta,
                "passage_weight": scoring.passage_weight,
                "filter": packed_filter(scoring.filter),
                "lexical_weights": weights,
                **(_lexical(asked, len(weights) > 1, every) if weights else {}),
            }
        )
        parts = every({"ask": "fetch"}, _wanted(found, len(asked.queries), asked.k))
        certified = not missing and all(proved for one in found.values() for _, _, proved in one["rankings"])
        return united_best(self.kind, self._crew.names, parts, found, certified=certified)


def _lexical(asked: Asked, follow_up: bool, every: Callable[[Message], Answers]) -> Message:
    """What a search for words needs: the words with their weights, the statistics of all shards, and the best of all."""
    named = {word for query in asked.queries for word in content_words(query)}
    if follow_up:
        named |= {word for earlier in asked.turns for word in turn_words(earlier, ())}
    answers = every({"ask": "words", "words": sorted(named)})
    statistics = united([Statistics(*answer["statistics"]) for answer in answers.values()])
    words = [weighted_words(query, None, statistics) for query in asked.queries]
    if follow_up:
        words += [weighted_words(*pair, statistics) for pair in zip(asked.queries, asked.turns, strict=True)]
    told: Message = {"asked": words, "statistics": list(statistics), "question": secrets.token_hex(8)}
    best = [answer["best"] for answer in every({"ask": "best", **told}).values()]
    return {**told, "best": [max(column) for column in zip(*best, strict=True)]}


def _wanted(found: Answers, queries: int, k: int) -> dict[int, Message]:
    """The passages of each shard that are among the k best of all for one of the questions."""
    wanted: dict[int, set[int]] = {}
    for query in range(queries):
        best: list[tuple[float, int, int]] = []
        for place, answer in found.items():
            numbers, scores, _ = answer["rankings"][query]
            listed = zip(unpacked(scores).tolist(), unpacked(numbers).tolist(), strict=True)
            best += [(-score, place, number) for score, number in listed]
        for _, place, number in sorted(best)[:k]:
            wanted.setdefault(place, set()).add(number)
    return {place: {"numbers": packed(np.array(sorted(numbers)))} for place, numbers in sorted(wanted.items())}


def _common(kinds: Sequence[Kind]) -> Kind:
    """What shards have in common; RetrievalError where one differs in what all must have."""
    # Passages in memory have no dimension where there are none.
    first, *others = [kind for kind in kinds if kind.dimension] or kinds[:1]
    for other in others:
        for what, one, two in (
            ("encoder", without_arithmetic(first.encoder or ""), without_arithmetic(other.encoder or "")),
            ("dimension", first.dimension, other.dimension),
            ("type of patterns", first.dtype, other.dtype),
        ):
            if one != two:
                raise RetrievalError(
                    f"The shard {other.name} has the {what} {two!r}, and {first.name} has {one!r}; build all shards alike."
                )
        if other.settings != first.settings:
            _LOGGER.warning("The shard %s has other settings than %s, whose settings count.", other.name, first.name)
    return first


def _reopened(workers: Sequence[Worker], timeout: float, partial: bool) -> ShardedCorpus:
    return ShardedCorpus(workers, timeout=timeout, partial=partial)
