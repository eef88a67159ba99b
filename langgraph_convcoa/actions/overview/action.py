"""The action that answers from the collection itself: lists, counts, topics, summaries and comparisons of its documents."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from langchain_core.documents import Document

from langgraph_convcoa.actions.base import ActionRequest, Recognition
from langgraph_convcoa.actions.overview.collection import Collection, Collections
from langgraph_convcoa.actions.overview.evidence import PAGE, abilities, counted, covering, listing, said
from langgraph_convcoa.actions.overview.reading import Wanted, read
from langgraph_convcoa.actions.overview.topics import find_topics
from langgraph_convcoa.retrieval.corpus import settled
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever

_TITLE_WORDS = 16
"""Words of titles that the description names."""


class Overview:
    """Answers questions about a retriever's collection as a whole, which no five passages can answer.

    It lists and counts the documents (all, or those of a year, a format or a word of their metadata), says what the main
    topics are, and finds the passages that cover the documents that are to be summarised or compared. It recognises such a
    question by its form, so that it is looked up so at once; a planner may also choose it. It says plainly what it is, and,
    where the documents hold nothing of it, that it cannot do what it is told to, nor tell what is to come.

    Args:
        retriever: A `HopfieldRetriever`, not one over a vector store.
        name: What the planner and the chain call this action.

    Raises:
        InputError: It is none.

    Example:
        >>> import asyncio
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
        """What the planner reads: what this is for, how many documents there are, and some of their titles."""
        collection = self._collections.current()
        titles: list[str] = []
        words = 0
        for entry in collection.entries:
            words += len(entry.title.split())
            if titles and words > _TITLE_WORDS:
                break
            titles.append(entry.title)
        named = f"{'; '.join(titles)}{'; …' if len(titles) < len(collection.entries) else ''}"
        return (
            "lists, counts, summarises and compares whole documents; for questions about the collection itself. "
            f"{counted(collection)}{f': {named}' if titles else '.'}"
        )

    def recognises(self, question: str, history: Sequence[tuple[str, str]] = ()) -> Recognition:
        """Whether a question has the form of one about the collection, and names documents that are there."""
        wanted = read(question, history)
        # Most questions are told from their words, before anything of the collection is asked.
        if wanted is None or (wanted.is_about_some and not self._collections.current().has(wanted)):
            return ""
        # A document may tell of what is to be done or to come.
        return "beside" if wanted.kind in ("deed", "future") else "alone"

    async def retrieve(self, request: ActionRequest) -> list[Document]:
        return await asyncio.to_thread(settled, lambda: self._found(request))

    def _found(self, request: ActionRequest) -> list[Document]:
        collection = self._collections.current()
        for text in filter(None, (request.sub_question, request.action_input)):
            wanted = read(text, request.history)
            if wanted is not None and (found := _evidence(collection, wanted, request.k)):
                return found
        # The planner may ask in words of its own.
        if named := collection.mentioned(f"{request.sub_question} {request.action_input}"):
            return covering(collection, named, request.k)
        return _contents(collection, Wanted("contents"))


def _evidence(collection: Collection, wanted: Wanted, k: int) -> list[Document]:
    if wanted.kind in ("summary", "comparison"):
        named = collection.named(wanted)
        return covering(collection, named, k) if named else []
    if wanted.kind in ("assistant", "deed", "future"):
        return [abilities(collection, wanted.kind)]
    if wanted.kind == "topics":
        return _topics(collection)
    return _contents(collection, wanted) if wanted.kind == "contents" else listing(collection, wanted)


def _contents(collection: Collection, wanted: Wanted) -> list[Document]:
    """What is there: the documents where they are few, else their topics and the first of them."""
    documents = listing(collection, replace(wanted, kind="list"))
    return documents if wanted.page or len(collection.entries) <= PAGE else [*_topics(collection), *documents[1:]]


def _topics(collection: Collection) -> list[Document]:
    if not collection.entries:
        return [said("topics", f"{counted(collection)}.")]
    topics = [
        f"{', '.join(topic.terms)} ({', '.join(f'“{title}”' for title in topic.titles)})" for topic in find_topics(collection)
    ]
    opening = f"{counted(collection)}. Its main topics, by typical words and titles, are"
    lines = "\n".join(f"{n}. {topic}" for n, topic in enumerate(topics, 1))
    return [said("topics", f"{opening} {'; '.join(topics)}.", f"{opening}:\n{lines}")]
