"""The pattern store: every passage as a memory set of window patterns beside one pattern of the whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.documents.split import Span, pattern_text, split_documents, windows
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.encoders.cache import encode_patterns as encode_texts
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.retrieval.scoring.patterns import Patterns, PatternType, encode_patterns


@dataclass(frozen=True, eq=False)
class Memory:
    """Passages and their patterns, in memory (a document is a memory set).

    Attributes:
        passages: n documents with ids.
        patterns: One memory set a passage: y_0 of the whole, then its windows Y.
        spans: Where each window stands in its passage's text, in characters: (N - n, 2), the windows of all sets in order.
    """

    passages: list[Document]
    patterns: Patterns
    spans: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        windows = len(self.patterns.values) - self.patterns.n
        if len(self.passages) != self.patterns.n or self.spans.shape != (windows, 2):
            raise RetrievalError(
                f"The memory does not fit together: {len(self.passages)} passages and {len(self.spans)} spans for "
                f"{self.patterns.n} memory sets with {windows} windows."
            )

    def __len__(self) -> int:
        return len(self.passages)

    @property
    def dimension(self) -> int:
        """Length d of a pattern."""
        return self.patterns.d

    def set_spans(self, index: int) -> list[Span]:
        """Where the windows of a passage stand in its text."""
        # Every set before this one has one row, y_0, that is no window.
        start, stop = int(self.patterns.offsets[index]) - index, int(self.patterns.offsets[index + 1]) - index - 1
        return [(int(a), int(b)) for a, b in self.spans[start:stop]]


EMPTY = Memory(
    passages=[],
    patterns=Patterns(np.zeros((0, 0), dtype=np.float32), np.zeros(1, dtype=np.int64)),
    spans=np.zeros((0, 2), dtype=np.int64),
)
"""A memory of nothing."""


def build_memory(
    documents: Iterable[Document],
    encoder: Encoder,
    *,
    cache: PatternCache | None = None,
    progress: Progress = False,
    dtype: PatternType = "float32",
) -> Memory:
    """Split documents into passages, encode them and their windows, and store the patterns.

    Args:
        documents: LangChain documents.
        encoder: Encodes them, and later the queries.
        cache: Where encoded patterns are kept between runs.
        progress: A bar, a callback or nothing while encoding.
        dtype: How the patterns are stored.

    Raises:
        InputError: There is no such dtype.
        RetrievalError: No document has text, an id is used twice, or the encoder's vectors are unusable.
    """
    passages = split_documents(documents, encoder)
    spans = [windows(passage.page_content) for passage in passages]
    texts: list[str] = []
    for passage, parts in zip(passages, spans, strict=True):
        texts.append(pattern_text(passage))
        texts.extend(window_text(passage, part) for part in parts)
    values, scales = encode_patterns(encode_texts(encoder, texts, cache, progress), dtype)
    offsets = np.cumsum([0, *(1 + len(parts) for parts in spans)], dtype=np.int64)
    return Memory(
        passages=passages,
        patterns=Patterns(values, offsets, scales, dtype),
        spans=np.array([part for parts in spans for part in parts], dtype=np.int64).reshape(-1, 2),
    )


def window_text(passage: Document, span: Span) -> str:
    """What is encoded of a window."""
    start, end = span
    return passage.page_content[start:end]
