"""What earlier turns found: their evidence, ranked for the current question, and their answers to the same sub-questions."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime

import numpy as np
from langchain_core.documents import Document
from typing_extensions import TypedDict

from langgraph_convcoa.chain import SUPPORTED, ChainItem
from langgraph_convcoa.memory.conversation_memory import TextVectors
from langgraph_convcoa.memory.knowledge_set import Citation, Round
from langgraph_convcoa.text.questions import LONGEST_COMPARED, SAME_SIMILARITY, words_agree

SHARE = 3  # At most one in three pieces of fresh evidence is replaced (section 4.2).
MARGIN = 0.05  # Minimum gain in similarity for an earlier piece to replace a fresh one.
LONGEST = 4000  # Maximum number of characters of a text that is kept from turn to turn.
_QUOTE_CHARACTERS = 300
_LEXICAL_SIMILARITY = 0.5


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
    """Add documents to the memory: M_t of eq. 2, oldest first, each text once. Beyond the capacity, the oldest are dropped.

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

    Only evidence of `rounds`, which are on the question's topic, is considered. Returns the evidence, with the same number of
    pieces, and the number of earlier pieces in it.
    """
    low = len(fresh) // SHARE
    known = {document.page_content for document in fresh} | {str(document.id) for document in fresh}
    earlier = [e for e in memory if e["round"] in rounds and e["text"] not in known and e["id"] not in known]
    if not low or not earlier:
        return list(fresh), 0
    compared = [(d.metadata.get("title"), d.metadata.get("quote"), d.page_content) for d in fresh[-low:]]
    compared += [(entry["title"], entry["quote"], entry["text"]) for entry in earlier]
    texts = [f"{title or ''} {quote or text[:_QUOTE_CHARACTERS]}".strip() for title, quote, text in compared]
    rows = vectors([question, *texts])
    scores = rows[1:] @ rows[0]
    kept, taken = list(fresh), 0
    # The best earlier piece is compared with the weakest fresh one.
    weakest, best = np.argsort(scores[:low], kind="stable"), np.argsort(-scores[low:], kind="stable")
    for place, number in zip(weakest, best, strict=False):
        if scores[low + number] <= scores[place] + MARGIN:
            break
        kept[len(fresh) - low + int(place)] = as_document(earlier[number], float(scores[low + number]))
        taken += 1
    return kept, taken


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

    An earlier answer is used if the same action found it, evidence supported it, and it is at most `max_age` seconds old. An
    answer that was itself recalled is not used, so that no answer looks newer than its retrieval. `asked` holds (index,
    action, self-contained sub-question), and `evidence` holds the full texts.
    """
    earliest = -math.inf if max_age is None else (now or datetime.now(UTC)).timestamp() - max_age
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


def _known(rounds: Sequence[Round], earliest: float) -> Iterator[tuple[Round, ChainItem]]:
    for entry in reversed(rounds):
        extra = entry.get("convcoa")
        if extra is None or _seconds(extra["time"]) < earliest:
            continue
        for item in extra["chain"]:
            if item["status"] in SUPPORTED and item["answer"] and len(item["sub_question"]) <= LONGEST_COMPARED:
                yield entry, item


def _seconds(time: str) -> float:
    """A time in seconds since 1970; minus infinity if it cannot be read."""
    try:
        when = datetime.fromisoformat(time)
    except ValueError:
        return -math.inf
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def _documents(item: ChainItem, entry: Round, texts: dict[tuple[str, int], RememberedEvidence]) -> list[Document]:
    """The evidence of an item, as far as it is stored. Empty if its first document, which supports the answer, is missing."""
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
