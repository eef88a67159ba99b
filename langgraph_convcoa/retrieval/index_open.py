"""An index opened where it is, made where there is none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.base import Encoder
from langgraph_convcoa.retrieval.index import Index
from langgraph_convcoa.retrieval.index_documents import Catalogue
from langgraph_convcoa.retrieval.patterns import PatternType


def open_or_create(path: str | Path, encoder: Encoder, dtype: PatternType | None, settings: Mapping[str, Any]) -> Index:
    """The index in a folder, made where there is none; the settings are those of a new one.

    Raises:
        RetrievalError: The index is of another encoder or type, or cannot be opened or made.
    """
    if not Catalogue(Path(path)).exists():
        return Index.create(path, encoder, dtype=dtype or "float32", settings=settings)
    index = Index(path)
    index.snapshot().check_encoder(encoder)
    if dtype not in (None, index.head.dtype):
        raise RetrievalError(f"The index {path} stores its patterns as {index.head.dtype}, not {dtype}; name another folder.")
    return index
