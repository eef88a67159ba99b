"""Question sets that no single passage answers, as published; each question carries paragraphs of which some support it.

- HotpotQA (Yang et al. 2018) and 2WikiMultiHopQA (Ho et al. 2020): a list of {"_id", "question", "answer", "context": [[title,
  [sentences]], ...], "supporting_facts": [[title, sentence], ...]}; or both fields as objects of lists, {"title": [...],
  "sentences": [[...]]} and {"title": [...], "sent_id": [...]}, or as JSON in a text, as hubs give them.
- MuSiQue (Trivedi et al. 2022): JSON Lines or a list of {"id", "question", "answer", "answer_aliases", "paragraphs":
  [{"title", "paragraph_text", "is_supporting"}]}.

The paragraphs of all questions of a file are its corpus. One that several questions carry is one passage: its id is made of
its title and text. All that support a question are gold.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from langgraph_convcoa.datasets.formats.conversations import UNANSWERABLE
from langgraph_convcoa.datasets.queries import Entries, Query, passage
from langgraph_convcoa.datasets.rows import Row
from langgraph_convcoa.datasets.splits import split_of

_KEPT = ("type", "level", "evidences", "question_decomposition")


def read_hotpotqa(path: Path, rows: Iterable[Row]) -> Entries:
    """The questions of HotpotQA or 2WikiMultiHopQA, and their paragraphs."""
    for row in rows:
        supporting = {title for title, _ in _pairs(row, "supporting_facts", "sent_id")}
        paragraphs = [(title, _text(row, sentences)) for title, sentences in _pairs(row, "context", "sentences")]
        kept = [(title, text, title in supporting) for title, text in paragraphs]
        yield from _question(path, row, row.identity("_id" if "_id" in row else "id"), row.answers("answer"), kept)


def read_musique(path: Path, rows: Iterable[Row]) -> Entries:
    """The questions of MuSiQue, and their paragraphs; one that they do not answer has `extra["answerable"]` False."""
    for row in rows:
        paragraphs = [
            (part.optional("title"), part.text("paragraph_text"), part.get("is_supporting") is True)
            for part in row.objects("paragraphs")
        ]
        answerable = row.get("answerable", True) is not False
        references = (*row.answers("answer"), *row.answers("answer_aliases")) if answerable else ()
        extra = {} if answerable else UNANSWERABLE
        yield from _question(path, row, row.identity("id"), references, paragraphs, extra)


def _question(
    path: Path,
    row: Row,
    identity: str,
    references: tuple[str, ...],
    paragraphs: Iterable[tuple[str, str, bool]],
    extra: dict[str, Any] | None = None,
) -> Iterator[Query | Document]:
    gold: dict[str, None] = {}
    for title, text, supporting in paragraphs:
        if text.strip():
            document = passage(hashlib.sha256(f"{title}\0{text}".encode()).hexdigest()[:16], text, title)
            gold |= {str(document.id): None} if supporting else {}
            yield document
    yield Query(
        id=identity,
        question=row.text("question"),
        gold=tuple(gold),
        references=tuple(dict.fromkeys(references)),
        split=split_of(path),
        extra={key: row[key] for key in _KEPT if key in row} | (extra or {}),
        where=row.where,
    )


def _pairs(row: Row, key: str, second: str) -> list[tuple[str, Any]]:
    """Titles with what belongs to each, in any of the published forms."""
    value = row[key]
    wanted = f"`{key}` must be a list of [title, {second}] or an object of the lists `title` and `{second}`."
    try:
        value = json.loads(value) if isinstance(value, str) else value
        if isinstance(value, dict):
            value = list(zip(value["title"], value[second], strict=True))
        pairs = [(title, other) for title, other in value]
    except (TypeError, ValueError, KeyError, RecursionError):
        raise row.error(wanted) from None
    if not all(isinstance(title, str) for title, _ in pairs):
        raise row.error(wanted)
    return pairs


def _text(row: Row, sentences: Any) -> str:
    if not isinstance(sentences, list) or not all(isinstance(sentence, str) for sentence in sentences):
        raise row.error("the sentences of `context` must be a list of strings.")
    return " ".join(sentence.strip() for sentence in sentences if sentence.strip())
