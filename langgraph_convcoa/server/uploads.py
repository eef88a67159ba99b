"""Files into a collection: what can be read."""

from __future__ import annotations

from langgraph_convcoa.retrieval.documents.load import ACCEPTED


def extensions() -> list[str]:
    """The endings of files that can be read."""
    return sorted({word for word in ACCEPTED.replace("(", " ").split() if word.startswith(".")})
