"""The corpus that a retriever searches: one interface of passages in memory, of an index on disk and of a vector store."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document
from langchain_core.runnables.config import run_in_executor

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.changes import Committed
from langgraph_convcoa.retrieval.documents.split import Span
from langgraph_convcoa.retrieval.encoders.base import Encoder, Vectors
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.filters import Filter
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.retrieval.scoring.patterns import Patterns, PatternType

if TYPE_CHECKING:
    from langgraph_convcoa.retrieval.graph.index import GraphFollower
    from langgraph_convcoa.retrieval.graph.settings import GraphSettings

Numbers: TypeAlias = npt.NDArray[np.int64]
"""Passages by their numbers in a view."""

ATTEMPTS = 5
"""How often what has changed meanwhile is searched or read again."""
_READ_AT_ONCE = 1000

Result = TypeVar("Result")


@dataclass(frozen=True)
class Passage:
    """A passage, and where its windows stand in its text."""

    document: Document
    spans: list[Span]


class Listed(NamedTuple):
    """A document of a view without its text: its id, the metadata of its first passage, and the numbers of its passages."""

    id: str
    metadata: Mapping[str, Any]
    numbers: list[int]


class StaleSnapshot(RetrievalError):
    """A passage was deleted between the search that found it and its reading; search again."""


@dataclass(frozen=True, eq=False)
class Query:
    """Questions in their conversations, and how passages are scored for them, with the settings of `HopfieldRetriever`."""

    questions: Sequence[str]  # q questions.
    turns: Sequence[Sequence[tuple[str, str]]]  # The earlier turns of each, oldest first.
    states: Vectors  # Their query states, (q, d).
    k: int  # How many passages are wanted for each.
    encoder: Encoder
    beta: float = 10.0
    passage_weight: float = 1.0
    lexical_weight: float = 0.0
    lexical_history: float = 0.0
    history_weight: float = 0.0
    history_beta: float = 1.0
    filter: Filter | None = None
    score_threshold: float | None = None
    graph: GraphSettings | None = None

    def one(self, row: int) -> Query:
        """One of the questions."""
        part = slice(row, row + 1)
        return replace(self, questions=self.questions[part], turns=self.turns[part], states=self.states[part])


class View(Protocol):
    """One state of a corpus, as a search sees it from its start to its end: n multi-vector passages, numbered from 0."""

    @property
    def source(self) -> str:
        """Where the keys are valid: no two corpora have the same."""

    @property
    def keys(self) -> npt.NDArray[np.int64]:
        """(n,), growing: the key of each passage, which stays its own in all states and is never given to another."""

    @property
    def numbers(self) -> Numbers:
        """The numbers of the passages that are not deleted."""

    @property
    def dimension(self) -> int:
        """Length d of a pattern."""

    @property
    def patterns(self) -> Patterns:
        """The patterns of all n passages, checked for damage."""

    def patterns_for(self, sets: Numbers) -> Patterns:
        """The patterns of all passages, checked only as far as these need it."""

    def __len__(self) -> int:
        """How many passages are there, deleted ones not counted."""

    def fetch(self, numbers: Sequence[int]) -> list[Passage]:
        """The passages of these numbers; raises StaleSnapshot where one has been deleted since."""

    def listed(self) -> list[Listed]:
        """The documents that are there, in the order of their first passages."""

    def allowed(self, condition: Filter | None) -> npt.NDArray[np.bool_] | None:
        """(n,), True for the passages that are there and meet the condition; None where all do."""

    def check_encoder(self, encoder: Encoder) -> None:
        """Raise RetrievalError for an encoder that the passages were not encoded with."""


class Lexical(Protocol):
    """The weighing of words in a corpus."""

    def scores(
        self, view: View, queries: Sequence[str], turns: Sequence[Sequence[tuple[str, str]]] | None = None, /
    ) -> Vectors:
        """BM25 of every passage for each query over the query's best, (q, n), or that of the turns' words with the query's."""


class Corpus(Protocol):
    """What a `HopfieldRetriever` searches. Subclass it for the defaults."""

    complete: ClassVar[bool] = True  # Whether a view holds the whole corpus, not the candidates of one question.
    path: Path | None = None  # The folder that it is kept in.
    bm25: Lexical | None = None  # None where words cannot be weighed.
    graph: GraphFollower | None = None  # None where there is no evidence graph to walk along.

    @abstractmethod
    def __len__(self) -> int:
        """How many passages it has."""

    @abstractmethod
    def snapshot(self) -> View:
        """The present state."""

    def view(self, query: Query) -> View:
        """The state that questions are searched in."""
        return self.snapshot()

    async def aview(self, query: Query) -> View:
        """`view`, without blocking the event loop."""
        return await run_in_executor(None, self.view, query)

    def beside(self, view: View, number: int, count: int) -> tuple[list[Passage], list[Passage]]:
        """Up to so many passages before and after one of a view, in the order of the corpus, the nearest first."""
        live = view.numbers
        place = int(np.searchsorted(live, number))
        before, after = live[max(0, place - count) : place][::-1], live[place + 1 : place + 1 + count]
        return _until_gone(view, before.tolist()), _until_gone(view, after.tolist())

    @abstractmethod
    def ingest(
        self,
        documents: Iterable[Document],
        encoder: Encoder,
        *,
        replace: bool = False,
        cache: PatternCache | None = None,
        progress: Progress = False,
    ) -> Iterator[Committed]:
        """Add documents, one commit at a time; what is given back has been committed.

        Documents that are there with the same id and content are passed over. With `replace` a document takes the place of
        the one that has its id, which is an error otherwise.
        """

    @abstractmethod
    def delete(self, ids: Iterable[str]) -> list[str]:
        """Delete the documents of these ids that are there, at once, and return their ids.

        InputError, with nothing deleted, where an id is that of a passage of a longer document.
        """

    @abstractmethod
    def documents(self, ids: Iterable[str]) -> list[Document]:
        """The documents, or passages of longer ones, of these ids that are there, in this order, to be the caller's."""

    def default_settings(self) -> dict[str, Any]:
        """Settings of a retriever over it, where none are given."""
        return {}

    def save_lexical(self) -> bool:
        """Write its BM25 index beside it, where it is on disk; False where it is not, or cannot be written."""
        return False

    def compact(self) -> None:
        """Free the space of what was deleted, where it takes any."""
        return

    def close(self) -> None:
        """Close its connections, if it has any."""
        return

    def keep_settings(self, path: str | Path, settings: Mapping[str, Any], dtype: PatternType | None) -> bool:
        """Keep a retriever's settings with a corpus that is stored at this path; False where that is not its place."""
        return False


def settled(reading: Callable[[], Result]) -> Result:
    """What is read of the present state, read again where that changes meanwhile; StaleSnapshot where it does so always."""
    for _ in range(ATTEMPTS - 1):
        with suppress(StaleSnapshot):
            return reading()
    return reading()


def read(view: View, numbers: Numbers | None = None) -> Iterator[Passage]:
    """Passages in the order of their numbers, some at a time; all that are not deleted when None."""
    chosen = view.numbers if numbers is None else numbers
    for start in range(0, len(chosen), _READ_AT_ONCE):
        yield from view.fetch(chosen[start : start + _READ_AT_ONCE].tolist())


def _until_gone(view: View, numbers: Sequence[int]) -> list[Passage]:
    """The passages of these numbers up to the first that was deleted since the search."""
    found: list[Passage] = []
    with suppress(StaleSnapshot):
        for number in numbers:
            found += view.fetch([number])
    return found
