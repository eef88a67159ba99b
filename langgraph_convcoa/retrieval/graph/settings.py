"""Settings of a retriever that walks along an evidence graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from langgraph_convcoa.errors import InputError


class GraphSettings(BaseModel):
    """How a retriever walks along the evidence graph: `HopfieldRetriever.from_documents(..., graph=GraphSettings(...))`.

    The values by default were fitted on HotpotQA alone. What links passages is no setting; it was chosen with MuSiQue's
    figures for BM25 in view too.

    Attributes:
        steps: Of the walk; with 0 the ranking is that of the search where the walk begins.
        damping: The share of the walk that goes on along a link; the rest begins again.
        temperature: Of the softmax over the scores of the first 100 passages, where the walk begins.
        lexical_weight: Weight of BM25 in these scores, where the retriever gives it any.
        names: Weight of the names in the question, where the walk begins too, beside 1 for the passages.

    Example:
        >>> GraphSettings(steps=3).damping
        0.5
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    steps: int = Field(default=12, ge=0, le=100)
    damping: float = Field(default=0.5, ge=0, lt=1)
    temperature: float = Field(default=0.1, gt=0)
    lexical_weight: float = Field(default=0.3, ge=0)
    names: float = Field(default=0.25, ge=0)


def graph_settings(value: Any) -> GraphSettings | None:
    """The settings of `graph=True`, of a mapping or of settings; None for False and None. InputError where they are none."""
    if value is None or isinstance(value, GraphSettings):
        return value
    if isinstance(value, bool):
        return GraphSettings() if value else None
    if isinstance(value, Mapping):
        try:
            return GraphSettings(**value)
        except (ValidationError, TypeError) as error:
            raise InputError(f"The settings of the evidence graph cannot be used: {error}") from None
    raise InputError(f"graph must be True, False or GraphSettings, not {value!r:.60}.")
