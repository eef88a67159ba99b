"""The action over a collection as a whole: it lists and counts documents, names topics, and covers whole documents."""

from __future__ import annotations

import asyncio
import math
import re
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

import numpy as np
from langchain_core.documents import Document

from langgraph_convcoa.actions.base import ActionRequest, BaseAction
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.corpus import Listed, View, read, settled
from langgraph_convcoa.retrieval.filters import Filter
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.text.clean import flat
from langgraph_convcoa.text.terms import plain
from langgraph_convcoa.text.words import content_tokens, content_words

PAGE = 20  # A list names at most this many documents at once.
_OF_A_PIECE = 10
_SHOWN_TITLES, _LONGEST_TITLES = 6, 100
"""The description shows at most this many titles, with at most this many characters together."""
_LONGEST_TITLE, _LONGEST_WORDS = 80, 2_000
_MOST_READ = 2_000  # Headings are read from the texts only if the collection has at most this many documents.
_DATES = ("date", "published", "publication_date", "pubdate", "year", "created", "modified")
_SUFFIX = re.compile(r"\.([a-z][a-z0-9]{1,4})(?:\.gz)?$", re.IGNORECASE)
_PARTS = ("page", "sheet", "chapter", "row")
_PLACE_KEYS = (*_PARTS, "document_id", "start", "part", "entities", "triples")
_WEB = ("http://", "https://")
_PASSAGES_OF_TOPICS = 2_000  # At most this many passages are read for topics, evenly spread over the collection.
_TERMS, _TITLES = 3, 3
_LONGEST_PASSAGE, _STARTS = 5_000, 10
Kind = Literal["list", "count", "topics"]
_LONGEST_QUESTION = 200
_PLACE = r"(?:this|the|your|my|our) (?:document )?(?:collection|corpus|knowledge base)"
_ALL = r"(?:documents?|docs?|files?|pdfs?)"
_SORTS = r"(?:documents?|docs?|files?|pdfs?|papers?|reports?|articles?|notes|texts)"
"""The last five words also mean parts of a text. A question with one of them must name the collection, an owner or a title."""
_OWNED = rf"(?:(?:do|can) (?:you|we|i) (?:have|search)(?: here| in {_PLACE})?|are (?:here|in here|in {_PLACE})|did i upload)"
_THE = r"(?:all )?(?:of )?(?:the |my |your |our |these )?"
# Every pattern names the collection, and a question must match as a whole: with one more word it is an ordinary question.
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

    The planner writes `list` or `count` (either may be followed by words that the documents must have), `topics`, or titles;
    for titles, passages of these documents are returned. A few questions are recognised without a model, such as "Which
    documents are there?".

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
        if not isinstance(retriever, HopfieldRetriever):
            raise InputError(
                f"Overview needs a HopfieldRetriever, whose documents it can list, not {type(retriever).__name__}"
            )
        if not retriever.corpus.complete:
            raise InputError("Overview cannot list the documents of a vector store: give a retriever over an index or texts")
        self.name = name
        self._retriever = retriever
        self._lock = threading.Lock()
        self._known: tuple[Any, Collection] | None = None

    def collection(self) -> Collection:
        """The collection, without the documents that the retriever's filter excludes; read again if the corpus has changed."""
        return settled(self._read)

    def _read(self) -> Collection:
        view, condition = self._retriever.corpus.snapshot(), self._retriever.filter
        # A new passage has a greater key, and a deletion lowers the number of passages.
        state = (view.source, len(view), int(view.keys[-1]) if len(view.keys) else 0, condition)
        with self._lock:
            if self._known is None or self._known[0] != state:
                self._known = (state, read_collection(view, condition))
            return self._known[1]

    def description(self) -> str:
        """The planner's instructions, the number of documents, and some titles."""
        collection = self.collection()
        titles = "; ".join(entry.title for entry in collection.entries[:_SHOWN_TITLES])[:_LONGEST_TITLES]
        return (
            "lists, counts, summarises and compares whole documents; action_input: list, list 21, list WORDS, count, topics, "
            f"or titles. {counted(collection)}{f': {titles} …' if titles else '.'}"
        )

    def recognises(self, question: str, history: Sequence[tuple[str, str]] = ()) -> bool:
        """True for a question about the collection. If it names words, at least one document must have them."""
        wanted = read_question(question)
        if wanted is None or wanted.words in ("", "pdf"):
            return wanted is not None
        return settled(lambda: bool(self.collection().having(wanted.words)))

    async def retrieve(self, request: ActionRequest) -> list[Document]:
        return await asyncio.to_thread(settled, lambda: self._found(request))

    def _found(self, request: ActionRequest) -> list[Document]:
        collection = self.collection()
        given = request.action_input.strip()
        wanted = read_input(given) or (None if given else read_question(request.sub_question))
        if wanted is None:
            named = collection.named(f"{given} {request.sub_question}") or (collection.having(given) if given else [])
            if 0 < len(named) <= 5:
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
    """A sentence, without a full stop, with the numbers of documents, of passages, and of documents in each format."""
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
    """About k passages, evenly spread over the documents: the first passage of each document, then others in turns."""
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
    """A question about a collection: `words` that the documents must have, and the number of the `first` document to list."""

    kind: Kind
    words: str = ""
    first: int = 1


