"""The pattern store: every passage as a memory set of window patterns beside one pattern of the whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.base import Encoder, Vectors
from langgraph_convcoa.retrieval.cache import PatternCache, encode_patterns
from langgraph_convcoa.retrieval.passages import Span, pattern_text, split_documents, windows
from langgraph_convcoa.retrieval.progress import Progress


@dataclass(frozen=True, eq=False)
class Memory:
    """Passages and their patterns (DESIGN section 4: a document is a memory set).

    Attributes:
        passages: n documents with ids.
        whole: y_0 of each passage, (n, d).
        windows: The memory sets Y one after another, (N, d); y_0 is not among them.
        offsets: (n + 1,); the windows of passage i are rows offsets[i] to offsets[i + 1], at least one.
        spans: Where each window stands in its passage's text, (N, 2), in characters.
    """

    passages: list[Document]
    whole: Vectors
    windows: Vectors
    offsets: npt.NDArray[np.int64]
    spans: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        n, d = self.whole.shape
        sizes = np.diff(self.offsets)
        if len(self.passages) != n or self.offsets.shape != (n + 1,) or (n and sizes.min() < 1):
            raise RetrievalError("The memory does not fit together: every passage needs one pattern and at least one window.")
        if self.windows.shape != (self.offsets[-1], d) or self.spans.shape != (self.offsets[-1], 2):
            raise RetrievalError("The memory does not fit together: windows and offsets do not agree.")

    def __len__(self) -> int:
        return len(self.passages)

    @property
    def dimension(self) -> int:
        """Length d of a pattern."""
        return int(self.whole.shape[1])

    def set_spans(self, index: int) -> list[Span]:
        """Where the windows of a passage stand in its text."""
        return [(int(a), int(b)) for a, b in self.spans[self.offsets[index] : self.offsets[index + 1]]]


EMPTY = Memory(
    passages=[],
    whole=np.zeros((0, 0), dtype=np.float32),
    windows=np.zeros((0, 0), dtype=np.float32),
    offsets=np.zeros(1, dtype=np.int64),
    spans=np.zeros((0, 2), dtype=np.int64),
)
"""A memory of nothing."""


def build_memory(
    documents: Iterable[Document],
    encoder: Encoder,
    *,
    cache: PatternCache | None = None,
    progress: Progress = False,
) -> Memory:
    """Split documents into passages, encode them and their windows, and store the patterns.

    Args:
        documents: LangChain documents.
        encoder: Encodes them, and later the queries.
        cache: Where encoded patterns are kept between runs.
        progress: A bar, a callback or nothing while encoding.

    Raises:
        RetrievalError: No document has text, an id is used twice, or the encoder's vectors are unusable.
    """
    passages = split_documents(documents, encoder)
    spans = [windows(passage.page_content) for passage in passages]
    texts = [pattern_text(passage) for passage in passages]
    for passage, parts in zip(passages, spans, strict=True):
        texts.extend(window_text(passage, part) for part in parts)
    vectors = encode_patterns(encoder, texts, cache, progress)
    return Memory(
        passages=passages,
        whole=vectors[: len(passages)],
        windows=vectors[len(passages) :],
        offsets=np.cumsum([0, *map(len, spans)], dtype=np.int64),
        spans=np.array([part for parts in spans for part in parts], dtype=np.int64).reshape(-1, 2),
    )


def window_text(passage: Document, span: Span) -> str:
    """What is encoded of a window."""
    start, end = span
    return passage.page_content[start:end]
