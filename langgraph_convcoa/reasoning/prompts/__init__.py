"""Prompt texts, one file for each; `$name` is replaced by a value."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.resources import files
from itertools import count
from string import Template

from langgraph_convcoa.reasoning.excerpts import Excerpt
from langgraph_convcoa.text.clean import flat

_NAME_CHARACTERS = 8
_FENCE = re.compile(r"<(?=[\s/]{0,9}evidence\b)", re.IGNORECASE)
_FORGED = re.compile(r"^(\s*+)\[\s*+(\d++)\s*+\]")
_ROWS = re.compile(r"\.jsonl?(\.gz)?$")
_DATE = re.compile(r"\d{4}(-\d\d){0,2}")


@lru_cache(maxsize=32)
def _template(name: str) -> Template:
    return Template(files(__package__).joinpath(f"{name}.md").read_text(encoding="utf-8"))


def render(name: str, **values: str) -> str:
    """Fill a prompt. Raises KeyError if a name in its text has no value."""
    return _template(name).substitute(values)


def fence(evidence: Sequence[Excerpt], beside: Iterable[str] = ()) -> str:
    """Put evidence as a numbered list into a fence. No piece and no text `beside` the fence has its name and could close it.

    Each piece has its number, its title or source, and its date. No line of a piece looks like the heading of another.
    """
    if not evidence:
        return "(none)"
    blocks = []
    for piece in evidence:
        metadata = piece.document.metadata
        source = str(metadata.get("source") or piece.document.id or "")
        name = flat(str(metadata.get("title") or ("" if _ROWS.search(source) else source)))
        date = _DATE.match(str(metadata.get("date") or ""))
        text = "\n".join(_FORGED.sub(r"\1(\2)", line) for line in piece.text.strip().splitlines())
        blocks.append(unfenced(f"{f'[{piece.number}] {name[:120]}'.rstrip()}{f' ({date[0]})' if date else ''}\n{text}"))
    inside = "\n".join(blocks)
    near = "\0".join((inside, *beside)).casefold()
    seed = "\0".join(piece.text for piece in evidence).encode("utf-8", "replace")
    names = (hashlib.sha256(seed + b"\0" * n).hexdigest()[:_NAME_CHARACTERS] for n in count())
    name = next(name for name in names if name not in near)
    return f"<evidence-{name}>\n{inside}\n</evidence-{name}>"


def unfenced(text: str) -> str:
    """Change a foreign text so that nothing in it looks like the beginning or the end of a fence."""
    return _FENCE.sub("‹", text)
