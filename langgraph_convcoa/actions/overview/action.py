"""The action that lists and counts the documents of a collection, names its topics, and covers whole documents."""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest

import numpy as np
from langchain_core.documents import Document

from langgraph_convcoa.actions.base import ActionRequest, BaseAction
from langgraph_convcoa.actions.overview.collection import Collection, Collections, Entry
from langgraph_convcoa.actions.overview.questions import Wanted, read_input, read_question
from langgraph_convcoa.actions.overview.topics import find_topics
from langgraph_convcoa.retrieval.corpus import settled
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

PAGE = 20
"""A list names at most this many documents at once."""
_OF_A_PIECE = 10
_MOST_COVERED = 5
_TITLES, _LONGEST_TITLES = 6, 100
"""The description shows at most this many titles, with at most this many characters together."""


class Overview(BaseAction):
    """Answers questions about a retriever's collection as a whole.

    The planner writes `list` or `count` (either may be followed by words that the documents must have), `topics`, or titles of
    documents, of which passages are returned. A few questions are recognised without a model: "Which documents are there?".

    Args:
        retriever: A `HopfieldRetriever`, not one over a vector store.
        name: The action's name for the planner and the chain.

    Raises:
        InputError: The retriever cannot list its documents.

    Example:
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
        >>> documents = [Document("Ada wrote it.", id="a", metadata={"title": "Ada"}), Document("It rained.", id="b")]
        >>> overview = Overview(HopfieldRetriever.from_documents(documents, encoder=DeterministicFakeEmbedding(size=8)))
        >>> question = "How many documents are there?"
        >>> asyncio.run(overview.retrieve(ActionRequest(question, question)))[0].page_content
        'The collection has 2 documents in 2 passages.'
    """

    looks_first = True
    always_fresh = True

    def __init__(self, retriever: HopfieldRetriever, *, name: str = "overview") -> None:
        self._collections = Collections(retriever)
        self.name = name

    def description(self) -> str:
        """The planner's instructions, the number of documents, and some titles."""
        collection = self._collections.current()
        titles = "; ".join(entry.title for entry in collection.entries[:_TITLES])[:_LONGEST_TITLES]
        return (
            "lists, counts, summarises and compares whole documents; action_input: list, list 21, list WORDS, count, topics, "
            f"or titles. {counted(collection)}{f': {titles} …' if titles else '.'}"
        )

    def recognises(self, question: str, history: Sequence[tuple[str, str]] = ()) -> bool:
        """True for a question about the collection. If it names words, at least one document must have them."""
        wanted = read_question(question)
        if wanted is None or wanted.words in ("", "pdf"):
            return wanted is not None
        return settled(lambda: bool(self._collections.current().having(wanted.words)))

    async def retrieve(self, request: ActionRequest) -> list[Document]:
        return await asyncio.to_thread(settled, lambda: self._found(request))

    def _found(self, request: ActionRequest) -> list[Document]:
        collection = self._collections.current()
        given = request.action_input.strip()
        wanted = read_input(given) or (None if given else read_question(request.sub_question))
        if wanted is None:
            named = collection.named(f"{given} {request.sub_question}") or (collection.having(given) if given else [])
            if 0 < len(named) <= _MOST_COVERED:
                return covering(collection, named, request.k)
            wanted = Wanted("list")
        return _answer(collection, wanted)


def _answer(collection: Collection, wanted: Wanted) -> list[Document]:
    if wanted.kind == "topics" and collection.entries:
        topics = find_topics(collection)
        opening = f"{counted(collection)}. Its main topics, by typical words and titles, are"
        lines = "\n".join(f"{n}. {topic}" for n, topic in enumerate(topics, 1))
        return [_said("topics", f"{opening} {'; '.join(topics)}.", f"{opening}:\n{lines}")]
    return listing(collection, wanted)


def _said(name: str, text: str, extract: str | None = None) -> Document:
    """A statement about the collection as evidence; without a model, `extract` is the answer."""
    metadata = {"source": "overview", "title": "The collection", "score": 1.0, "quote": text, "extract": extract or text}
    return Document(text, id=f"overview:{name}", metadata=metadata)


def counted(collection: Collection) -> str:
    """The number of documents, passages and formats, without a full stop."""
    formats = Counter(entry.suffix for entry in collection.entries if entry.suffix).most_common(8)
    passages = _number(sum(len(entry.numbers) for entry in collection.entries), "passage")
    files = _among([f"{n} {suffix}" for suffix, n in formats])
    return f"The collection has {_number(len(collection.entries), 'document')} in {passages}{files}"


def listing(collection: Collection, wanted: Wanted) -> list[Document]:
    """The number of documents; for a list also the names of up to `PAGE` documents, ten in each piece of evidence.

    A piece names its documents in one sentence, so that a sentence of an answer can be checked against it.
    """
    chosen = collection.having(wanted.words)
    opening = counted(collection)
    if wanted.words:
        have = "has" if len(chosen) == 1 else "have"
        opening = (
            f"Of the {_number(len(collection.entries), 'document')} of the collection {len(chosen) or 'none'} {have} "
            f"“{wanted.words}” in title, heading or metadata"
        )
    shown = chosen[wanted.first - 1 :][:PAGE] if wanted.kind != "count" else []
    if not shown:
        return [_said("count", f"{opening}.")]
    pieces = []
    for start in range(0, len(shown), _OF_A_PIECE):
        part, number = shown[start : start + _OF_A_PIECE], wanted.first + start
        last = number + len(part) - 1
        begins = f"{opening}. " if start == 0 else ""
        names = f"Number {number} to {last} of {len(chosen)}: {', '.join(map(_named, part))}."
        lines = "\n".join(f"{n}. {_named(entry, '')}" for n, entry in enumerate(part, number))
        pieces.append(_said(f"documents-{number}", begins + names, f"{opening}.\n{lines}" if start == 0 else lines))
    if left := len(chosen) - wanted.first + 1 - len(shown):
        pieces.append(_said("left-out", f"{_number(left, 'more document')} {'is' if left == 1 else 'are'} not named here."))
    return pieces


def _named(entry: Entry, quotes: str = "“”") -> str:
    return f"{quotes[:1]}{entry.title}{quotes[1:]}{_among([entry.file if entry.file != entry.title else '', entry.date])}"


def _among(parts: Sequence[str]) -> str:
    return f" ({', '.join(filter(None, parts))})" if any(parts) else ""


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def covering(collection: Collection, entries: Sequence[Entry], k: int) -> list[Document]:
    """About k passages that cover the documents, in turns: the first of each document, then others, evenly spread."""
    share = max(1, k // len(entries))
    each = []
    for entry in entries:
        places = np.unique(np.linspace(0, len(entry.numbers) - 1, share).astype(int))
        passages = collection.view.fetch([entry.numbers[place] for place in places])
        each.append([(entry.title, passage.document) for passage in passages])
    found = [pair for turn in zip_longest(*each) for pair in turn if pair is not None]
    return [
        Document(
            passage.page_content, id=passage.id, metadata={**copy.deepcopy(passage.metadata), "title": title, "score": 1 / n}
        )
        for n, (title, passage) in enumerate(found, 1)
    ]
