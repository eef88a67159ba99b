"""Prompt texts, one file each; `$name` stands for what is filled in."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from string import Template

from langgraph_convcoa.reasoning.excerpts import Excerpt

_DATE = re.compile(r"\d{4}(-\d\d){0,2}")


@lru_cache(maxsize=32)
def _template(name: str) -> Template:
    return Template(files(__package__).joinpath(f"{name}.md").read_text(encoding="utf-8"))


def render(name: str, **values: str) -> str:
    """Fill a prompt; a name that the text does not have, or lacks, is a KeyError."""
    return _template(name).substitute(values)


PARTS = ("conversation", "evidence")
"""What is filled into a prompt that the usage tells apart from its instructions."""


def fence(evidence: Sequence[Excerpt]) -> str:
    """Evidence as one numbered list that it cannot close itself: the list's name is derived from the contents.

    Each piece stands under its number, with its title, or else its source, and its date.
    """
    if not evidence:
        return "(none)"
    digest = hashlib.sha256("\0".join(piece.text for piece in evidence).encode("utf-8", "replace")).hexdigest()[:8]
    blocks = []
    for piece in evidence:
        metadata = piece.document.metadata
        name = " ".join(str(metadata.get("title") or metadata.get("source") or piece.document.id or "").split())
        date = _DATE.match(str(metadata.get("date") or ""))
        blocks.append(f"[{piece.number}] {name[:120]}{f' ({date[0]})' if date else ''}\n{piece.text.strip()}")
    return "\n".join((f"<evidence-{digest}>", *blocks, f"</evidence-{digest}>"))
