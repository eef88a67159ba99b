"""A shard: one index, as its worker answers for it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import numpy as np
from langchain_core.documents import Document

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.changes import entries_of
from langgraph_convcoa.retrieval.corpus import Corpus, Numbers, Passage, StaleSnapshot, View, read
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.filters import predicate
from langgraph_convcoa.retrieval.hybrid.bm25 import Statistics
from langgraph_convcoa.retrieval.hybrid.follow import BM25Follower
from langgraph_convcoa.retrieval.index.index import Index
from langgraph_convcoa.retrieval.scoring.topk import Ranking, search
from langgraph_convcoa.retrieval.searcher import lexical_part
from langgraph_convcoa.retrieval.shards.wire import (
    Message,
    error_message,
    packed,
    unpacked,
    unpacked_filter,
    unpacked_queries,
)

_KEPT_QUESTIONS = 8


class ChangedError(Exception):
    """The index has changed since the question began."""


class Shard:
    """What a worker says of its index: a question is answered in rounds, which all see one state.

    `words` says how many passages have which words, for the weights over all shards; `best` which BM25 a question's best
    passage has here; `search` ranks by these; `fetch` hands over passages that are among the best of all shards. What is asked
    of the collection as a whole is answered by `count`, and by `listed`, `allowed` and `wholes` for some passages at a time.

    Args:
        corpus: An index, or passages in memory.

    Example:
        >>> from langchain_core.documents import Document
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
        >>> encoder = DeterministicFakeEmbedding(size=8)
        >>> shard = Shard(HopfieldRetriever.from_documents([Document("Ada wrote it.")], encoder=encoder).corpus)
        >>> shard.answer({"ask": "words", "words": ["ada", "river"]})["statistics"]
        [1, 1, 2, {'ada': 1}]
    """

    def __init__(self, corpus: Corpus) -> None:
        if not isinstance(corpus.bm25, BM25Follower):
            raise RetrievalError("A shard is an index, or passages in memory.")
        self._corpus, self._bm25 = corpus, corpus.bm25
        self._view: View | None = None
        self._state = ""
        self._kept: dict[str, Vectors] = {}

    def answer(self, message: Message) -> Message:
        """The answer to a message; what goes wrong is an answer too."""
        try:
            view = self._at(message.get("state"))
            answer: Message = {
                "about": self._about,
                "count": lambda view, _: {"passages": len(view)},
                "listed": self._listed,
                "allowed": self._allowed,
                "wholes": self._wholes,
                "named": self._named,
                "documents": self._documents,
                "words": self._words,
                "best": self._best,
                "search": self._search,
                "fetch": self._fetch,
                "beside": self._beside,
            }[message["ask"]](view, message)
        except (ChangedError, StaleSnapshot):
            return {"changed": True}
        except Exception as error:  # noqa: BLE001 - whatever it is, who asked hears of it
            return error_message(error)
        return {"source": view.source, "state": self._state, **answer}

    def _at(self, state: str | None) -> View:
        """The present state, which is to be the one named."""
        if state is None:
            view = self._corpus.snapshot()
            if view is not self._view:
                self._view, self._state = view, secrets.token_hex(8)
                self._kept.clear()
        elif state != self._state or self._view is None:
            raise ChangedError
        assert self._view is not None
        return self._view

    def _about(self, view: View, message: Message) -> Message:
        # All is read once, so that no question waits for it.
        answer: Message = {"dtype": view.patterns.dtype, "dimension": view.dimension, "passages": len(view)}
        self._bm25.unscaled(view, [], self._bm25.statistics(view, []))
        head = self._corpus.head if isinstance(self._corpus, Index) else None
        answer |= (
            {"encoder": None, "model": None, "settings": {}}
            if head is None
            else {"encoder": head.encoder, "model": head.model, "settings": head.settings}
        )
        if message.get("ids"):
            answer["ids"] = packed(np.unique(np.fromiter(map(_hashed, _names(self._corpus, view)), dtype=np.int64)))
        return answer

    def _named(self, view: View, message: Message) -> Message:
        wanted = set(message["ids"])
        return {"names": sorted({name for name in _names(self._corpus, view) if _hashed(name) in wanted})}

    def _listed(self, view: View, message: Message) -> Message:
        """The documents of some passages; these by their places among those that are there."""
        found = view.listed(_there(view, message))
        numbers = np.array([number for one in found for number in one.numbers], dtype=np.int64)
        return {
            "ids": [one.id for one in found],
            "metadata": [json.dumps(one.metadata) for one in found],
            "counts": packed(np.array([len(one.numbers) for one in found], dtype=np.int64)),
            "numbers": packed(np.searchsorted(view.numbers, numbers)),
        }

    def _allowed(self, view: View, message: Message) -> Message:
        passes = predicate(unpacked_filter(message["filter"]))
        found = [passes(passage.document) for passage in read(view, _there(view, message))]
        return {"allowed": packed(np.array(found, dtype=np.bool_))}

    def _wholes(self, view: View, message: Message) -> Message:
        return {"wholes": packed(view.wholes(_there(view, message)))}

    def _documents(self, _view: View, message: Message) -> Message:
        found = self._corpus.documents(message["ids"])
        return {"documents": list(map(_packed_document, found))}

    def _words(self, view: View, message: Message) -> Message:
        return {"statistics": list(self._bm25.statistics(view, message["words"]))}

    def _best(self, view: View, message: Message) -> Message:
        scores = self._bm25.unscaled(view, message["asked"], Statistics(*message["statistics"]))
        if len(self._kept) >= _KEPT_QUESTIONS:
            del self._kept[next(iter(self._kept))]
        self._kept[message["question"]] = scores
        return {"best": scores.max(axis=1, initial=0.0).tolist()}

    def _search(self, view: View, message: Message) -> Message:
        queries = unpacked_queries(message["queries"])
        lexical, extra = self._lexical(view, message)
        rankings = [Ranking(_NONE, np.zeros(0), True, 0) for _ in queries.states]
        if len(view):
            rankings = search(
                view.patterns,
                queries,
                k=message["k"],
                beta=message["beta"],
                passage_weight=message["passage_weight"],
                allowed=view.allowed(unpacked_filter(message["filter"])),
                extra=extra,
            )
        numbers = np.unique(np.concatenate([_NONE, *(ranking.indices for ranking in rankings)]))
        return {
            "numbers": packed(numbers),
            "lexical": packed(None if lexical is None else lexical[:, :, numbers]),
            "rankings": [[packed(one.indices), packed(one.scores), one.certified] for one in rankings],
        }

    def _lexical(self, view: View, message: Message) -> tuple[Vectors | None, Vectors | None]:
        """BM25 of the questions, and with the turns before them, over the best of all shards; and their part of the scores."""
        if not message["lexical_weights"]:
            return None, None
        scores = self._kept.pop(message["question"], None)
        if scores is None:
            scores = self._bm25.unscaled(view, message["asked"], Statistics(*message["statistics"]))
        for row, best in zip(scores, message["best"], strict=True):
            if best > 0:
                row /= best
        lexical = scores.reshape(len(message["lexical_weights"]), message["queries"][0][1][0], scores.shape[1])
        return lexical, lexical_part([*lexical], message["lexical_weights"])

    def _fetch(self, view: View, message: Message) -> Message:
        numbers: Numbers = _there(view, message) if message.get("there") else unpacked(message["numbers"])
        patterns = view.patterns_for(numbers).select(numbers)
        passages = view.fetch(numbers.tolist())
        return {
            "numbers": packed(numbers),
            "keys": packed(view.keys[numbers]),
            "values": packed(patterns.values),
            "offsets": packed(patterns.offsets),
            "scales": packed(patterns.scales),
            "passages": [_packed_document(passage.document) for passage in passages],
            "spans": packed(np.array([span for passage in passages for span in passage.spans], dtype=np.int64).reshape(-1, 2)),
        }

    def _beside(self, view: View, message: Message) -> Message:
        place = int(np.searchsorted(view.keys, message["key"]))
        gone = place == len(view.keys) or view.keys[place] != message["key"]
        sides = ([], []) if gone else self._corpus.beside(view, place, message["count"])
        return {"sides": [list(map(_packed_passage, side)) for side in sides]}


_NONE: Numbers = np.zeros(0, dtype=np.int64)


def _there(view: View, message: Message) -> Numbers:
    """The passages of a message, which names them by their places among those that are there."""
    places: Numbers = unpacked(message["numbers"])
    return view.numbers[places]


def _packed_document(document: Document) -> list[str]:
    # As text, so that no key of it is taken for one of the message.
    return [str(document.id), document.page_content, json.dumps(document.metadata)]


def _packed_passage(passage: Passage) -> list[Any]:
    return [*_packed_document(passage.document), [[int(start), int(end)] for start, end in passage.spans]]


def _names(corpus: Corpus, view: View) -> Iterator[str]:
    """The ids of documents and of their passages, which no other shard may have."""
    if isinstance(corpus, Index):
        yield from corpus.names()
        return
    for entry in entries_of(passage.document for passage in read(view)):
        yield entry.id
        yield from (str(passage.id) for passage in entry.passages)


def _hashed(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little", signed=True)