def read_question(question: str) -> Wanted | None:
    """Read what a question asks about the collection; None for an ordinary question."""
    if len(question) > _LONGEST_QUESTION:
        return None
    text = re.sub(r"\bwhat's\b", "what is", flat(question).lower().replace("’", "'")).rstrip(" ?!.")
    text = _POLITE.sub("", text)
    for kind, pattern in _FORMS:
        if found := pattern.fullmatch(text):
            return Wanted(kind, found.groupdict().get("about") or "pdf" * bool(re.search(r"\bpdfs?\b", text)))
    return None


def read_input(text: str) -> Wanted | None:
    """Read the planner's input: "list", "list 21", "list WORDS", "count WORDS" or "topics". Returns None for titles.

    Example:
        >>> read_input("list 21"), read_input("count: reports 2023"), read_input("BM25")
        (Wanted(kind='list', words='', first=21), Wanted(kind='count', words='reports 2023', first=1), None)
    """
    if (found := _INPUT.fullmatch(text.strip())) is None:
        return None
    kind: Kind = found[1].lower()  # type: ignore[assignment]
    return Wanted(kind, found[3].strip(), max(1, int(found[2] or 1)))


@dataclass(frozen=True)
class Entry:
    """A document of a collection: its title, its source ("" if unknown), its passages' numbers, its date and metadata."""

    title: str
    source: str
    numbers: tuple[int, ...]
    date: str
    metadata: Mapping[str, Any] = field(repr=False)

    @property
    def suffix(self) -> str:
        """The format, such as "pdf"; "web" for a page of the web, "" if the source has none."""
        if self.source.startswith(_WEB):
            return "web"
        found = _SUFFIX.search(self.source)
        return found[1].lower() if found else ""

    @property
    def file(self) -> str:
        """The file's name, or ""."""
        return self.source.rsplit("/", 1)[-1] if self.suffix else ""

    @cached_property
    def names(self) -> tuple[frozenset[str], ...]:
        """The words of the title, and of the file's name without its suffix."""
        return tuple(filter(None, map(_words, (self.title, self.file.rsplit(".", 1)[0]))))

    @cached_property
    def words(self) -> frozenset[str]:
        """The words of the title, the file's name and the values of the metadata."""
        values = [str(value) for key, value in self.metadata.items() if key not in _PLACE_KEYS]
        return _words(" ".join([self.title, self.file, *values])[:_LONGEST_WORDS])


