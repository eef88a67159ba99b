"""Settings of a retriever that follows an evidence graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from langgraph_convcoa.errors import InputError


class GraphSettings(BaseModel):
    """How a retriever follows the evidence graph: `HopfieldRetriever.from_documents(..., graph=GraphSettings(...))`.

    The values by default were fitted on HotpotQA, and on MTRAG so that nothing is lost in conversation.

    Attributes:
        steps: How many links in a row are followed; with 0 the ranking is that of the search.
        damping: The share of what passages and names have that goes on along a link.
        temperature: Of the softmax over the scores of the first 100 passages, which is what these have at first.
        names: What the names in the question have at first, together, beside 1 for the passages.

    Example:
        >>> GraphSettings(steps=1).damping
        0.3
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    steps: int = Field(default=2, ge=0, le=100)
    damping: float = Field(default=0.3, ge=0, le=1)
    temperature: float = Field(default=0.1, gt=0)
    names: float = Field(default=1.0, ge=0)


def graph_settings(value: Any) -> GraphSettings | None:
    """The settings of `graph=True`, of a mapping or of settings; None for False and None. InputError where they are none."""
    if value is None or isinstance(value, GraphSettings):
        return value
    if isinstance(value, bool):
        return GraphSettings() if value else None
    if isinstance(value, Mapping):
        # An index may have kept the weight of BM25 that the walk once had of its own.
        given = {name: one for name, one in value.items() if name != "lexical_weight"}
        try:
            return GraphSettings(**given)
        except (ValidationError, TypeError) as error:
            raise InputError(f"The settings of the evidence graph cannot be used: {error}") from None
    raise InputError(f"graph must be True, False or GraphSettings, not {value!r:.60}.")
