"""Recalled answers: sub-questions that an earlier round answered keep that answer and its evidence, without a retrieval."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from langchain_core.documents import Document
from typing_extensions import TypedDict

from langgraph_convcoa.chain import SUPPORTED, ChainItem
from langgraph_convcoa.memory.evidence import RememberedEvidence, as_document
from langgraph_convcoa.memory.knowledge_set import Citation, Round
from langgraph_convcoa.memory.vectors import TextVectors
from langgraph_convcoa.text.same_question import LONGEST_COMPARED, SAME_SIMILARITY, words_agree

_LEXICAL_SIMILARITY = 0.5


class RecalledAnswer(TypedDict):
    """Answer of an earlier round to a sub-question, with its evidence."""

    index: int
    round: int
    sub_question: str
    answer: str
    score: float
    documents: list[Document]


def recall_answers(
    asked: Sequence[tuple[int, str, str]],
    rounds: Sequence[Round],
    evidence: Sequence[RememberedEvidence],
    vectors: TextVectors,
    *,
    max_age: float | None = None,
    threshold: float = SAME_SIMILARITY,
    now: datetime | None = None,
) -> list[RecalledAnswer]:
    """Find the sub-questions that an earlier round answered. If several rounds did, the latest one is used.

    An answer counts if the same action found it and evidence supported it. Recalled answers do not count, so the age is the
    age of the retrieval. Answers older than `max_age` seconds are stale. `asked` holds (index, action, self-contained
    sub-question), and `evidence` holds the full texts.
    """
    try:
        earliest = None if max_age is None else (now or datetime.now(UTC)) - timedelta(seconds=max_age)
    except OverflowError:
        earliest = None  # before the first date: nothing is stale
    known = list(_known(rounds, earliest))
    texts = {(entry["id"], entry["round"]): entry for entry in evidence}
    least = _LEXICAL_SIMILARITY if vectors.lexical else threshold
    found: list[RecalledAnswer] = []
    for index, action, sub_question in asked:
        if len(sub_question) > LONGEST_COMPARED:
            continue
        same = [pair for pair in known if pair[1]["action"] == action and words_agree(pair[1]["sub_question"], sub_question)]
        rows = vectors([sub_question, *(item["sub_question"] for _, item in same)])
        for (entry, item), similarity in zip(same, rows[1:] @ rows[0], strict=True):
            documents = _documents(item, entry, texts) if similarity >= least else []
            if documents:
                answer: RecalledAnswer = {
                    "index": index,
                    "round": entry["round"],
                    "sub_question": item["sub_question"],
                    "answer": item["answer"],
                    "score": item["score"],
                    "documents": documents,
                }
                found.append(answer)
                break
    return found


def _known(rounds: Sequence[Round], earliest: datetime | None) -> Iterator[tuple[Round, ChainItem]]:
    for entry in reversed(rounds):
        extra = entry.get("convcoa")
        if extra is None or (earliest is not None and not _since(extra["time"], earliest)):
            continue
        for item in extra["chain"]:
            if item["status"] in SUPPORTED and item["answer"] and len(item["sub_question"]) <= LONGEST_COMPARED:
                yield entry, item


def _since(time: str, earliest: datetime) -> bool:
    try:
        when = datetime.fromisoformat(time)
    except ValueError:
        return False
    return (when if when.tzinfo else when.replace(tzinfo=UTC)) >= earliest


def _documents(item: ChainItem, entry: Round, texts: dict[tuple[str, int], RememberedEvidence]) -> list[Document]:
    """The evidence of an item that is still stored. Empty if the first document, which supports the answer, is not stored."""
    extra = entry["convcoa"]
    quotes: dict[str, Citation] = {c["id"]: c for c in (*extra["citations"], *(extra.get("evidence") or []))}
    documents = []
    for id_ in item["evidence"]:
        if remembered := texts.get((id_, entry["round"])):
            documents.append(as_document(remembered))
        elif quoted := quotes.get(id_):
            metadata = {"source": quoted["source"], "quote": quoted["quote"], "recalled_from": entry["round"]}
            documents.append(Document(quoted["quote"], id=id_, metadata=metadata))
        elif not documents:
            return []
    return documents