@dataclass(frozen=True, eq=False)
class Collection:
    """The documents of one state of a corpus, in the order of the corpus."""

    view: View
    entries: tuple[Entry, ...]

    @cached_property
    def _headings(self) -> list[frozenset[str]]:
        """The words of each document's first line: a heading may say what the title does not."""
        if len(self.entries) > _MOST_READ:
            return [frozenset()] * len(self.entries)
        passages = self.view.fetch([entry.numbers[0] for entry in self.entries])
        lines = [passage.document.page_content.strip().partition("\n")[0] for passage in passages]
        # A long line is ordinary text. In a PDF, its beginning may still be the heading.
        return [_words(line if len(line) <= _LONGEST_TITLE else line[: _LONGEST_TITLE // 2]) for line in lines]

    def having(self, text: str) -> list[Entry]:
        """The documents that have all words of a text in title, file name, metadata or heading; all if there are no words."""
        words = _words(text)
        if not words:
            return list(self.entries)
        return [entry for entry, heading in zip(self.entries, self._headings, strict=True) if words <= entry.words | heading]

    def named(self, text: str) -> list[Entry]:
        """The documents that a text names: all words of the title, or of the file name, are in the text."""
        words = _words(text)
        return [entry for entry in self.entries if any(name <= words for name in entry.names)]


def read_collection(view: View, condition: Filter | None) -> Collection:
    """The documents of a corpus that a filter allows. Pages of a file are one document."""
    allowed = view.allowed(condition)
    parts: dict[tuple[str, str], tuple[Listed, list[int]]] = {}
    titles: dict[str, str] = {}
    for listed in view.listed():
        source, title = str(listed.metadata.get("source") or ""), str(listed.metadata.get("title") or "")
        in_file = _SUFFIX.search(source) is not None and not source.startswith(_WEB)
        is_part = in_file and any(key in listed.metadata for key in _PARTS)
        # The pages of a file are one document, under its first title. So are texts that share a title and have no source.
        key = (source, titles.setdefault(source, title) if is_part else title)
        key = key if any(key) else ("", listed.id)
        numbers = listed.numbers if allowed is None else [n for n in listed.numbers if allowed[n]]
        if numbers:
            parts.setdefault(key, (listed, []))[1].extend(numbers)
    entries = []
    for (source, title), (first, own) in parts.items():
        date = next((str(first.metadata[key]) for key in _DATES if re.match(r"\d{4}", str(first.metadata.get(key)))), "")
        shown = flat(title or source.rsplit("/", 1)[-1] or first.id)
        entries.append(Entry(shown[:_LONGEST_TITLE], source, tuple(own), date[:10], first.metadata))
    return Collection(view, tuple(entries))


def _words(text: str) -> frozenset[str]:
    return frozenset(content_words(re.sub(r"[_\-.]", " ", plain(text))))


def find_topics(collection: Collection) -> list[str]:
    """Typical words and titles of each topic, the largest topic first. There are sqrt(passages / 2) topics, at most 8.

    k-means over the whole-passage patterns, with a fixed seed. A word is typical if it is in a larger share of the topic's
    passages than of all passages.
    """
    from scipy.cluster.vq import kmeans, vq

    view = collection.view
    owners = [entry for entry in collection.entries for _ in entry.numbers]
    every = np.array([number for entry in collection.entries for number in entry.numbers])
    kept = np.unique(np.linspace(0, len(every) - 1, min(len(every), _PASSAGES_OF_TOPICS)).astype(np.int64))
    patterns = view.patterns
    whole = patterns.take(patterns.offsets[every[kept]])
    means, _ = kmeans(whole, min(8, max(1, round(math.sqrt(len(kept) / 2)))), iter=_STARTS, seed=0)
    labels, distances = vq(whole, means)
    held = [_written(passage.document.page_content) for passage in read(view, every[kept])]
    everywhere = Counter(form for forms in held for form in forms)
    topics: list[tuple[int, str]] = []
    for label in range(len(means)):
        own = np.flatnonzero(labels == label)
        own = own[np.argsort(distances[own], kind="stable")]
        inside = Counter(form for n in own for form in held[n])
        # The contribution of each word to the divergence of the topic from the collection.
        more = {form: n * math.log(n * len(held) / (len(own) * everywhere[form])) for form, n in inside.items()}
        best = sorted(more, key=lambda form: (-more[form], -inside[form], form))[:_TERMS]
        terms = [Counter(held[n][form] for n in own if form in held[n]).most_common(1)[0][0] for form in best]
        titles = [f"“{title}”" for title in dict.fromkeys(owners[kept[n]].title for n in own)][:_TITLES]
        topics.append((len(own), f"{', '.join(terms)} ({', '.join(titles)})"))
    return [topic for _, topic in sorted(topics, key=lambda topic: -topic[0])]


def _written(text: str) -> dict[str, str]:
    found = content_tokens(text[:_LONGEST_PASSAGE])
    return {token.item: token.raw for token in found if len(token.raw) > 2 and token.raw.isalpha()}
