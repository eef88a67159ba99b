"""The corpus that a retriever searches: one interface for passages in memory, on disk, in a vector store and in an engine."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
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
from langgraph_convcoa.retrieval.patterns import Patterns, PatternType
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.retrieval.query.conversation_state import Query

if TYPE_CHECKING:
    from langgraph_convcoa.retrieval.graph.index import GraphFollower

# Passages, by their numbers in a view or by their keys.
Numbers: TypeAlias = npt.NDArray[np.int64]
# A search or a reading is tried this many times if the corpus changes meanwhile.
ATTEMPTS = 5
_READ_AT_ONCE = 1000

Result = TypeVar("Result")


@dataclass(frozen=True)
class Passage:
    """A passage, and the places of its windows in its text."""

    document: Document
    spans: list[Span]


class Listed(NamedTuple):
    """A document of a view without its text."""

    id: str
    metadata: Mapping[str, Any]  # Metadata of its first passage.
    numbers: list[int]  # Numbers of its passages.


class StaleSnapshot(RetrievalError):
    """A found passage was deleted before it was read; search again."""


class View(Protocol):
    """One state of a corpus, fixed during a search: n multi-vector passages, numbered from 0."""

    @property
    def source(self) -> str:
        """An id of the corpus in which the keys are valid."""

    @property
    def keys(self) -> npt.NDArray[np.int64]:
        """(n,): the key of each passage, in rising order. A key is the same in all states and never reused."""

    @property
    def numbers(self) -> Numbers:
        """The numbers of the passages that are not deleted."""

    @property
    def patterns(self) -> Patterns:
        """The patterns of all n passages, checked for damage."""

    def __len__(self) -> int:
        """Number of passages that are not deleted."""

    def fetch(self, numbers: Sequence[int]) -> list[Passage]:
        """The passages with these numbers; StaleSnapshot if a passage was deleted meanwhile."""

    def listed(self) -> list[Listed]:
        """The documents in the order of their first passages."""

    def allowed(self, condition: Filter | None) -> npt.NDArray[np.bool_] | None:
        """(n,), True for passages that exist and meet the condition; None if all do."""

    def check_encoder(self, encoder: Encoder) -> None:
        """Raise RetrievalError if the passages were encoded by another encoder."""


class Lexical(Protocol):
    """BM25 scores over a corpus."""

    def scores(
        self, view: View, queries: Sequence[str], turns: Sequence[Sequence[tuple[str, str]]] | None = None, /
    ) -> Vectors:
        """BM25 of each passage, divided by the query's best score, (q, n); with `turns`, words of earlier turns count too."""


class Corpus(Protocol):
    """The passages that a `HopfieldRetriever` searches. Subclass it to inherit the defaults."""

    complete: ClassVar[bool] = True  # False if a view holds only candidates for one question.
    path: Path | None = None  # Folder of the corpus.
    bm25: Lexical | None = None
    graph: GraphFollower | None = None

    def __len__(self) -> int:
        """Number of passages."""
        return len(self.snapshot())

    @abstractmethod
    def snapshot(self) -> View:
        """The current state of the corpus."""

    def view(self, query: Query) -> View:
        """The state in which the questions are searched."""
        return self.snapshot()

    async def aview(self, query: Query) -> View:
        """`view`, without blocking the event loop."""
        return await run_in_executor(None, self.view, query)

    def beside(self, view: View, number: int, count: int) -> tuple[list[Passage], list[Passage]]:
        """Up to `count` passages before a passage of a view, and as many after it; each list begins with the nearest."""
        live = view.numbers
        place = int(np.searchsorted(live, number))
        before, after = live[max(0, place - count) : place][::-1], live[place + 1 : place + 1 + count]
        return _until_gone(view, before), _until_gone(view, after)

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
        """Add documents in one or more commits; each yielded result has been committed.

        Documents that exist with the same id and content are skipped. With `replace`, a document replaces the stored document
        that has the same id. Otherwise, other content under the same id is an error.
        """

    @abstractmethod
    def delete(self, ids: Iterable[str]) -> list[str]:
        """Delete the documents with these ids, all or none, and return the ids that existed.

        InputError for the id of a part of a longer document.
        """

    @abstractmethod
    def documents(self, ids: Iterable[str]) -> list[Document]:
        """Copies of the documents, or of passages of longer documents, with these ids, in order; skips missing ids."""

    def default_settings(self) -> dict[str, Any]:
        """Default settings of a retriever over this corpus."""
        return {}

    def save_lexical(self) -> bool:
        """Write the BM25 index to disk; False if the corpus is not on disk, or the file cannot be written."""
        return False

    def compact(self) -> None:
        """Free the space of deleted documents."""
        return

    def close(self) -> None:
        """Close the connections of the corpus, if there are any."""
        return

    def keep_settings(self, path: str | Path, settings: Mapping[str, Any], dtype: PatternType | None) -> bool:
        """Store a retriever's settings with the corpus; False if the corpus is not stored at this path."""
        return False


def settled(reading: Callable[[], Result]) -> Result:
    """Return the result of `reading`, called again if the corpus changes; StaleSnapshot if the corpus keeps changing."""
    for _ in range(ATTEMPTS - 1):
        with suppress(StaleSnapshot):
            return reading()
    return reading()


def read(view: View, numbers: Numbers | None = None) -> Iterator[Passage]:
    """The passages with these numbers, fetched in batches; all passages if `numbers` is None."""
    chosen = view.numbers if numbers is None else numbers
    for start in range(0, len(chosen), _READ_AT_ONCE):
        yield from view.fetch(chosen[start : start + _READ_AT_ONCE].tolist())


def _until_gone(view: View, numbers: Numbers) -> list[Passage]:
    """The passages with these numbers, up to the first deleted passage."""
    found: list[Passage] = []
    with suppress(StaleSnapshot):
        for number in numbers.tolist():
            found += view.fetch([number])
    return found
