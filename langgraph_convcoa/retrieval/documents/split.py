"""Splits documents into passages that the encoder reads in full, and passages into windows of sentences."""

from __future__ import annotations

import copy
import hashlib
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from langchain_core.documents import Document

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.text.clean import clean
from langgraph_convcoa.text.words import sentences

_LOGGER = logging.getLogger(__name__)
_PARAGRAPH = re.compile(r"\S.*?(?=\n[^\S\n]*\n|\Z)", re.DOTALL)
_WORD = re.compile(r"\S+")
_CHARACTERS = 16
_TITLE_CHARACTERS = 200
_PLACE = ("document_id", "start")

Span = tuple[int, int]  # Start and end of a piece of text, in characters: `text[start:end]`.


def split_documents(documents: Iterable[Document], encoder: Encoder) -> list[Document]:
    """Split documents into passages that the encoder reads in full, title included.

    A document that fits stays one passage with its id. Others are split at paragraphs, then sentences, then words, into
    parts of about equal length. Part n, from 1, has the id `{document id}#{n}`. Its metadata holds `document_id` and its
    offset `start`. A document without an id gets an id made of its content; if several have the same content, one is kept.
    Empty documents are left out and logged. Raises RetrievalError if an id is used twice, or no document has text.
    """
    kept = identify(documents)
    texts = [pattern_text(document) for document in kept]
    limit = encoder.max_tokens
    # A token has at least one byte, so a short text fits without counting.
    unsure = [i for i, text in enumerate(texts) if len(text.encode()) + 4 > limit]
    counts = dict(zip(unsure, encoder.count_tokens_batch([texts[i] for i in unsure]), strict=True))
    passages: list[Document] = []
    for index, document in enumerate(kept):
        if counts.get(index, 0) <= limit:
            passages.append(document)
        else:
            passages.extend(_parts(document, encoder))
    _check_ids(passages)
    return passages


def rejoined(name: str, parts: Sequence[Document]) -> Document:
    """Join the parts that `split_documents` made of a document; white space between parts becomes line breaks."""
    if parts[0].id == name:
        return parts[0].model_copy(deep=True)
    text = ""
    for part in parts:
        text += "\n" * (int(part.metadata["start"]) - len(text)) + part.page_content
    metadata = {key: value for key, value in parts[0].metadata.items() if key not in _PLACE}
    return Document(id=name, page_content=text, metadata=copy.deepcopy(metadata))


def pattern_text(passage: Document) -> str:
    """The text of the whole-passage pattern y_0: the title, if there is one, and the passage."""
    title = passage_title(passage)
    return f"{title}\n{passage.page_content}" if title else passage.page_content


def passage_title(passage: Document) -> str:
    """The title that is encoded with a passage: its first 200 characters."""
    title = passage.metadata.get("title")
    return clean(" ".join(title[: 4 * _TITLE_CHARACTERS].split())[:_TITLE_CHARACTERS]) if isinstance(title, str) else ""


def windows(text: str, size: int = 3, stride: int = 2) -> list[Span]:
    """Windows of up to three sentences, stride two, as spans of the text. Each becomes a pattern of the passage."""
    found = sentences(text)
    if not found:
        start = len(text) - len(text.lstrip())
        return [(start, max(start, len(text.rstrip())))]
    spans = []
    for first in range(0, len(found), stride):
        last = min(first + size, len(found)) - 1
        spans.append((found[first].start, found[last].end))
        if last == len(found) - 1:
            break
    return spans


def document_id(passage: Document) -> str:
    """The id of a passage's document; its own id if it is the whole document."""
    return str(passage.metadata.get("document_id") or passage.id)


