"""Published sets of questions that need several passages. Each question has paragraphs, some of which support it.

They are HotpotQA (Yang et al. 2018) and 2WikiMultiHopQA (Ho et al. 2020), also as hubs give them, and MuSiQue (Trivedi et al.
2022). The paragraphs of all questions of a file are its corpus. Equal paragraphs are one passage: its id is a hash
of title and text. All paragraphs that support a question are gold.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from langgraph_convcoa.datasets.formats.conversations import UNANSWERABLE
from langgraph_convcoa.datasets.queries import Entries, Query, passage
from langgraph_convcoa.datasets.rows import Row

_KEPT = ("type", "level", "evidences", "question_decomposition")


def read_hotpotqa(row: Row) -> Entries:
    """A question of HotpotQA or 2WikiMultiHopQA, and its paragraphs."""
    supporting = {title for title, _ in _pairs(row, "supporting_facts", "sent_id")}
    paragraphs = [(title, _text(row, sentences)) for title, sentences in _pairs(row, "context", "sentences")]
    kept = [(title, text, title in supporting) for title, text in paragraphs]
    yield from _question(row, row.identity("_id" if "_id" in row else "id"), row.answers("answer"), kept, {})


def read_musique(row: Row) -> Entries:
    """A question of MuSiQue, and its paragraphs; if they do not answer it, `extra["answerable"]` is False."""
    paragraphs = [
        (part.optional("title"), part.text("paragraph_text"), part.get("is_supporting") is True)
        for part in row.objects("paragraphs")
    ]
    answerable = row.get("answerable", True) is not False
    references = (*row.answers("answer"), *row.answers("answer_aliases")) if answerable else ()
    yield from _question(row, row.identity("id"), references, paragraphs, {} if answerable else UNANSWERABLE)


def _question(
    row: Row,
    identity: str,
    references: tuple[str, ...],
    paragraphs: Iterable[tuple[str, str, bool]],
    extra: dict[str, Any],
) -> Entries:
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
        extra={key: row[key] for key in _KEPT if key in row} | extra,
    )


def _pairs(row: Row, key: str, second: str) -> list[tuple[str, Any]]:
    """Pairs of a title and its value under `second`, from any of the published forms."""
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
