"""The corpus in an engine: the engine names candidates for a question, and the exact score ranks them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn, cast

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.changes import Committed, check_deletable, distinct, documents_of
from langgraph_convcoa.retrieval.corpus import Corpus, Passage, View
from langgraph_convcoa.retrieval.documents.split import document_id
from langgraph_convcoa.retrieval.encoders.base import Encoder, Vectors
from langgraph_convcoa.retrieval.engine.base import Engine, StoredPassage, bm25, within
from langgraph_convcoa.retrieval.engine.load import ingest
from langgraph_convcoa.retrieval.filters import Filter
from langgraph_convcoa.retrieval.hybrid.bm25 import heaviest, idf, turn_words
from langgraph_convcoa.retrieval.memory_corpus import Memory
from langgraph_convcoa.retrieval.patterns import Patterns
from langgraph_convcoa.retrieval.query.conversation_state import Query
from langgraph_convcoa.text.words import content_words

# Passages that an engine names for a question by vector, and the same number by words.
CANDIDATES = 50
# The best BM25 of all passages is looked for among this many first passages by words.
_BEST = 5


@dataclass(frozen=True, eq=False)
class Candidates(Memory):
    """The passages that an engine named for one question, with everything needed to rank them."""

    engine: Engine | None = None
    # BM25 over the best score of all passages, (c, n): row 0 for the question's words, row 1 with the turns' words too.
    lexical: Vectors = field(default_factory=lambda: np.zeros((0, 0), dtype=np.float32))

    def allowed(self, condition: Filter | None) -> npt.NDArray[np.bool_] | None:
        # The engine has already applied the filter.
        return None

    def check_encoder(self, encoder: Encoder) -> None:
        if self.engine is not None:
            self.engine.open(encoder.dimension, encoder.name)


class EngineCorpus(Corpus):
    """Passages of one tenant in one collection of an engine; the arguments are those of `HopfieldRetriever.from_engine`.

    The engine names the passages that fit best by vector, and by words of the question and of earlier turns. Only these
    can be found, so nothing is certified. The idf of a word counts all passages of the tenant.
    """

    complete: ClassVar[bool] = False

    def __init__(self, engine: Engine, *, candidates: int = CANDIDATES) -> None:
        if isinstance(candidates, bool) or not isinstance(candidates, int) or candidates < 1:
            raise InputError(f"candidates must be a whole number of at least 1, not {candidates!r}.")
        self.engine = engine
        self.candidates = candidates
        self.bm25 = self

    def __len__(self) -> int:
        return self.engine.count()

    def __repr__(self) -> str:
        return f"EngineCorpus({self.engine!r})"

    def snapshot(self) -> View:
        """An empty view: an engine names passages only for a question."""
        return _candidates([], self.engine)

    def view(self, query: Query) -> View:
        """The candidates for one question; RetrievalError if the engine fails or exceeds its time-out."""
        count, tops = max(query.k, self.candidates), dict[str, None]()
        with within(self.engine.timeout):
            self.engine.open(query.encoder.dimension, query.encoder.name)
            named = dict.fromkeys(name for found in self.engine.search(query.states, count, query.filter) for name in found)
            channels, mean_length = self._channels(query) if query.lexical_weight else ([], 1.0)
            for weights in channels:
                named |= dict.fromkeys(self.engine.words(weights, mean_length, count, query.filter))
                if query.filter is not None:
                    # Scores are divided by the best of all passages, including those that the filter leaves out.
                    tops |= dict.fromkeys(self.engine.words(weights, mean_length, _BEST))
            there = self.engine.patterns([*(named | tops)])
        lexical = np.array([_bm25(there, weights, mean_length) for weights in channels], dtype=np.float32)
        lexical = lexical.reshape(len(channels), len(there))
        chosen = sorted((i for i, passage in enumerate(there) if passage.id in named), key=lambda i: there[i].id)
        return _candidates([there[i] for i in chosen], self.engine, lexical=lexical[:, chosen])

    def scores(self, view: View, _queries: Sequence[str], turns: Sequence[Sequence[tuple[str, str]]] | None = None) -> Vectors:
        """BM25 of the candidates over the best of all passages, (1, n), as computed when the engine named them."""
        lexical = cast(Candidates, view).lexical
        return lexical[:1] if turns is None else lexical[1:2]

    def _channels(self, query: Query) -> tuple[list[dict[str, float]], float]:
        """Word weights times idf: for the question and, if it has turns, for question and turns. Also the mean length."""
        own, earlier = Counter(content_words(query.questions[0])), query.turns[0]
        said = turn_words(earlier, own) if earlier else {}
        statistics = self.engine.statistics({**own, **said})
        found = statistics.frequencies
        channels: list[dict[str, float]] = [{**own}]
        if earlier:
            channels.append({**own, **heaviest(said, statistics.passages, found)})
        weighed = [
            {word: weight * float(idf(statistics.passages, found[word])) for word, weight in words.items() if found.get(word)}
            for words in channels
        ]
        return weighed, statistics.mean_length

    def beside(self, view: View, number: int, count: int) -> tuple[list[Passage], list[Passage]]:
        """The passages before and after a passage in its document; the nearest come first."""
        [found] = view.fetch([number])
        name, _, place = str(found.document.id).rpartition("#")
        if not place.isdecimal() or name != document_id(found.document):
            return [], []
        ids = [[f"{name}#{int(place) + sign * step}" for step in range(1, count + 1)] for sign in (-1, 1)]
        there = {passage.id: passage for passage in self.engine.patterns([*ids[0], *ids[1]])}
        before, after = ([_passage(there[name]) for name in side if name in there] for side in ids)
        return before, after

    def ingest(self, documents: Iterable[Document], encoder: Encoder, **options: Any) -> Iterator[Committed]:
        return ingest(self.engine, documents, encoder, **options)

    def delete(self, ids: Iterable[str]) -> list[str]:
        names = distinct(ids)
        if not names or not len(self):
            return []
        there, engine = self.engine.digests(names), self.engine
        gone = check_deletable(names, there, lambda unknown: {one.id: one.document for one in engine.patterns(unknown)})
        engine.delete(gone)
        return gone

    def documents(self, ids: Iterable[str]) -> list[Document]:
        names = distinct(ids)
        if not names or not len(self):
            return []
        parts = self.engine.parts(names)
        wanted = [*(part for own in parts.values() for part in own), *(name for name in names if name not in parts)]
        there = {passage.id: _passage(passage).document for passage in self.engine.patterns(wanted)}
        return documents_of(names, [there[part] for part in wanted if part in there])

    def compact(self) -> None:
        self.engine.settle()

    def close(self) -> None:
        self.engine.close()

    def keep_settings(self, *_arguments: Any, **_settings: Any) -> NoReturn:
        raise InputError("This retriever is over an engine, which keeps the documents; save its settings in your program.")


def _bm25(passages: Sequence[StoredPassage], weights: Mapping[str, float], mean_length: float) -> Vectors:
    """BM25 of each passage divided by the best score, (n,)."""
    scores = np.array([bm25(passage, weights, mean_length) for passage in passages])
    best = scores.max(initial=0.0)
    return np.asarray(scores / best if best > 0 else scores, dtype=np.float32)


def _passage(stored: StoredPassage) -> Passage:
    document = Document(id=stored.id, page_content=stored.text, metadata=dict(stored.metadata))
    return Passage(document, list(stored.spans))


def _candidates(passages: Sequence[StoredPassage], engine: Engine, **parts: Any) -> Candidates:
    vectors = [passage.vectors for passage in passages]
    values = np.concatenate(vectors) if vectors else np.zeros((0, 0), dtype=np.float32)
    offsets = np.cumsum([0, *map(len, vectors)], dtype=np.int64)
    found = [_passage(passage) for passage in passages]
    documents, spans = [one.document for one in found], [one.spans for one in found]
    return Candidates(documents, Patterns(np.ascontiguousarray(values), offsets), spans, engine=engine, **parts)