def identify(documents: Iterable[Document]) -> list[Document]:
    """The documents that have text. A document without an id gets an id made of its title and text."""
    kept: list[Document] = []
    seen: set[str] = set()
    empty = 0
    for document in documents:
        text = clean(document.page_content)
        if not text.strip():
            empty += 1
            continue
        identity = document.id
        if identity is None:
            content = f"{document.metadata.get('title') or ''}\0{text}"
            identity = hashlib.sha256(content.encode("utf-8", "replace")).hexdigest()[:16]
            if identity in seen:
                continue
        seen.add(identity)
        kept.append(Document(id=identity, page_content=text, metadata=dict(document.metadata)))
    if empty:
        _LOGGER.warning("Left out %d document(s) without text.", empty)
    if not kept:
        raise RetrievalError("There is no document with text to search; give at least one.")
    _check_ids(kept)
    return kept


def _check_ids(documents: Iterable[Document]) -> None:
    seen: set[str | None] = set()
    for document in documents:
        if document.id in seen:
            raise RetrievalError(f"The document id {document.id!r} is used twice; give every document an id of its own.")
        seen.add(document.id)


def _parts(document: Document, encoder: Encoder) -> Iterator[Document]:
    text, title = document.page_content, passage_title(document)
    blank = encoder.count_tokens("")
    taken = encoder.count_tokens(f"{title}\n") if title else blank
    limit = max(encoder.max_tokens - taken, encoder.max_tokens // 4, 1)
    spans = _pack(_atoms(text, encoder, limit, blank), limit)
    # With some tokenizers, the counts of pieces do not add up, so each part is counted.
    checked = [part for span in spans for part in _within(text, span, encoder, limit + blank)]
    for number, (start, end) in enumerate(checked, 1):
        place = {"document_id": document.id, "start": start}
        yield Document(id=f"{document.id}#{number}", page_content=text[start:end], metadata=document.metadata | place)


def _atoms(text: str, encoder: Encoder, limit: int, blank: int) -> list[tuple[int, int, int]]:
    """Divide a text into the largest paragraphs, sentences, words or parts of words that fit: (start, end, tokens)."""

    def counted(spans: list[Span]) -> list[tuple[int, int, int]]:
        totals = encoder.count_tokens_batch([text[start:end] for start, end in spans])
        return [(start, end, max(total - blank, 1)) for (start, end), total in zip(spans, totals, strict=True)]

    atoms = counted([match.span() for match in _PARAGRAPH.finditer(text)])
    for divide in (_sentence_spans, lambda part: [match.span() for match in _WORD.finditer(part)], _character_spans):
        if all(count <= limit for *_, count in atoms):
            break
        spans: list[Span] = []
        for start, end, count in atoms:
            parts = [(0, end - start)] if count <= limit else divide(text[start:end])
            spans += [(start + a, start + b) for a, b in parts]
        atoms = counted(spans)
    return atoms


def _sentence_spans(text: str) -> list[Span]:
    """Sentences with the white space after them, so that every character is in a sentence."""
    return list(pairwise([0, *(sentence.start for sentence in sentences(text)[1:]), len(text)]))


def _character_spans(text: str) -> list[Span]:
    return [(start, min(start + _CHARACTERS, len(text))) for start in range(0, len(text), _CHARACTERS)]


def _pack(atoms: Sequence[tuple[int, int, int]], limit: int) -> list[Span]:
    """Join neighbouring atoms into spans within the limit, of about equal length."""
    total = sum(count for *_, count in atoms)
    target = total / max(1, -(-total // limit))
    spans: list[Span] = []
    first, last, size = 0, 0, 0
    for start, end, count in atoms:
        if size and (size + count > limit or size >= target):
            spans.append((first, last))
            size = 0
        if not size:
            first = start
        last, size = end, size + count
    if size:
        spans.append((first, last))
    return spans


def _within(text: str, span: Span, encoder: Encoder, limit: int) -> list[Span]:
    start, end = span
    if end - start < 2 or encoder.count_tokens(text[start:end]) <= limit:
        return [span]
    middle = text.rfind(" ", start + 1, start + (end - start) // 2 + 1)
    middle = middle if middle > start else start + (end - start) // 2
    return _within(text, (start, middle), encoder, limit) + _within(text, (middle, end), encoder, limit)
