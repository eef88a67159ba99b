"""The action that lists and counts the documents of a collection, names its topics, and covers whole documents.

A few English questions are recognised without a model. All of them name the collection, and must match a pattern as a whole:
one word more makes an ordinary question.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from typing import Literal, NamedTuple

import numpy as np
from langchain_core.documents import Document

from langgraph_convcoa.actions.base import ActionRequest, BaseAction
from langgraph_convcoa.actions.overview.collection import Collection, Collections, Entry, find_topics
from langgraph_convcoa.retrieval.corpus import settled
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.text.clean import flat

PAGE = 20
"""A list names at most this many documents at once."""
_OF_A_PIECE = 10
_MOST_COVERED = 5
_TITLES, _LONGEST_TITLES = 6, 100
"""The description shows at most this many titles, with at most this many characters together."""
Kind = Literal["list", "count", "topics"]
_LONGEST = 200
_PLACE = r"(?:this|the|your|my|our) (?:document )?(?:collection|corpus|knowledge base)"
_ALL = r"(?:documents?|docs?|files?|pdfs?)"
_SORTS = r"(?:documents?|docs?|files?|pdfs?|papers?|reports?|articles?|notes|texts)"
"""The last five may also name parts of a text. They need a place, an owner, or titles with the words of the question."""
_OWNED = rf"(?:(?:do|can) (?:you|we|i) (?:have|search)(?: here| in {_PLACE})?|are (?:here|in here|in {_PLACE})|did i upload)"
_THE = r"(?:all )?(?:of )?(?:the |my |your |our |these )?"
_PATTERNS: list[tuple[Kind, str]] = [
    ("list", rf"what is (?:in here|in {_PLACE}|{_PLACE} about)|what (?:does|do) {_PLACE} (?:contain|cover|have)"),
    ("list", rf"what (?:is|are) (?:in )?(?:the|my|your|our|these) {_ALL} about|(?:which|what) {_ALL} (?:are there|exist)"),
    ("list", rf"(?:list|show(?: me)?|name|give me) {_THE}{_ALL}(?: (?:that )?(?:you|we|i) have| in {_PLACE})?"),
    ("list", rf"(?:which|what) {_SORTS} {_OWNED}"),
    (
        "list",
        rf"(?:(?:which|what) {_SORTS} (?:are|talk)|(?:list|show(?: me)?) {_THE}{_SORTS}) (?:about|on|from) (?P<about>.+)",
    ),
    ("list", rf"(?:(?:is|are) there|do you have) (?:an? |any )?{_SORTS} (?:about|on) (?P<about>.+)"),
    ("count", rf"how many {_ALL} (?:are there|exist)|how (?:large|big) is {_PLACE}"),
    ("count", rf"how many {_SORTS} (?:{_OWNED}|(?:does|do) {_PLACE} (?:have|contain))"),
    ("count", rf"(?:which|what) (?:file|document) (?:types|formats|kinds) (?:{_OWNED}|are there)"),
    ("topics", rf"what are the (?:main |key )?topics(?: (?:of|in) (?:{_PLACE}|the documents)| here)?"),
    ("topics", rf"(?:which|what) topics do(?:es)? (?:{_PLACE}|the documents) cover"),
]
_FORMS = [(kind, re.compile(pattern)) for kind, pattern in _PATTERNS]
_POLITE = re.compile(r"^(?:please |(?:can|could) you (?:please )?)|,? please$")
_INPUT = re.compile(r"(list|count|topics)\b[\s:]*(?:from )?(\d{1,3}\b(?!\d))?(.*)", re.IGNORECASE | re.DOTALL)


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
        if wanted.kind != "topics" or not collection.entries:
            return listing(collection, wanted)
        topics = find_topics(collection)
        opening = f"{counted(collection)}. Its main topics, by typical words and titles, are"
        lines = "\n".join(f"{n}. {topic}" for n, topic in enumerate(topics, 1))
        return [_said("topics", f"{opening} {'; '.join(topics)}.", f"{opening}:\n{lines}")]


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
        document.model_copy(update={"metadata": {**document.metadata, "title": title, "score": 1 / n}})
        for n, (title, document) in enumerate(found, 1)
    ]


class Wanted(NamedTuple):
    """A question about a collection: `words` that the documents must have, and the number of the `first` one to list."""

    kind: Kind
    words: str = ""
    first: int = 1


def read_question(question: str) -> Wanted | None:
    """What a question asks of the collection; None for an ordinary question.

    Example:
        >>> read_question("How many files do I have?"), read_question("Which documents are about the Lark-2?").words
        (Wanted(kind='count', words='', first=1), 'the lark-2')
        >>> read_question("How many articles does the constitution have?")
    """
    if len(question) > _LONGEST:
        return None
    text = re.sub(r"\bwhat's\b", "what is", flat(question).lower().replace("’", "'")).rstrip(" ?!.")
    text = _POLITE.sub("", text)
    for kind, pattern in _FORMS:
        if found := pattern.fullmatch(text):
            return Wanted(kind, found.groupdict().get("about") or "pdf" * bool(re.search(r"\bpdfs?\b", text)))
    return None


def read_input(text: str) -> Wanted | None:
    """What the planner asks for: "list", "list 21", "list WORDS", "count WORDS" or "topics"; None for titles.

    Example:
        >>> read_input("list 21"), read_input("count: reports 2023"), read_input("BM25")
        (Wanted(kind='list', words='', first=21), Wanted(kind='count', words='reports 2023', first=1), None)
    """
    if (found := _INPUT.fullmatch(text.strip())) is None:
        return None
    kind: Kind = found[1].lower()  # type: ignore[assignment]
    return Wanted(kind, found[3].strip(), max(1, int(found[2] or 1)))
