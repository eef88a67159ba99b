"""Published sets of single questions whose answers need several passages.

- HotpotQA (Yang et al. 2018) and 2WikiMultiHopQA (Ho et al. 2020), from their authors or from a data hub, and MuSiQue
  (Trivedi et al. 2022): a question has paragraphs, some of which support it and are gold. Equal paragraphs are one passage:
  its id is a hash of title and text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

from langgraph_convcoa.datasets.formats.conversations import UNANSWERABLE
from langgraph_convcoa.datasets.queries import Entries, Query, passage
from langgraph_convcoa.datasets.rows import Row

_KEPT = ("type", "level", "evidences", "question_decomposition")


def read_hotpotqa(row: Row) -> Entries:
    """A question of HotpotQA or 2WikiMultiHopQA, and its paragraphs."""
    supporting = {title for title, _ in _pairs(row, "supporting_facts", "sent_id")}
    paragraphs = [
        (title, _text(row, sentences), title in supporting) for title, sentences in _pairs(row, "context", "sentences")
    ]
    return _multi_hop(row, "_id" if "_id" in row else "id", row.answers("answer"), paragraphs)


def read_musique(row: Row) -> Entries:
    """A question of MuSiQue, and its paragraphs; if they do not answer it, `extra["answerable"]` is False."""
    paragraphs = [
        (part.optional("title"), part.text("paragraph_text"), part.get("is_supporting") is True)
        for part in row.objects("paragraphs")
    ]
    if row.get("answerable", True) is False:
        return _multi_hop(row, "id", (), paragraphs, **UNANSWERABLE)
    return _multi_hop(row, "id", (*row.answers("answer"), *row.answers("answer_aliases")), paragraphs)


def _multi_hop(
    row: Row, key: str, references: Sequence[str], paragraphs: Iterable[tuple[str, str, bool]], **extra: Any
) -> Entries:
    """Yield the passages of a question, then the question. A paragraph is (title, text, whether it is gold)."""
    gold: dict[str, None] = {}
    for title, text, supporting in paragraphs:
        if text.strip():
            document = passage(hashlib.sha256(f"{title}\0{text}".encode()).hexdigest()[:16], text, title)
            gold |= {str(document.id): None} if supporting else {}
            yield document
    yield Query(
        id=row.identity(key),
        question=row.text("question"),
        gold=tuple(gold),
        references=tuple(dict.fromkeys(references)),
        extra={name: row[name] for name in _KEPT if name in row} | extra,
    )


def _pairs(row: Row, key: str, second: str) -> list[tuple[str, Any]]:
    """Pairs of a title and its value under `second`, from any of the published forms."""
    try:
        value = json.loads(row[key]) if isinstance(row[key], str) else row[key]
        if isinstance(value, dict):
            value = list(zip(value["title"], value[second], strict=True))
        pairs = [(title, other) for title, other in value]
        if all(isinstance(title, str) for title, _ in pairs):
            return pairs
    except (TypeError, ValueError, KeyError, RecursionError):
        pass
    raise row.error(f"`{key}` must be a list of [title, {second}] or an object of the lists `title` and `{second}`.")


def _text(row: Row, sentences: Any) -> str:
    if not isinstance(sentences, list) or not all(isinstance(sentence, str) for sentence in sentences):
        raise row.error("the sentences of `context` must be a list of strings.")
    return " ".join(sentence.strip() for sentence in sentences if sentence.strip())
