"""Settings of the web-querying action for a run, importable without the action's own dependencies."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class WebQueryingSettings(BaseModel):
    """Settings of the `web_querying` action for a run; a field that is left empty keeps the value of the action."""

    model_config = ConfigDict(extra="forbid")

    k: int | None = Field(default=None, ge=1, le=100, description="Passages for each sub-question; if empty, the turn's k.")
    results: int | None = Field(default=None, ge=1, le=100, description="Results of a search; if empty, the action's number.")
    pages: int | None = Field(default=None, ge=1, le=100, description="Pages to read at most; if empty, the action's number.")
    read_pages_first: bool | None = Field(
        default=None, description="Read pages at once, not only if snippets support nothing."
    )
