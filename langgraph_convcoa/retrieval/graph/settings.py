"""Settings of a retriever that follows an evidence graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from langgraph_convcoa.errors import InputError


class GraphSettings(BaseModel):
    """Settings of the evidence graph: `HopfieldRetriever.from_documents(..., graph=GraphSettings(...))`.

    The defaults were fitted on HotpotQA. They were also tried on MTRAG: in its conversations the graph hardly changes results.

    Attributes:
        steps: Number of steps along the links; 0 keeps the ranking of the search.
        damping: The part of the mass that moves in a step.
        temperature: Temperature of the softmax that turns the scores of the first 100 passages into their mass at the start.
        names: Total mass of the names in the question at the start; the total mass of the passages is 1.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    steps: int = Field(default=2, ge=0, le=100)
    damping: float = Field(default=0.3, ge=0, le=1)
    temperature: float = Field(default=0.1, gt=0)
    names: float = Field(default=1.0, ge=0)


def graph_settings(value: Any) -> GraphSettings | None:
    """Return settings for True, a mapping or settings, and None for False or None. InputError for other values."""
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
