"""Found parts of a document together with the parts before and after them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from langchain_core.documents import Document

from langgraph_convcoa.retrieval.corpus import Corpus, Passage, View
from langgraph_convcoa.retrieval.searcher import Hit

_LONGEST_GAP = 20
"""The most white space between two neighbouring parts of a document; a missing part leaves more."""


def surroundings(corpus: Corpus, view: View, hits: Sequence[Hit], neighbours: int) -> Iterator[list[Passage]]:
    """Each hit with up to `neighbours` parts of its document on either side, in order; no part comes twice."""
    taken = {hit.passage.document.id for hit in hits}
    for hit in hits:
        if not _is_part(hit.passage):
            yield [hit.passage]
            continue
        left, right = (_run(hit.passage, part, taken) for part in corpus.beside(view, hit.number, neighbours))
        taken |= {passage.document.id for passage in (*left, *right)}
        yield [*reversed(left), hit.passage, *right]


def joined(document: Document, parts: Sequence[Passage]) -> Document:
    """A found document with the parts around it; `part` in its metadata is the place of the found part."""
    if len(parts) == 1:
        return document
    text, place = parts[0].document.page_content, 0
    for previous, passage in itertools.pairwise(parts):
        gap = _gap(previous.document, passage.document)
        if passage.document.id == document.id:
            place = len(text) + (gap > 0)
        text += ("\n" if gap else "") + passage.document.page_content
    # Metadata of the same type: a copy of it would be a plain dict, which compares scores.
    wider = document.model_copy(update={"page_content": text, "metadata": type(document.metadata)(document.metadata)})
    wider.metadata["start"] = parts[0].document.metadata["start"]
    wider.metadata["part"] = [place, place + len(document.page_content)]
    if windows := document.metadata.get("association"):
        moved = [{**window, "start": window["start"] + place, "end": window["end"] + place} for window in windows]
        wider.metadata["association"] = moved
    return wider


def _is_part(passage: Passage) -> bool:
    return "document_id" in passage.document.metadata and isinstance(passage.document.metadata.get("start"), int)


def _run(found: Passage, beside: Sequence[Passage], taken: set[str | None]) -> list[Passage]:
    """Passages, nearest first, up to the first passage that is taken or does not adjoin the previous passage."""
    run: list[Passage] = []
    last = found
    for passage in beside:
        if passage.document.id in taken or not _goes_on(last, passage):
            break
        run.append(passage)
        last = passage
    return run


def _goes_on(one: Passage, other: Passage) -> bool:
    """True if two passages are neighbouring parts of one document."""
    if not _is_part(other) or one.document.metadata["document_id"] != other.document.metadata["document_id"]:
        return False
    return min(abs(_gap(one.document, other.document)), abs(_gap(other.document, one.document))) <= _LONGEST_GAP


def _gap(first: Document, second: Document) -> int:
    """Characters between two parts of a document; negative if the second begins before the first ends."""
    return int(second.metadata["start"]) - int(first.metadata["start"]) - len(first.page_content)
