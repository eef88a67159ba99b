"""A new index: what it is to be, and a memory saved as one."""

from __future__ import annotations

import dataclasses
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.documents.split import Span
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.choice import encoder_from_settings, encoder_settings
from langgraph_convcoa.retrieval.index.database import DATABASE, Head
from langgraph_convcoa.retrieval.index.documents import Catalogue, Passage
from langgraph_convcoa.retrieval.index.entries import check_storable, entries_of
from langgraph_convcoa.retrieval.index.file import WriterLock
from langgraph_convcoa.retrieval.index.write import StoredSets, gathered, rewrite
from langgraph_convcoa.retrieval.scoring.patterns import PATTERN_TYPES, Patterns, PatternType, decode_patterns, encode_patterns

# The name that embeddings without a model name are given: another one in every process.
_UNNAMED = re.compile(r":[0-9a-f]{32}$")
# What a first save leaves behind that was killed.
_REMAINS = re.compile(rf"(patterns|scales)\.\d+\.bin|writer\.(lock|pid)|{re.escape(DATABASE)}(-journal)?")


class Source(Protocol):
    """What can be saved: passages, their patterns and their windows."""

    @property
    def passages(self) -> Sequence[Document]: ...

    @property
    def patterns(self) -> Patterns: ...

    def set_spans(self, index: int) -> list[Span]: ...


def save_memory(
    memory: Source,
    path: str | Path,
    encoder: Encoder,
    *,
    dtype: PatternType | None = None,
    settings: Mapping[str, Any] | None = None,
    numbers: npt.NDArray[np.int64] | None = None,
) -> None:
    """Save a memory as an index, in place of the one that may be there, in one transaction.

    Args:
        memory: Passages and patterns.
        path: A folder that is empty, does not exist or holds an index.
        encoder: What the memory was encoded with.
        dtype: How patterns are stored; as they are when None.
        settings: Settings of a retriever, kept with it.
        numbers: Which memory sets are saved; all when None.

    Raises:
        InputError: There is no such type, or an id or metadata cannot be stored.
        RetrievalError: The folder cannot be used, or the encoder cannot be told from another; an index that was there is
            as it was.
    """
    folder = Path(path)
    database = Catalogue(folder)
    head = new_head(encoder, dtype or memory.patterns.dtype, settings)
    chosen = np.arange(len(memory.passages)) if numbers is None else numbers
    for number in chosen:
        check_storable(memory.passages[number])
    prepare_folder(folder)
    with WriterLock(folder).held():
        if database.exists():
            with database.reading() as connection:
                there = database.head(connection)
            # Keys go on growing, so that a reader of the old state never takes a new passage for one of its own.
            head = dataclasses.replace(
                head, generation=there.generation + 1, next_key=there.next_key, commits=there.commits, index=there.index
            )
        rewrite(
            database,
            head,
            _sets(memory.patterns, chosen, head),
            entries_of(Passage(memory.passages[number], memory.set_spans(number)) for number in chosen.tolist()),
        )


def new_head(encoder: Encoder, dtype: PatternType, settings: Mapping[str, Any] | None) -> Head:
    """The head of an index of nothing.

    Raises:
        InputError: There is no such type.
        RetrievalError: The encoder has no name to know it by when the index is opened again.
    """
    if dtype not in PATTERN_TYPES:
        raise InputError(f"Patterns cannot be stored as {dtype!r}; use one of {', '.join(PATTERN_TYPES)}.")
    if _UNNAMED.search(encoder.name):
        raise RetrievalError(
            f"The embeddings {encoder.name.rsplit(':', 1)[0]} have no model name to know them by when the index is opened: "
            "give EmbeddingsEncoder(embeddings, name=...)."
        )
    stated = encoder_settings(encoder)
    return Head(secrets.token_hex(16), dtype, encoder.dimension, encoder.name, stated, dict(settings or {}))


def encoder_of(head: Head) -> Encoder | None:
    """The encoder that an index was built with, where that can be told."""
    return None if head.model is None else encoder_from_settings(head.model)


def prepare_folder(folder: Path) -> None:
    """Make a folder for an index where it is missing.

    Raises:
        RetrievalError: It cannot be made, or holds something that is no index.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        other = None
        # What lies beside an index is its owner's.
        if not Catalogue(folder).exists():
            other = next((file.name for file in sorted(folder.iterdir()) if not _REMAINS.fullmatch(file.name)), None)
    except OSError as error:
        raise RetrievalError(f"The folder {folder} cannot be used for an index ({error.strerror}); name another.") from error
    if other is not None:
        raise RetrievalError(f"The folder {folder} holds other files ({other}); name an empty one for the index.")


def _sets(
    patterns: Patterns, numbers: npt.NDArray[np.int64], head: Head
) -> Iterator[tuple[npt.NDArray[np.int64], StoredSets]]:
    key = head.next_key
    for part, stored in gathered(patterns, numbers):
        if head.dtype != patterns.dtype:
            vectors = decode_patterns(stored.values, stored.scales, patterns.dtype)
            stored = StoredSets(*encode_patterns(vectors, head.dtype), stored.sizes)  # type: ignore[arg-type]
        yield np.arange(key, key + len(part)), stored
        key += len(part)
