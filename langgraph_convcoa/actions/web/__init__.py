"""The action over the web: searches, guarded fetching, pages. Its settings are here: they need no extra package."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class WebQueryingSettings(BaseModel):
    """Settings of the `web_querying` action for a run; a field that is left empty keeps the value of the action."""

    model_config = ConfigDict(extra="forbid")

    k: int | None = Field(default=None, ge=1, le=100, description="Passages a sub-question; the turn's k when left empty.")
    results: int | None = Field(default=None, ge=1, le=100, description="Results of a search; the action's when left empty.")
    pages: int | None = Field(default=None, ge=1, le=100, description="Most pages read; the action's when left empty.")
    read_pages_first: bool | None = Field(
        default=None, description="Read pages at once, not only if snippets support nothing."
    )
