"""Evidence of an overview: what is said of a collection as pieces with an id and a quote, and passages that cover documents.

A piece has under `extract` in its metadata what answers the question word for word, which is given as it is where no model
writes an answer.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
from langchain_core.documents import Document

from langgraph_convcoa.actions.overview.collection import Collection, Entry
from langgraph_convcoa.actions.overview.reading import Wanted
from langgraph_convcoa.retrieval.corpus import View
from langgraph_convcoa.text.clean import flat
from langgraph_convcoa.text.words import sentences, stem

PAGE = 20
"""Documents of a list that are named at once."""
_OF_A_PIECE = 10
_TITLE = "The collection"
_FORMATS = {
    "web": "web page", "md": "Markdown file", "txt": "text file", "pdf": "PDF file", "html": "HTML file", "csv": "CSV file",
    "json": "JSON file", "jsonl": "JSON file", "docx": "Word file", "pptx": "PowerPoint file", "xlsx": "Excel file",
    "epub": "EPUB file",
}  # fmt: skip
_FORMATS_NAMED = 4
_LEADS, _LEAD_WORDS = 3, 45
"""Passages of a summary whose first sentences are given without a model, and the words of each at most."""


def said(name: str, text: str, extract: str | None = None) -> Document:
    """A statement about the collection as a piece of evidence."""
    metadata = {"source": "overview", "title": _TITLE, "score": 1.0, "quote": text, "extract": extract or text}
    return Document(text, id=f"overview:{name}", metadata=metadata)


def counted(collection: Collection) -> str:
    """How many documents and passages there are, and of which formats, without a full stop."""
    files = [_files(suffix, n) for suffix, n in collection.formats[:_FORMATS_NAMED]]
    if others := sum(n for _, n in collection.formats[_FORMATS_NAMED:]):
        files.append(f"and {_number(others, 'other')}")
    passages = _number(collection.passages, "passage")
    return f"The collection has {_number(len(collection.entries), 'document')} in {passages}{_among(files)}"


def listing(collection: Collection, wanted: Wanted) -> list[Document]:
    """A part of the list of documents, ten a piece, or their count, after how many there are.

    The pieces name the documents in one sentence each, so that what an answer says of several stands beside them.
    """
    chosen = collection.chosen(wanted)
    opening, notes = _opening(collection, wanted, len(chosen))
    first = wanted.page * PAGE
    shown = chosen[first : first + PAGE] if wanted.kind != "count" else []
    if not shown:
        past = bool(chosen) and wanted.kind != "count"
        return [said("count", f"{opening}.{notes}{' There are no more of them.' if past else ''}")]
    pieces = []
    for start in range(0, len(shown), _OF_A_PIECE):
        part, number = shown[start : start + _OF_A_PIECE], first + start + 1
        last = number + len(part) - 1
        these = ", of which number" if start == 0 else f"Of the {_number(len(chosen), 'document')} number"
        are = f"{these} {number} is" if last == number else f"{these}s {number} to {last} are"
        if number == 1:
            are = ", namely" if last == len(chosen) else f", of which the first {last} are"
        named = ", ".join(f"“{entry.title}”{_about(entry)}" for entry in part)
        text = f"{opening}{are} {named}.{notes}" if start == 0 else f"{are} {named}."
        lines = "\n".join(f"{n}. {entry.title}{_about(entry)}" for n, entry in enumerate(part, number))
        pieces.append(said(f"documents-{number}", text, lines if start else f"{opening}.{notes}\n{lines}"))
    if left := len(chosen) - first - len(shown):
        more = f"{_number(left, 'more document')} {'is' if left == 1 else 'are'} not named here; ask for more of them."
        pieces.append(said("left-out", more))
    return pieces


def _opening(collection: Collection, wanted: Wanted, found: int) -> tuple[str, str]:
    """How many documents there are such as the question wants, without a full stop; and what is to be said beside that."""
    entries, (be, have) = collection.entries, ("is", "has") if found == 1 else ("are", "have")
    told, notes = [], ""
    if wanted.suffix:
        told.append(f"{be} {_files(wanted.suffix, 0)}")
    if wanted.years:
        low, high = wanted.years
        period = f"{low}" if low == high else f"{low} or later" if high == 9999 else f"{high} or earlier" if low == 0 else ""
        told.append(f"{be} from {period or f'{low} to {high}'}, as dates or names say")
        if undated := sum(not entry.years for entry in entries):
            notes = f" {_number(undated, 'document')} {'tells' if undated == 1 else 'tell'} no year."
    if wanted.words:
        told.append(f"{have} “{' '.join(wanted.words)}” in title or metadata")
    if told:
        return f"Of the {_number(len(entries), 'document')} of the collection {found or 'none'} {' and '.join(told)}", notes
    noun = wanted.noun.rstrip("s")
    if named := sum(stem(noun) in entry.words for entry in entries) if noun else 0:
        notes = f" {named} of them {'has' if named == 1 else 'have'} “{noun}” in title or metadata."
    return counted(collection), notes


def _about(entry: Entry) -> str:
    return _among([part for part in (entry.file if entry.file != entry.title else "", entry.date) if part])


def _among(parts: Sequence[str]) -> str:
    return f" ({', '.join(parts)})" if parts else ""


def _files(suffix: str, count: int) -> str:
    name = _FORMATS.get(suffix, f".{suffix} file")
    return _number(count, name) if count else f"{name}s"


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def abilities(collection: Collection, kind: str) -> Document:
    """What the assistant is, and what it cannot do."""
    cannot = {
        "deed": "This assistant cannot do anything outside this conversation, such as send, book, buy or delete something. It",
        "future": "This assistant cannot tell what is still to come, beyond what a document says about it. It",
    }.get(kind, "This assistant")
    can = (
        "answers questions from a collection of documents and cites them; it can also list, count, summarise and compare them."
    )
    return said("abilities", f"{cannot} {can} {counted(collection)}.")


def covering(collection: Collection, entries: Sequence[Entry], k: int) -> list[Document]:
    """About k passages that cover the documents, the same number of each, in turns; at least one of each.

    The first of a document, which tells what it is about, and of each further stretch of it, all of one length, the passage
    that its mean pattern retrieves: central ones, spread over the document. (One step of retrieval at a great beta: the mean
    of the stored patterns is the state.)
    """
    share = max(1, k // max(1, len(entries)))
    leads = max(1, _LEADS // max(1, len(entries)))
    each = []
    for entry in entries:
        chosen = _spread(collection.view, np.array(entry.numbers), share)
        passages = collection.view.fetch(chosen)
        each.append([_passage(entry, p.document, n, n < leads) for n, p in enumerate(passages)])
    found = [document for turn in zip_longest(*each) for document in turn if document is not None]
    for rank, document in enumerate(found, 1):
        document.metadata["score"] = 1.0 / rank
    return found


def _spread(view: View, numbers: np.ndarray[Any, np.dtype[np.int64]], count: int) -> list[int]:
    if len(numbers) <= count:
        return numbers.tolist()  # type: ignore[no-any-return]
    if count == 1:
        return [int(numbers[0])]
    whole = view.patterns_for(numbers).wholes(numbers)
    likeness = whole @ whole.mean(axis=0)
    stretches = np.array_split(np.arange(1, len(numbers)), count - 1)
    return [int(numbers[n]) for n in (0, *(stretch[np.argmax(likeness[stretch])] for stretch in stretches))]


def _passage(entry: Entry, passage: Document, place: int, leads: bool) -> Document:
    """A passage under its document's title; some of them with their beginning as what is given without a model."""
    found = [flat(sentence.text) for sentence in sentences(passage.page_content[:4_000])]
    whole = [text for text in found if text[-1:] in ".!?…" and not text.startswith("#")] or [flat(passage.page_content)]
    lead = whole[0]
    for text in whole[1:_LEADS]:
        if lead.count(" ") + text.count(" ") >= _LEAD_WORDS - 1:
            break
        lead = f"{lead} {text}"
    lead = " ".join(lead.split(" ")[:_LEAD_WORDS]) + "…" * (lead.count(" ") >= _LEAD_WORDS)
    metadata = {
        "source": entry.source or str(passage.id),
        **copy.deepcopy(passage.metadata),
        "title": entry.title,
        "quote": lead,
    }
    if leads:
        metadata["extract"] = f"{entry.title}: {lead}" if not place else lead
    return Document(passage.page_content, id=passage.id, metadata=metadata)
