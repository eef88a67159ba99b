"""Prompt texts, one file each; `$name` stands for what is filled in."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from string import Template

from langchain_core.documents import Document

_DATE = re.compile(r"\d{4}(-\d\d){0,2}")


@lru_cache(maxsize=32)
def _template(name: str) -> Template:
    return Template(files(__package__).joinpath(f"{name}.md").read_text(encoding="utf-8"))


def render(name: str, **values: str) -> str:
    """Fill a prompt; a name that the text does not have, or lacks, is a KeyError."""
    return _template(name).substitute(values)


def fence(evidence: Sequence[tuple[int, Document, str]]) -> str:
    """Evidence as numbered blocks that it cannot close itself: the block's name is derived from the contents.

    Args:
        evidence: (number shown to the model, document, the part of its text to show).
    """
    if not evidence:
        return "(none)"
    digest = hashlib.sha256("\0".join(text for _, _, text in evidence).encode("utf-8", "replace")).hexdigest()[:8]
    tag = f"evidence-{digest}"
    blocks = []
    for number, document, text in evidence:
        source = str(document.metadata.get("source") or document.id or "").replace('"', "'").replace("\n", " ")
        date = _DATE.match(str(document.metadata.get("date") or ""))
        dated = f' date="{date[0]}"' if date else ""
        blocks.append(f'<{tag} number="{number}" source="{source[:200]}"{dated}>\n{text.strip()}\n</{tag}>')
    return "\n".join(blocks)
