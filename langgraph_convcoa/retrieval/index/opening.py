"""An index opened where it is, made where there is none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.hybrid.ann import ApproximateSettings
from langgraph_convcoa.retrieval.index.documents import Catalogue
from langgraph_convcoa.retrieval.index.index import Index
from langgraph_convcoa.retrieval.scoring.patterns import PatternType


def open_or_create(
    path: str | Path,
    encoder: Encoder,
    dtype: PatternType | None,
    settings: Mapping[str, Any],
    *,
    approximate: ApproximateSettings | None = None,
) -> Index:
    """The index in a folder, made where there is none; the settings are those of a new one.

    Where an approximate stage is asked for, an index that is there takes over its settings, so that it is found with them.

    Raises:
        RetrievalError: The index is of another encoder or type, or cannot be opened or made.
    """
    if not Catalogue(Path(path)).exists():
        kept = dict(settings) if approximate is None else {**settings, "approximate": approximate.model_dump()}
        return Index.create(path, encoder, dtype=dtype or "float32", settings=kept)
    index = Index(path)
    index.snapshot().check_encoder(encoder)
    if dtype not in (None, index.head.dtype):
        raise RetrievalError(f"The index {path} stores its patterns as {index.head.dtype}, not {dtype}; name another folder.")
    if approximate is not None:
        put_approximate(index, approximate)
    return index


def put_approximate(index: Index, settings: ApproximateSettings | None) -> None:
    """Keep with an index whether, and how, it is searched approximately."""
    kept = None if settings is None else settings.model_dump()
    if index.head.settings.get("approximate") != kept:
        index.put_settings({**index.head.settings, "approximate": kept})
