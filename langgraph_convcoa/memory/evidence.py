"""Evidence memory (Jain and Lapata 2024, section 4.2): the results of earlier turns, ranked for the current question."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
from langchain_core.documents import Document
from typing_extensions import TypedDict

from langgraph_convcoa.memory.vectors import TextVectors

SHARE = 3
"""At most one in three pieces of fresh evidence is replaced (section 4.2)."""
MARGIN = 0.05
"""Minimum gain in similarity for an earlier piece to replace a fresh one."""
LONGEST = 4000
"""Maximum number of characters of a text that is kept from turn to turn."""
_QUOTE_CHARACTERS = 300


class RememberedEvidence(TypedDict):
    """A piece of evidence as the state keeps it from turn to turn."""

    id: str
    text: str
    source: str
    title: str
    quote: str
    round: int


def remember_evidence(
    memory: Sequence[RememberedEvidence], found: Iterable[Document], number: int, capacity: int
) -> list[RememberedEvidence]:
    """Add documents to the memory: M_t of eq. 2, oldest first, each text once. Beyond the capacity the oldest are dropped.

    `found` holds the documents of round `number`, best first.
    """
    fresh: dict[str, RememberedEvidence] = {}
    for document in found:
        text = document.page_content
        if 0 < len(text) <= LONGEST and text not in fresh:
            fresh[text] = {
                "id": str(document.id),
                "text": text,
                "source": str(document.metadata.get("source") or ""),
                "title": str(document.metadata.get("title") or ""),
                "quote": str(document.metadata.get("quote") or "")[:_QUOTE_CHARACTERS],
                "round": number,
            }
    # The best piece of a turn is last, so it is dropped last.
    earlier = {entry["text"]: entry for entry in memory if entry["text"] not in fresh}
    merged = [*earlier.values(), *reversed(fresh.values())]
    return merged[-capacity:] if capacity else []


def as_document(entry: RememberedEvidence, score: float | None = None) -> Document:
    """Make a document of a remembered piece. Its metadata `recalled_from` is the round that found it."""
    metadata: dict[str, object] = {"source": entry["source"] or entry["id"], "recalled_from": entry["round"]}
    metadata |= {name: entry[name] for name in ("title", "quote") if entry[name]}
    if score is not None:
        metadata["score"] = score
    return Document(entry["text"], id=entry["id"], metadata=metadata)


def integrate(
    question: str,
    fresh: Sequence[Document],
    memory: Sequence[RememberedEvidence],
    rounds: Collection[int],
    vectors: TextVectors,
) -> tuple[list[Document], int]:
    """Replace low-ranked fresh evidence by earlier evidence that is closer to the question (section 4.2).

    Only evidence of `rounds`, which are on the question's topic, is considered. Returns the evidence, which keeps its length,
    and the number of earlier pieces in it.
    """
    low = len(fresh) // SHARE
    known = {document.page_content for document in fresh} | {str(document.id) for document in fresh}
    earlier = [e for e in memory if e["round"] in rounds and e["text"] not in known and e["id"] not in known]
    if not low or not earlier:
        return list(fresh), 0
    weakest = list(fresh)[-low:]
    compared = [_compared(d.metadata.get("title"), d.metadata.get("quote"), d.page_content) for d in weakest]
    compared += [_compared(entry["title"], entry["quote"], entry["text"]) for entry in earlier]
    rows = vectors([question, *compared])
    scores = rows[1:] @ rows[0]
    best = np.argsort(-scores[low:], kind="stable")
    kept, taken = list(fresh), 0
    # The best earlier piece is compared with the weakest fresh one.
    for place in np.argsort(scores[:low], kind="stable"):
        if taken == len(best) or scores[low + best[taken]] <= scores[place] + MARGIN:
            break
        number = int(best[taken])
        kept[len(fresh) - low + int(place)] = as_document(earlier[number], float(scores[low + number]))
        taken += 1
    return kept, taken


def _compared(title: object, quote: object, text: str) -> str:
    return f"{title or ''} {quote or text[:_QUOTE_CHARACTERS]}".strip()
